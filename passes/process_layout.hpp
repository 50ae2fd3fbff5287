// Which ranks of the whole mesh share a node, and what a collective over a group crosses. Ranks are numbered tp
// innermost, then cp, dp, pp, and fill nodes in that order; see ir/groups.def.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/plan.hpp"
#include "passes/profile.hpp"

namespace fem::passes {

// A group of ranks as its collective sees it.
struct GroupShape {
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;     // nodes that hold at least one of them
  std::int64_t per_node = 1;  // ranks on each node; 0 where nodes hold different numbers of them
  std::int64_t crossings = 0;  // edges of the ring in rank order that go from one node to another
};

class ProcessLayout {
 public:
  ProcessLayout(const ir::Settings& settings, std::int64_t node_size);

  std::int64_t world() const { return pp_ * stride_; }
  std::int64_t per_pipeline_rank() const { return stride_; }  // ranks with one pp coordinate
  std::int64_t node_size() const { return node_size_; }

  // Of the per_pipeline_rank() pairs that connect two pipeline coordinates, those on two nodes.
  std::int64_t pairs_between_nodes(int pp_a, int pp_b) const;

  // The slowest link between two pipeline coordinates: replicas run in step, so one crossing holds up all.
  LinkLevel link(int pp_a, int pp_b) const;

  // The groups of that kind whose ranks have these pipeline coordinates (ir/rank_groups.hpp); of all of them the one
  // that spans the most nodes.
  GroupShape shape(ir::Group group, std::span<const int> members) const;

 private:
  GroupShape line(std::int64_t first, std::int64_t stride, std::int64_t count) const;

  std::int64_t pp_, dp_, cp_, tp_, ep_;
  std::int64_t shard_;  // replicas in a shard group; 0: there are none
  std::int64_t stride_, node_size_;
};

// Seconds of a ring all-reduce over a group, by node and then between nodes where nodes hold equally many ranks
// (reduce- scatter inside, all-reduce of the parts between, all-gather inside), else one ring at the slowest link's
// speed. A ring over n ranks moves 2(n-1)/n of the buffer through each rank in 2(n-1) messages (Patarasuk and Yuan,
// 2009).
double all_reduce_time(const HardwareProfile& profile, const GroupShape& shape, double bytes);

// Half of it: an all-gather, or a reduce-scatter, of a buffer of `bytes` in all.
double gather_time(const HardwareProfile& profile, const GroupShape& shape, double bytes);

// Bytes that all ranks of the group together send over each level in an all-reduce.
struct LinkBytes {
  double in_node = 0, between_nodes = 0;
};
LinkBytes all_reduce_bytes(const GroupShape& shape, double bytes);

}  // namespace fem::passes

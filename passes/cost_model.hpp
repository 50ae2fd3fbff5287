// Actions priced in seconds from the model's shapes and a machine's profile; docs/simulation.md derives every formula.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ir/diagnostics.hpp"
#include "ir/rank_groups.hpp"
#include "passes/buffer_sizes.hpp"
#include "passes/cost.hpp"
#include "passes/process_layout.hpp"
#include "passes/profile.hpp"

namespace fem::passes {

// Seconds of one microbatch.
struct PassSeconds {
  double forward = 0, input = 0, weight = 0, backward = 0;
  double again = 0, cheap = 0;  // recomputing everything that the forward kept; its cheap slots alone
};

// Forward, B, W and the recomputes of a unit: the larger of operations over the matmul rate and bytes over the memory's
// bandwidth (roofline, Williams, Waterman and Patterson, 2009). What is measured replaces what is estimated. No
// overhead included.
PassSeconds unit_seconds(const ir::Settings& settings, const HardwareProfile& profile, ir::UnitKind kind);

class PricedCosts final : public CostModel {
 public:
  // Prices everything once, so that a question costs a look into a table. The plan and its stages must be valid. Null,
  // with an error, where the plan divides units (tp, cp, ep above 1): what that costs is not modelled.
  static std::unique_ptr<PricedCosts> create(const ir::Plan& plan, HardwareProfile profile, ir::DiagnosticSink& sink);

  double action(const ir::Plan&, int rank, const ir::Action& action, const ir::Action* overlapped) const override;
  double transfer(const ir::Plan&, int from, int to, const ir::Action& half) const override;

  const HardwareProfile& profile() const { return profile_; }
  const ProcessLayout& layout() const { return layout_; }
  const ir::RankGroups& groups() const { return groups_; }
  const BufferSizes& sizes() const { return sizes_; }

  // Bytes that a collective sums or gathers on each rank, and the shape of its group on this pipeline rank. An
  // all-reduce whose two halves send different formats counts their mean.
  double payload(const ir::Action& action) const;
  const GroupShape& shape(ir::Group group, int rank) const {
    return shapes_[static_cast<std::size_t>(rank) * ir::kGroups + static_cast<std::size_t>(group)];
  }
  LinkLevel link(int from, int to) const {
    return links_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)];
  }

 private:
  PricedCosts(const ir::Plan& plan, HardwareProfile profile);
  void price_stages(const ir::Plan& plan);
  void map_ranks();
  double alone(int rank, const ir::Action& action) const;
  double owned(const ir::Action& action) const;
  double part_of_stage(const ir::Action& action) const;
  PassSeconds passes_of(const ir::Action& action) const;
  double memory(double bytes) const { return bytes / profile_.memory_bandwidth; }

  HardwareProfile profile_;
  ProcessLayout layout_;
  ir::RankGroups groups_;
  BufferSizes sizes_;
  std::size_t ranks_;
  double pieces_ = 1;         // of a flat buffer: so many replicas sum one of the gradient norm each
  double shards_ = 1;         // of the optimizer's work: the pieces under ZeRO, else 1
  std::int64_t head_ = 0;     // index of the model's last unit
  double working_bytes_ = 0;  // of an element in the compute format
  double sent_bytes_ = 4;     // of a gradient's element on its way to the replica that sums it
  double tied_bytes_ = 0;     // fp32 gradient of the embedding
  std::array<PassSeconds, ir::kUnitKinds> units_;
  std::vector<PassSeconds> stages_;  // overhead included
  std::vector<double> parameters_;  // by pipeline rank
  std::vector<LinkLevel> links_;    // [from][to]
  std::vector<GroupShape> shapes_;  // [rank][group]
};

}  // namespace fem::passes

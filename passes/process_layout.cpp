#include "passes/process_layout.hpp"

#include <algorithm>
#include <cstdlib>

#include "ir/replicas.hpp"

namespace fem::passes {

ProcessLayout::ProcessLayout(const ir::Settings& settings, std::int64_t node_size)
    : pp_(settings.parallel.pp),
      dp_(settings.parallel.dp),
      cp_(settings.parallel.cp),
      tp_(settings.parallel.tp),
      ep_(settings.parallel.ep),
      shard_(ir::has_shard_groups(settings) ? settings.parallel.shard : 0),
      stride_(dp_ * cp_ * tp_),
      node_size_(node_size) {}

std::int64_t ProcessLayout::pairs_between_nodes(int pp_a, int pp_b) const {
  if (std::abs(pp_a - pp_b) * stride_ >= node_size_) return stride_;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < stride_; ++i) {
    pairs += (pp_a * stride_ + i) / node_size_ != (pp_b * stride_ + i) / node_size_;
  }
  return pairs;
}

LinkLevel ProcessLayout::link(int pp_a, int pp_b) const {
  return pairs_between_nodes(pp_a, pp_b) > 0 ? LinkLevel::BetweenNodes : LinkLevel::InNode;
}

GroupShape ProcessLayout::line(std::int64_t first, std::int64_t stride, std::int64_t count) const {
  GroupShape shape{count, 0, 0, 0};
  std::int64_t here = 0, node = -1;
  bool even = true;
  const auto close = [&] {
    if (shape.nodes == 1) shape.per_node = here;
    even = even && (shape.nodes == 0 || here == shape.per_node);
  };
  for (std::int64_t i = 0; i < count; ++i, ++here) {
    const std::int64_t now = (first + i * stride) / node_size_;
    if (now == node) continue;
    close();
    node = now;
    here = 0;
    ++shape.nodes;
  }
  close();
  if (!even) shape.per_node = 0;
  shape.crossings = shape.nodes > 1 ? shape.nodes : 0;  // the ring closes
  return shape;
}

GroupShape ProcessLayout::shape(ir::Group group, std::span<const int> members) const {
  const std::int64_t base = members.front() * stride_;
  // Every group of `count` ranks, `stride` apart, within [begin, begin + size).
  const auto widest = [&](std::int64_t begin, std::int64_t size, std::int64_t stride, std::int64_t count) {
    GroupShape worst = line(begin, stride, count);
    for (std::int64_t block = begin; block < begin + size; block += stride * count) {
      for (std::int64_t i = 0; i < stride; ++i) {
        const GroupShape shape = line(block + i, stride, count);
        if (shape.nodes > worst.nodes || (shape.nodes == worst.nodes && shape.per_node < worst.per_node)) worst = shape;
      }
    }
    return worst;
  };
  switch (group) {
    case ir::Group::world: return line(0, 1, world());
    case ir::Group::pp: return widest(0, world(), stride_, pp_);
    case ir::Group::dp: return widest(base, stride_, cp_ * tp_, dp_);
    case ir::Group::cp: return widest(base, stride_, tp_, cp_);
    case ir::Group::tp: return widest(base, stride_, 1, tp_);
    case ir::Group::ep: return widest(base, stride_, cp_ * tp_, ep_);
    case ir::Group::dp_cp: return widest(base, stride_, tp_, dp_ * cp_);
    case ir::Group::shard: return shard_ > 0 ? widest(base, stride_, tp_, shard_) : GroupShape{};
    case ir::Group::replicate:
      return shard_ > 0 ? widest(base, stride_, tp_ * shard_, dp_ * cp_ / shard_) : GroupShape{};
    case ir::Group::tied:
    case ir::Group::replica: {
      if (members.size() == 1) return {};
      const bool apart = link(members.front(), members.back()) == LinkLevel::BetweenNodes;
      return apart ? GroupShape{2, 2, 1, 2} : GroupShape{2, 1, 2, 0};
    }
    case ir::Group::none: return {};
  }
  return {};
}

namespace {

double ring(const Link& link, std::int64_t ranks, double bytes) {
  const auto n = static_cast<double>(ranks);
  return (n - 1) / n * bytes / link.bandwidth + (n - 1) * link.latency;
}

}  // namespace

double gather_time(const HardwareProfile& profile, const GroupShape& shape, double bytes) {
  const Link& near = profile.link(LinkLevel::InNode);
  const Link& far = profile.link(LinkLevel::BetweenNodes);
  if (shape.ranks <= 1) return 0;
  if (shape.nodes == 1) return ring(near, shape.ranks, bytes);
  if (shape.per_node == 0) {
    const Link slowest{std::max(near.latency, far.latency), std::min(near.bandwidth, far.bandwidth)};
    return ring(slowest, shape.ranks, bytes);
  }
  return ring(near, shape.per_node, bytes) + ring(far, shape.nodes, bytes / static_cast<double>(shape.per_node));
}

double all_reduce_time(const HardwareProfile& profile, const GroupShape& shape, double bytes) {
  return 2 * gather_time(profile, shape, bytes);
}

LinkBytes all_reduce_bytes(const GroupShape& shape, double bytes) {
  const auto n = static_cast<double>(shape.ranks), k = static_cast<double>(shape.nodes),
             g = static_cast<double>(shape.per_node), crossings = static_cast<double>(shape.crossings);
  if (shape.ranks <= 1) return {};
  if (shape.nodes == 1 || shape.per_node == 0) {
    const double edge = 2 * (n - 1) / n * bytes;
    return {(n - crossings) * edge, crossings * edge};
  }
  return {n * 2 * (g - 1) / g * bytes, n * 2 * (k - 1) / k * bytes / g};
}

}  // namespace fem::passes

#include "compiler/division.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/priced_times.hpp"
#include "compiler/sizes.hpp"
#include "ir/units.hpp"
#include "passes/cost_model.hpp"

namespace fem::compiler {
namespace {

constexpr double kBlock = 1e6;        // a block's cost: the others are rounded to this unit
constexpr double kMostBlocks = 1e6;   // no unit counts more, so that sums fit where a block costs next to nothing
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kNoShare = std::numeric_limits<std::size_t>::max();

double operations(const ir::UnitDims& dims, ir::UnitKind kind) {
  const ir::UnitInfo& unit = ir::info(kind);
  return static_cast<double>(unit.flops_forward(dims)) + static_cast<double>(unit.flops_backward_input(dims)) +
         static_cast<double>(unit.flops_backward_weight(dims));
}

// The parts of one rank. `times` is 2 where a rank runs its one part in both directions.
struct Share {
  std::vector<std::size_t> parts;
  std::int64_t times = 1;
};

// Blocks are alike, so that a division is a number for each part, and a limit on costs is an upper bound on numbers: of
// a part alone, and of the sum over a rank's parts. Both searches are over one integer whose room only grows.
class Division {
 public:
  Division(std::int64_t layers, const Placement& placement, const DivisionCosts& costs)
      : layers_(layers), block_(costs.block) {
    const auto parts = static_cast<std::size_t>(placement.p * placement.v);
    extra_.resize(parts, 0);
    extra_.front() += costs.embedding;
    extra_.back() += costs.head;
    least_.resize(parts, 1);
    least_.front() = least_.back() = 0;
    share_of_.resize(parts, kNoShare);
    for (int rank = 0; rank < placement.p; ++rank) add_share(placement, rank);
  }

  std::vector<std::int64_t> run() {
    std::int64_t most = 2 * layers_ * block_;
    for (std::int64_t extra : extra_) most += 2 * extra;
    const auto first = [most, this](auto fits) {
      std::int64_t low = 0, high = most;
      while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (fits(middle)) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      return low;
    };
    const std::int64_t rank = first([this](std::int64_t limit) { return room(limit, kNoLimit) >= layers_; });
    const std::int64_t part = first([&](std::int64_t limit) { return room(rank, limit) >= layers_; });
    return fill(rank, part);
  }

 private:
  void add_share(const Placement& placement, int rank) {
    Share share;
    for (int slot = 0; slot < placement.slots(); ++slot) {
      const auto part = static_cast<std::size_t>(placement.part(placement.stage(rank, slot)));
      if (std::ranges::find(share.parts, part) == share.parts.end()) share.parts.push_back(part);
    }
    // With two directions, rank p-1-r has the parts of rank r: one share for both.
    if (share_of_[share.parts.front()] != kNoShare) return;
    share.times = placement.slots() / static_cast<int>(share.parts.size());
    for (std::size_t part : share.parts) share_of_[part] = shares_.size();
    shares_.push_back(std::move(share));
  }

  // Blocks that cost at most `limit` beside what must be there; -1: that alone costs more.
  std::int64_t within(std::int64_t limit, std::int64_t extra) const {
    return limit < extra ? -1 : (limit - extra) / block_;
  }

  std::int64_t part_room(std::size_t part, std::int64_t limit) const {
    return std::min(within(limit, extra_[part]), layers_);
  }
  std::int64_t rank_room(const Share& share, std::int64_t limit) const {
    std::int64_t extra = 0;
    for (std::size_t part : share.parts) extra += extra_[part];
    return std::min(within(limit / share.times, extra), layers_);
  }

  // Blocks that fit under both limits, or -1 where the least division does not.
  std::int64_t room(std::int64_t rank_limit, std::int64_t part_limit) const {
    std::int64_t sum = 0;
    for (const Share& share : shares_) {
      std::int64_t parts = 0, least = 0;
      for (std::size_t part : share.parts) {
        const std::int64_t own = part_room(part, part_limit);
        if (own < least_[part]) return -1;
        parts += own;
        least += least_[part];
      }
      const std::int64_t own = std::min(parts, rank_room(share, rank_limit));
      if (own < least) return -1;
      sum += own;
    }
    return sum;
  }

  // Block after block to the cheapest part with room. The bounds are nested (a part, its rank, all), so that the
  // greedy choice gives the least sum of squares.
  std::vector<std::int64_t> fill(std::int64_t rank_limit, std::int64_t part_limit) const {
    std::vector<std::int64_t> blocks = least_;
    std::vector<std::int64_t> room;
    std::int64_t left = layers_;
    for (const Share& share : shares_) {
      room.push_back(rank_room(share, rank_limit));
      for (std::size_t part : share.parts) room.back() -= least_[part];
    }
    const auto parts = static_cast<std::int64_t>(blocks.size());
    using Next = std::tuple<std::int64_t, std::int64_t, std::size_t>;  // cost, distance to the middle, part
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    const auto offer = [&](std::size_t part) {
      const auto place = static_cast<std::int64_t>(part);
      next.emplace(blocks[part] * block_ + extra_[part], std::abs(2 * place - (parts - 1)), part);
    };
    for (std::size_t part = 0; part < blocks.size(); ++part) {
      left -= blocks[part];
      offer(part);
    }
    while (left > 0 && !next.empty()) {
      const std::size_t part = std::get<2>(next.top());
      next.pop();
      if (room[share_of_[part]] == 0 || blocks[part] == part_room(part, part_limit)) continue;
      ++blocks[part];
      --room[share_of_[part]];
      --left;
      offer(part);
    }
    return blocks;
  }

  std::int64_t layers_, block_;
  std::vector<std::int64_t> extra_, least_;  // of each part: embedding and head; blocks that it must have
  std::vector<Share> shares_;
  std::vector<std::size_t> share_of_;  // by part
};

}  // namespace

DivisionCosts division_costs(const ir::Settings& settings, const passes::HardwareProfile* profile) {
  const ir::UnitDims dims = ir::unit_dims(settings);
  const auto cost = [&](ir::UnitKind kind) {
    if (!profile) return operations(dims, kind);
    const passes::PassSeconds seconds = passes::unit_seconds(settings, *profile, kind);
    return seconds.forward + seconds.backward;
  };
  const double block = cost(ir::UnitKind::block);
  const auto relative = [&](ir::UnitKind kind) {
    const double blocks = block > 0 ? cost(kind) / block : 0;  // where a block costs nothing, any division is as good
    return std::llround(kBlock * std::min(blocks, kMostBlocks));
  };
  return {static_cast<std::int64_t>(kBlock), relative(ir::UnitKind::embedding), relative(ir::UnitKind::head)};
}

std::vector<std::int64_t> divide_by_cost(std::int64_t layers, const Placement& placement, const DivisionCosts& costs) {
  return Division(layers, placement, costs).run();
}

std::optional<std::vector<std::int64_t>> divide_model(const Configuration& configuration, const Placement& placement,
                                                      ir::DiagnosticSink& sink) {
  const auto& parallel = configuration.settings().parallel;
  const int parts = placement.p * placement.v;
  if (parallel.division == "even") return divide_layers(configuration, parts, sink);
  if (!parallel.layers_per_stage.empty()) {
    configuration.error(sink, {"parallel.division", "parallel.layers_per_stage"},
                        fmt::format("parallel.division={} and parallel.layers_per_stage=[{}] both divide the layers; "
                                    "leave one of them out",
                                    parallel.division, fmt::join(parallel.layers_per_stage, ", ")));
    return std::nullopt;
  }
  const std::int64_t layers = configuration.settings().model.layers;
  // The embedding or the head alone can be a stage.
  const std::int64_t least = std::max(parts - 2, 1);
  if (layers < least) {
    configuration.error(sink, {"model.layers", "parallel.pp", "schedule.chunks"},
                        fmt::format("model.layers={} is less than the {} of {} stages (pp={} x chunks={}) that need a "
                                    "block; nearest: {} (or fewer ranks or chunks)",
                                    layers, least, parts, placement.p, placement.v, least));
    return std::nullopt;
  }
  std::optional<passes::HardwareProfile> profile;
  if (!load_named_profile(configuration, profile, sink)) return std::nullopt;
  const DivisionCosts costs = division_costs(configuration.settings(), profile ? &*profile : nullptr);
  return divide_by_cost(layers, placement, costs);
}

std::vector<double> arithmetic_shares(const ir::Plan& plan) {
  const ir::UnitDims dims = ir::unit_dims(plan.settings);
  std::vector<double> shares(static_cast<std::size_t>(plan.settings.parallel.pp), 0);
  double sum = 0;
  for (const ir::Stage& stage : plan.stages) {
    for (int unit = stage.first_unit; unit < stage.first_unit + stage.units; ++unit) {
      const double own = operations(dims, ir::unit_kind(plan.settings, unit));
      shares[static_cast<std::size_t>(stage.pp)] += own;
      sum += own;
    }
  }
  for (double& share : shares) share = sum > 0 ? share / sum : 0;
  return shares;
}

}  // namespace fem::compiler

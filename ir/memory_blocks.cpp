#include "ir/memory_blocks.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "ir/replicas.hpp"
#include "ir/unit_sizes.hpp"

namespace fem::ir {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

class Blocks {
 public:
  Blocks(const Plan& plan, const Program& program, std::size_t rank)
      : plan_(plan),
        program_(program),
        rank_(rank),
        sizes_(unit_sizes(plan.settings)),
        by_lane_(plan.level >= Level::Lane),
        gathers_(plan.settings.parallel.zero == 3 && gathers_into_blocks(plan)) {}

  RankBlocks run() {
    number();
    const std::span<const Action> actions = program_.ranks[rank_].actions;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t n = batch_size(actions, i);
      lane_ = lane_index(actions[i].lane);
      ++batches_[lane_];
      if (is_p2p(actions[i].kind)) {
        begin_tick(i);
        for (std::size_t k = i; k < i + n; ++k) act(actions[k]);
      } else {
        for (std::size_t k = i; k < i + n; ++k) by_unit(actions[k], i);
      }
      i += n;
    }
    return std::move(result_);
  }

 private:
  // Per unit of this rank and microbatch, the index of a block that is alive.
  struct Live {
    std::uint32_t input = kNone, saved_b = kNone, saved_w = kNone, work = kNone, grad_output = kNone;
  };

  const Stage& stage(int s) const { return plan_.stages[static_cast<std::size_t>(s)]; }
  const UnitSizes& sizes(int unit) const { return sizes_of(sizes_, plan_.settings, unit); }

  void number() {
    first_.assign(plan_.stages.size(), 0);
    std::size_t units = 0;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (static_cast<std::size_t>(plan_.stages[s].pp) != rank_) continue;
      first_[s] = units;
      units += static_cast<std::size_t>(plan_.stages[s].units);
    }
    live_.resize(units * static_cast<std::size_t>(program_.microbatches));
    params_.assign(units, kNone);
    grads_.assign(units, kNone);
    moments_.assign(units, kNone);
    const std::size_t edges = plan_.stages.size() * static_cast<std::size_t>(program_.microbatches);
    sent_output_.assign(edges, kNone);
    sent_gradient_.assign(edges, kNone);
  }
  std::size_t row(int s, int unit) const {
    return first_[static_cast<std::size_t>(s)] + static_cast<std::size_t>(unit - stage(s).first_unit);
  }
  Live& live(int s, int unit, int m) {
    return live_[row(s, unit) * static_cast<std::size_t>(program_.microbatches) + static_cast<std::size_t>(m)];
  }
  std::uint32_t& edge(std::vector<std::uint32_t>& of, int s, int m) {
    return of[static_cast<std::size_t>(s) * static_cast<std::size_t>(program_.microbatches) +
              static_cast<std::size_t>(m)];
  }

  std::uint32_t born(MemoryKind kind, const Action& a, int unit, std::int64_t bytes) {
    if (bytes == 0) return kNone;
    result_.blocks.push_back({kind, a.stage, static_cast<std::int16_t>(unit), a.microbatch, tick_, tick_, bytes});
    const auto block = static_cast<std::uint32_t>(result_.blocks.size() - 1);
    use(block);
    return block;
  }
  void use(std::uint32_t block) {
    if (block == kNone) return;
    result_.blocks[block].death = tick_;
    result_.blocks[block].uses[lane_] = batches_[lane_];
  }
  void end(std::uint32_t& block) {
    use(block);
    block = kNone;
  }

  void begin_tick(std::size_t action) {
    tick_ = static_cast<std::uint32_t>(result_.action.size());
    result_.action.push_back(static_cast<std::uint32_t>(action));
  }

  void by_unit(const Action& a, std::size_t index) {
    if (a.microbatch < 0) {
      begin_tick(index);
      return act(a);
    }
    Action one = a;
    each_unit(stage(a.stage), a, [&](int unit) {
      one.unit = static_cast<std::int16_t>(unit);
      begin_tick(index);
      act(one);
    });
  }

  void act(const Action& a) {
    switch (a.kind) {
      case ActionKind::Forward: return forward(a);
      case ActionKind::Backward:
      case ActionKind::BackwardInput:
      case ActionKind::BackwardWeight: return backward(a);
      case ActionKind::Recompute:
        use(params_[row(a.stage, a.unit)]);
        return keep(a, a.slot != 1, a.slot != 0);
      case ActionKind::Free: return drop(a);
      case ActionKind::Offload:
        host(a, +1);
        return drop(a);
      case ActionKind::Reload: return reload(a);
      case ActionKind::RecvForward: return receive_forward(a);
      case ActionKind::SendForward: return end(edge(sent_output_, a.stage, a.microbatch));
      case ActionKind::RecvBackward: return receive_backward(a);
      case ActionKind::SendBackward: return end(edge(sent_gradient_, a.stage, a.microbatch));
      case ActionKind::Unshard:
      case ActionKind::Reshard:
      case ActionKind::ZeroGrad:
      case ActionKind::AllReduce:
      case ActionKind::ReduceScatter: return persistent(a);
      case ActionKind::ReloadOptimizer:
      case ActionKind::OptimizerStep:
      case ActionKind::OffloadOptimizer: return update(a);
      default: return;  // begins and ends no block
    }
  }

  // Gathered parameters and gradients that do not stay for the step: where lanes run at the same time, more than one
  // unit's may be there, and none shares memory but by the arena.
  void persistent(const Action& a) {
    if (!by_lane_ && !gathers_) return;
    each_unit(stage(a.stage), a, [&](int unit) {
      const bool reduced = a.kind == ActionKind::AllReduce || a.kind == ActionKind::ReduceScatter;
      if (a.kind == ActionKind::ZeroGrad || reduced) {
        if (!by_lane_ || reduced_once(plan_.settings, unit_kind(plan_.settings, unit))) return;
        std::uint32_t& mine = grads_[row(a.stage, unit)];
        if (reduced) return end(mine);
        if (mine == kNone) mine = born(MemoryKind::Gradients, a, unit, sizes(unit).grads);
      } else if (gathers_) {
        std::uint32_t& mine = params_[row(a.stage, unit)];
        if (a.kind == ActionKind::Reshard) return end(mine);
        if (mine == kNone) mine = born(MemoryKind::Parameters, a, unit, sizes(unit).params);
      }
    });
  }

  void update(const Action& a) {
    each_unit(stage(a.stage), a, [&](int unit) {
      std::uint32_t& mine = moments_[row(a.stage, unit)];
      if (a.kind == ActionKind::OffloadOptimizer) return end(mine);
      if (a.kind == ActionKind::OptimizerStep) return use(mine);
      mine = born(MemoryKind::Optimizer, a, unit, sizes(unit).moments);
    });
  }

  // Hands an activation to the unit after `unit` of stage `s`, or to the send.
  void pass_on(std::uint32_t block, int s, int unit, int m) {
    const Stage& here = stage(s);
    if (unit + 1 < here.first_unit + here.units) {
      live(s, unit + 1, m).input = block;
    } else if (here.next >= 0 && stage(here.next).pp == here.pp) {
      live(here.next, stage(here.next).first_unit, m).input = block;
    } else {
      edge(sent_output_, s, m) = block;
    }
  }
  void pass_back(std::uint32_t block, int s, int unit, int m) {
    const Stage& here = stage(s);
    if (unit > here.first_unit) {
      live(s, unit - 1, m).grad_output = block;
    } else if (here.prev >= 0 && stage(here.prev).pp == here.pp) {
      live(here.prev, stage(here.prev).first_unit + stage(here.prev).units - 1, m).grad_output = block;
    } else {
      edge(sent_gradient_, s, m) = block;
    }
  }

  void forward(const Action& a) {
    Live& mine = live(a.stage, a.unit, a.microbatch);
    use(params_[row(a.stage, a.unit)]);
    keep(a, true, true);
    if (program_.forward_only) {  // nothing is kept beyond the action
      end(mine.input);
      end(mine.saved_b);
      end(mine.saved_w);
    }
    pass_on(born(MemoryKind::Activations, a, a.unit, sizes(a.unit).output), a.stage, a.unit, a.microbatch);
  }

  void keep(const Action& a, bool b, bool w) {
    Live& mine = live(a.stage, a.unit, a.microbatch);
    use(mine.input);
    if (!b) use(mine.saved_b);
    if (!w) use(mine.saved_w);
    if (b) mine.saved_b = born(MemoryKind::Saved, a, a.unit, sizes(a.unit).saved_b);
    use(mine.saved_b);
    if (w) mine.saved_w = born(MemoryKind::Saved, a, a.unit, sizes(a.unit).saved_w);
  }

  void drop(const Action& a) {
    Live& mine = live(a.stage, a.unit, a.microbatch);
    if (a.slot != 1) end(mine.saved_b);
    if (a.slot != 0) end(mine.saved_w);
  }

  void host(const Action& a, std::int64_t count) {
    const auto add = [&](std::int64_t bytes) {
      if (bytes == 0) return;
      HostCopies& copies = host_[bytes];
      copies.now += count;
      if (copies.now <= copies.most) return;
      copies.most = copies.now;
      result_.host += bytes;
    };
    if (a.slot != 1) add(sizes(a.unit).saved_b);
    if (a.slot != 0) add(sizes(a.unit).saved_w);
  }

  void reload(const Action& a) {
    host(a, -1);
    Live& mine = live(a.stage, a.unit, a.microbatch);
    if (a.slot != 1) mine.saved_b = born(MemoryKind::Saved, a, a.unit, sizes(a.unit).saved_b);
    if (a.slot != 0) mine.saved_w = born(MemoryKind::Saved, a, a.unit, sizes(a.unit).saved_w);
  }

  void backward(const Action& a) {
    Live& mine = live(a.stage, a.unit, a.microbatch);
    if (is_input_backward(a.kind)) {
      use(params_[row(a.stage, a.unit)]);
      mine.work = born(MemoryKind::WeightWork, a, a.unit, sizes(a.unit).work);
      use(mine.saved_w);
      use(mine.grad_output);
      end(mine.input);
      end(mine.saved_b);
      if (unit_kind(plan_.settings, a.unit) != UnitKind::embedding) {
        const std::uint32_t dx = born(MemoryKind::ActGradients, a, a.unit - 1, sizes(a.unit).activation);
        pass_back(dx, a.stage, a.unit, a.microbatch);
      }
    }
    if (is_weight_backward(a.kind)) {
      use(grads_[row(a.stage, a.unit)]);
      end(mine.saved_w);
      end(mine.work);
      end(mine.grad_output);
    }
  }

  void receive_forward(const Action& a) {
    const int unit = stage(a.stage).first_unit;
    live(a.stage, unit, a.microbatch).input =
        born(MemoryKind::Activations, a, unit - 1, sizes(unit).activation);
  }
  void receive_backward(const Action& a) {
    const int unit = stage(a.stage).first_unit + stage(a.stage).units - 1;
    live(a.stage, unit, a.microbatch).grad_output =
        born(MemoryKind::ActGradients, a, unit, sizes(unit).activation);
  }

  const Plan& plan_;
  const Program& program_;
  std::size_t rank_;
  UnitSizeTable sizes_;
  bool by_lane_, gathers_;  // gradients that do not stay, gathered parameters have blocks
  std::size_t lane_ = 0;
  LaneCounts batches_{};  // begun so far
  std::vector<std::size_t> first_;  // by stage: its first unit among the rank's
  std::vector<Live> live_;
  struct HostCopies {
    std::int64_t now = 0, most = 0;
  };
  std::map<std::int64_t, HostCopies> host_;    // by size
  std::vector<std::uint32_t> params_, grads_, moments_;  // by unit of the rank: its block, where it is one
  std::vector<std::uint32_t> sent_output_, sent_gradient_;  // by stage and microbatch: what waits for its send
  std::uint32_t tick_ = 0;
  RankBlocks result_;
};

}  // namespace

std::string_view name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::Parameters: return "parameters";
    case MemoryKind::Masters: return "masters";
    case MemoryKind::Gradients: return "gradients";
    case MemoryKind::Optimizer: return "optimizer";
    case MemoryKind::Activations: return "activations";
    case MemoryKind::Saved: return "saved";
    case MemoryKind::WeightWork: return "weight_work";
    case MemoryKind::ActGradients: return "activation_gradients";
    case MemoryKind::Workspace: return "workspace";
    case MemoryKind::Communication: return "communication";
  }
  return "";
}

std::int64_t total(const KindBytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

RankBlocks memory_blocks(const Plan& plan, const Program& program, std::size_t rank) {
  return Blocks(plan, program, rank).run();
}

}  // namespace fem::ir

#include "ir/memory_blocks.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace fem::ir {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

// Bytes of the blocks of each kind of unit, asked once.
struct UnitSizes {
  std::int64_t output, saved_b, saved_w, work, activation;
  std::array<std::int64_t, 3> workspace;  // by Phase
};
std::array<UnitSizes, kUnitKinds> unit_sizes(const Settings& settings) {
  const UnitDims dims = unit_dims(settings);
  const UnitFormats formats = unit_formats(settings);
  std::array<UnitSizes, kUnitKinds> table;
  for (int k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    const auto block = [&](UnitBlock b) { return block_bytes(kind, b, dims, formats); };
    const auto scratch = [&](Phase p) { return workspace_bytes(kind, p, dims, formats); };
    table[static_cast<std::size_t>(k)] = {
        block(UnitBlock::output), block(UnitBlock::saved_b), block(UnitBlock::saved_w), block(UnitBlock::work),
        aligned(formats.compute * dims.tokens * dims.hidden),
        {scratch(Phase::forward), scratch(Phase::backward_input), scratch(Phase::backward_weight)}};
  }
  return table;
}

bool ends_input(ActionKind kind) { return kind == ActionKind::Backward || kind == ActionKind::BackwardInput; }
bool ends_weight(ActionKind kind) { return kind == ActionKind::Backward || kind == ActionKind::BackwardWeight; }

class Blocks {
 public:
  Blocks(const Plan& plan, const Program& program, std::size_t rank)
      : plan_(plan), program_(program), rank_(rank), sizes_(unit_sizes(plan.settings)) {}

  RankBlocks run() {
    number();
    const std::span<const Action> actions = program_.ranks[rank_].actions;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t n = batch_size(actions, i);
      if (is_p2p(actions[i].kind)) {
        begin_tick(i);
        for (std::size_t k = i; k < i + n; ++k) act(actions[k]);
      } else {
        for (std::size_t k = i; k < i + n; ++k) each_unit(actions[k], i);
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
  const UnitSizes& sizes(int unit) const {
    return sizes_[static_cast<std::size_t>(unit_kind(plan_.settings, unit))];
  }

  void number() {
    first_.assign(plan_.stages.size(), 0);
    std::size_t units = 0;
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      if (static_cast<std::size_t>(plan_.stages[s].pp) != rank_) continue;
      first_[s] = units;
      units += static_cast<std::size_t>(plan_.stages[s].units);
    }
    live_.resize(units * static_cast<std::size_t>(program_.microbatches));
    const std::size_t edges = plan_.stages.size() * static_cast<std::size_t>(program_.microbatches);
    sent_output_.assign(edges, kNone);
    sent_gradient_.assign(edges, kNone);
  }
  Live& live(int s, int unit, int m) {
    const std::size_t row = first_[static_cast<std::size_t>(s)] + static_cast<std::size_t>(unit - stage(s).first_unit);
    return live_[row * static_cast<std::size_t>(program_.microbatches) + static_cast<std::size_t>(m)];
  }
  std::uint32_t& edge(std::vector<std::uint32_t>& of, int s, int m) {
    return of[static_cast<std::size_t>(s) * static_cast<std::size_t>(program_.microbatches) +
              static_cast<std::size_t>(m)];
  }

  std::uint32_t born(MemoryKind kind, const Action& a, int unit, std::int64_t bytes) {
    if (bytes == 0) return kNone;
    result_.blocks.push_back({kind, a.stage, static_cast<std::int16_t>(unit), a.microbatch, tick_, tick_, bytes});
    return static_cast<std::uint32_t>(result_.blocks.size() - 1);
  }
  void use(std::uint32_t block) {
    if (block != kNone) result_.blocks[block].death = std::max(result_.blocks[block].death, tick_);
  }
  void end(std::uint32_t& block) {
    use(block);
    block = kNone;
  }

  void begin_tick(std::size_t action) {
    tick_ = static_cast<std::uint32_t>(result_.action.size());
    result_.action.push_back(static_cast<std::uint32_t>(action));
  }

  // Units run in model order forward and in the opposite order backward.
  void each_unit(const Action& a, std::size_t index) {
    if (a.unit >= 0 || !info(a.kind).has(operand::kU) || a.microbatch < 0) {
      begin_tick(index);
      return act(a);
    }
    const Stage& here = stage(a.stage);
    Action one = a;
    for (int i = 0; i < here.units; ++i) {
      const bool up = a.kind == ActionKind::Forward;
      one.unit = static_cast<std::int16_t>(here.first_unit + (up ? i : here.units - 1 - i));
      begin_tick(index);
      act(one);
    }
  }

  void act(const Action& a) {
    switch (a.kind) {
      case ActionKind::Forward: return forward(a);
      case ActionKind::Backward:
      case ActionKind::BackwardInput:
      case ActionKind::BackwardWeight: return backward(a);
      case ActionKind::Recompute: return keep(a, a.slot != 1, a.slot != 0);
      case ActionKind::Free: return drop(a);
      case ActionKind::RecvForward: return receive_forward(a);
      case ActionKind::SendForward: return end(edge(sent_output_, a.stage, a.microbatch));
      case ActionKind::RecvBackward: return receive_backward(a);
      case ActionKind::SendBackward: return end(edge(sent_gradient_, a.stage, a.microbatch));
      case ActionKind::Unshard:
      case ActionKind::Reshard:
      case ActionKind::Offload:
      case ActionKind::Reload:
      case ActionKind::ZeroGrad:
      case ActionKind::ReduceLoss:
      case ActionKind::ReduceReplicaGrad:
      case ActionKind::ReduceTiedGrad:
      case ActionKind::AllReduce:
      case ActionKind::ReduceScatter:
      case ActionKind::GradNorm:
      case ActionKind::ClipGrad:
      case ActionKind::OptimizerStep: return;
    }
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
    if (b) mine.saved_b = born(MemoryKind::Saved, a, a.unit, sizes(a.unit).saved_b);
    use(mine.saved_b);
    if (w) mine.saved_w = born(MemoryKind::Saved, a, a.unit, sizes(a.unit).saved_w);
  }

  void drop(const Action& a) {
    Live& mine = live(a.stage, a.unit, a.microbatch);
    if (a.slot != 1) end(mine.saved_b);
    if (a.slot != 0) end(mine.saved_w);
  }

  void backward(const Action& a) {
    Live& mine = live(a.stage, a.unit, a.microbatch);
    if (ends_input(a.kind)) {
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
    if (ends_weight(a.kind)) {
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
  std::array<UnitSizes, kUnitKinds> sizes_;
  std::vector<std::size_t> first_;  // by stage: its first unit among the rank's
  std::vector<Live> live_;
  std::vector<std::uint32_t> sent_output_, sent_gradient_;  // by stage and microbatch: what waits for its send
  std::uint32_t tick_ = 0;
  RankBlocks result_;
};

std::int64_t workspace(const std::array<UnitSizes, kUnitKinds>& sizes, const Settings& settings, ActionKind kind,
                       int u) {
  const UnitSizes& unit = sizes[static_cast<std::size_t>(unit_kind(settings, u))];
  const auto phase = [&](Phase p) { return unit.workspace[static_cast<std::size_t>(p)]; };
  if (kind == ActionKind::Forward || kind == ActionKind::Recompute) return phase(Phase::forward);
  return std::max(ends_input(kind) ? phase(Phase::backward_input) : 0,
                  ends_weight(kind) ? phase(Phase::backward_weight) : 0);
}

std::int64_t workspace(const Plan& plan, const Program& program, std::size_t rank) {
  const auto sizes = unit_sizes(plan.settings);
  std::int64_t most = 0;
  for (const Action& a : program.ranks[rank].actions) {
    if (a.stage < 0) continue;
    const Stage& stage = plan.stages[static_cast<std::size_t>(a.stage)];
    const int first = a.unit < 0 ? stage.first_unit : a.unit, end = a.unit < 0 ? first + stage.units : first + 1;
    for (int u = first; u < end; ++u) most = std::max(most, workspace(sizes, plan.settings, a.kind, u));
  }
  return most;
}

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
  }
  return "";
}

std::int64_t total(const KindBytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); }

RankBlocks memory_blocks(const Plan& plan, const Program& program, std::size_t rank) {
  return Blocks(plan, program, rank).run();
}

KindBytes persistent_bytes(const Plan& plan, std::size_t rank) {
  const Settings& settings = plan.settings;
  const UnitDims dims = unit_dims(settings);
  const std::int64_t format = unit_formats(settings).compute, zero = settings.parallel.zero;
  const auto replicas = static_cast<int>(settings.parallel.dp * settings.parallel.cp);
  KindBytes bytes{};
  const auto of = [&](MemoryKind kind) -> std::int64_t& { return bytes[static_cast<std::size_t>(kind)]; };
  std::int64_t most_gathered = 0, most_reduced = 0;
  for (const Stage& stage : plan.stages) {
    if (static_cast<std::size_t>(stage.pp) != rank) continue;
    for (int u = stage.first_unit; u < stage.first_unit + stage.units; ++u) {
      const UnitKind kind = unit_kind(settings, u);
      const std::int64_t whole = flat_elements(kind, dims, replicas), owned = zero > 0 ? whole / replicas : whole;
      if (zero < 3) of(MemoryKind::Parameters) += format * whole;
      if (zero == 3) most_gathered = std::max(most_gathered, format * whole);
      if (zero == 3 || format != 4) of(MemoryKind::Masters) += 4 * owned;
      of(MemoryKind::Optimizer) += 8 * owned;
      if (reduced_once(settings, kind)) {
        of(MemoryKind::Gradients) += 4 * whole;
      } else {
        of(MemoryKind::Gradients) += 4 * owned;
        most_reduced = std::max(most_reduced, 4 * whole);
      }
    }
  }
  of(MemoryKind::Parameters) += most_gathered;  // one buffer that units share
  of(MemoryKind::Gradients) += most_reduced;
  for (const Program& program : plan.programs) {
    of(MemoryKind::Workspace) = std::max(of(MemoryKind::Workspace), workspace(plan, program, rank));
  }
  return bytes;
}

MemoryPeak memory_peak(const Plan& plan, const Program& program, std::size_t rank) {
  const RankBlocks all = memory_blocks(plan, program, rank);
  const std::vector<MemoryBlock>& blocks = all.blocks;
  std::vector<std::uint32_t> deaths(blocks.size());
  std::iota(deaths.begin(), deaths.end(), 0);
  std::ranges::stable_sort(deaths, {}, [&](std::uint32_t b) { return blocks[b].death; });

  MemoryPeak peak;
  peak.persistent = persistent_bytes(plan, rank);
  struct Count {
    std::int64_t now = 0, most = 0;
  };
  std::map<std::int64_t, Count> by_size;
  KindBytes now{};
  std::int64_t live = 0;
  std::size_t dead = 0;
  for (std::size_t b = 0; b < blocks.size();) {
    const std::uint32_t at = blocks[b].birth;
    for (; dead < deaths.size() && blocks[deaths[dead]].death < at; ++dead) {
      const MemoryBlock& gone = blocks[deaths[dead]];
      now[static_cast<std::size_t>(gone.kind)] -= gone.bytes;
      live -= gone.bytes;
      --by_size[gone.bytes].now;
    }
    for (; b < blocks.size() && blocks[b].birth == at; ++b) {
      now[static_cast<std::size_t>(blocks[b].kind)] += blocks[b].bytes;
      live += blocks[b].bytes;
      Count& count = by_size[blocks[b].bytes];
      count.most = std::max(count.most, ++count.now);
    }
    if (live <= peak.live) continue;
    peak.live = live;
    peak.blocks = now;
    peak.tick = at;
    peak.action = all.action[at];
  }
  for (const auto& [bytes, count] : by_size) peak.pool += bytes * count.most;
  return peak;
}

}  // namespace fem::ir

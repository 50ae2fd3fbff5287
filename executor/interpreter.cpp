#include "executor/interpreter.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>

#include "executor/error.hpp"
#include "executor/rank_thread.hpp"
#include "executor/tracking_allocator.hpp"
#include "ir/text.hpp"

namespace fem::exec {
namespace {

constexpr std::size_t kMaxHalves = 4;

int most_microbatches(const ir::Plan& plan) {
  int most = 0;
  for (const ir::Program& program : plan.programs) most = std::max(most, static_cast<int>(program.microbatches));
  return most;
}

ParallelContext make_context(const ir::Settings& settings, Coordinates at, Communicator& comm) {
  ParallelContext context;
  context.comm = &comm;
  context.dp = static_cast<int>(settings.parallel.dp);
  context.cp = static_cast<int>(settings.parallel.cp);
  context.tp = static_cast<int>(settings.parallel.tp);
  context.ep = static_cast<int>(settings.parallel.ep);
  context.dp_rank = at.dp;
  context.cp_rank = at.cp;
  context.tp_rank = at.tp;
  context.ep_rank = comm.group_rank(ir::Group::ep);
  return context;
}

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool executed(const ir::Action& action) {
  // Block 0 is restored together with block 1 only.
  const bool drops = action.kind == ir::ActionKind::Recompute || action.kind == ir::ActionKind::Free;
  return !drops || action.slot != 0;
}

}  // namespace

void check_executable(const ir::Plan& plan) {
  for (const ir::Program& program : plan.programs)
    for (const ir::RankProgram& rank : program.ranks)
      for (const ir::Action& action : rank.actions)
        if (!executed(action))
          throw ExecutionError("action " + ir::action_text({&action, 1}) + " is not executed by this version");
}

Interpreter::Interpreter(const ir::Plan& plan, const Topology& topology, Communicator& comm, Parameters& parameters,
                         Progress& progress, LaneMode lanes)
    : plan_(plan),
      topology_(topology),
      comm_(comm),
      here_(topology.coordinates(comm.rank())),
      pipeline_(topology.members(ir::Group::pp, comm.rank())),
      dry_(parameters.device().is_meta()),
      activations_(plan, most_microbatches(plan), parameters.device()),
      stages_(plan, parameters, make_context(plan.settings, here_, comm), activations_),
      update_(plan, parameters, comm, activations_.pool()),
      progress_(progress),
      describe_(progress, [this](std::int64_t, std::uint32_t action) { return describe(action); }) {
  check_executable(plan);
  std::int64_t arena = 0;
  for (const ir::Program& program : plan.programs) {
    const ir::RankProgram& mine = program.ranks[static_cast<std::size_t>(here_.pp)];
    arena = std::max(arena, mine.arena);
    tables_.emplace_back(mine);
    losses_.emplace_back(program.microbatches, comm.group_size(ir::Group::pp), comm.group_size(ir::Group::dp_cp));
  }
  if (arena > 0) activations_.pool().use_arena(arena);
  if (plan.level < ir::Level::Lane || lanes == LaneMode::Inline) return;
  for (std::size_t p = 0; p < plan.programs.size(); ++p)
    announcers_.emplace_back(plan, p, static_cast<std::size_t>(here_.pp));
  const auto around = [counter = current_allocations()](const std::function<void()>& body) {
    const JoinAllocations join(counter);
    const RankThread thread;
    body();
  };
  lanes_ = std::make_unique<ThreadLanes>(around, ThreadLanes::beside(tables_));
}

StepResult Interpreter::run(const ir::Program& program, const StepInput& input) {
  const std::size_t index = program_index(program);
  FEM_CHECK(index < plan_.programs.size(), "a program of another plan");
  Run run{program, program.ranks[static_cast<std::size_t>(here_.pp)].actions, input, losses_[index], {}};
  run.losses.reset();
  update_.begin_step(input.loss_scale);
  stages_.begin(!program.forward_only, input.step, input.loss_scale);
  current_.store(&program.ranks[static_cast<std::size_t>(here_.pp)], std::memory_order_release);
  if (keeps_times_) times_.assign(tables_[index].batches.size(), {});
  try {
    execute_all(run, tables_[index]);
    if (alive_buffers() != 0)
      throw ExecutionError("buffers are alive after the program's last action", comm_.rank(), input.step,
                           describe(static_cast<std::uint32_t>(run.actions.size())), topology_.place(comm_.rank()));
  } catch (...) {
    activations_.clear();
    update_.abandon();
    throw;
  }
  progress_.leave();
  return std::move(run.result);
}

std::string Interpreter::describe(std::uint32_t action) const {
  const ir::RankProgram* program = current_.load(std::memory_order_acquire);
  if (!program || action >= program->actions.size()) return "end of the program";
  return ir::action_text(std::span(program->actions).subspan(action));
}

void Interpreter::execute_all(Run& run, const LaneTable& table) {
  if (!lanes_) {
    for (const LaneTable::Batch& batch : table.batches) execute_batch(run, table, batch);
    return;
  }
  const auto execute = [&](const LaneTable::Batch& batch) { execute_batch(run, table, batch); };
  lanes_->run(
      table, std::cref(execute),  // a copy would take memory
      [&](const std::exception_ptr& error) {
        try {
          std::rethrow_exception(error);
        } catch (const std::exception& e) {
          comm_.fail(e.what());  // wakes the lanes that wait for other ranks
        }
      });
}

void Interpreter::execute_batch(Run& run, const LaneTable& table, const LaneTable::Batch& batch) {
  const std::span<const ir::Action> actions = run.actions.subspan(batch.action, batch.size);
  progress_.enter(run.input.step, batch.action, lanes_ ? batch.lane : ir::Lane::Compute);
  if (actions.front().if_finite() && !run.result.finite) return;
  BlockPool& pool = activations_.pool();
  const std::int64_t begin = keeps_times_ ? now() : 0;
  if (lanes_) announcers_[program_index(run.program)].announce(static_cast<std::size_t>(&batch - table.batches.data()));
  try {
    if (pool.has_arena())
      pool.expect(batch.lane, std::span(table.program->offsets).subspan(batch.first_offset, batch.offsets));
    execute_actions(run, actions);
    FEM_CHECK(pool.complete(batch.lane), "the plan has an offset for a block that the action does not take");
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const ExecutionError*>(&error);
    if (known && known->rank() >= 0) throw;  // a communicator's error says where it happened
    throw ExecutionError(known ? known->message() : error.what(), comm_.rank(), run.input.step,
                         describe(batch.action), topology_.place(comm_.rank()));
  }
  if (keeps_times_) times_[static_cast<std::size_t>(&batch - table.batches.data())] = {begin, now()};
}

void Interpreter::execute_actions(Run& run, std::span<const ir::Action> actions) {
  if (ir::is_p2p(actions.front().kind)) return exchange(actions, actions.front().lane);
  for (const ir::Action& action : actions) execute(run, action);
}

void Interpreter::exchange(std::span<const ir::Action> halves, ir::Lane lane) {
  FEM_CHECK(halves.size() <= kMaxHalves, "a batch of more than four halves");
  std::array<P2pHalf, kMaxHalves> posted;
  std::array<Block, kMaxHalves> buffers;
  std::array<std::int64_t, kMaxHalves> slots;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const ir::Action& half = halves[i];
    const bool send = ir::is_send(half.kind);
    const bool forward = half.kind == ir::ActionKind::SendForward || half.kind == ir::ActionKind::RecvForward;
    // The input of a stage is the output of the one before it: a transfer is known by the slot of what it carries.
    const bool own_slot = send == forward;
    const int stage = own_slot ? half.stage : plan_.stages[static_cast<std::size_t>(half.stage)].prev;
    slots[i] = activations_.index(stage, half.microbatch);
    if (!send) {
      buffers[i] = activations_.activation(lane);
    } else {
      buffers[i] = forward ? activations_.take_output(slots[i]) : activations_.take_gradient(slots[i]);
    }
    posted[i] = {send, pipeline_[static_cast<std::size_t>(half.peer)],
                 forward ? slots[i] : activations_.slots() + slots[i], buffers[i].data(),
                 activations_.activation_bytes()};
  }
  comm_.exchange({posted.data(), halves.size()}, lane);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    if (halves[i].kind == ir::ActionKind::RecvForward) activations_.put_output(slots[i], std::move(buffers[i]));
    if (halves[i].kind == ir::ActionKind::RecvBackward) activations_.put_gradient(slots[i], std::move(buffers[i]));
  }
}

const Microbatch& Interpreter::batch(const Run& run, int m) const {
  return run.input.batches.empty() ? no_batch_ : run.input.batches[static_cast<std::size_t>(m)].batch;
}

void Interpreter::execute(Run& run, const ir::Action& action) {
  const int s = action.stage, u = action.unit;
  StepResult& result = run.result;
  switch (action.kind) {
    case ir::ActionKind::Forward:
    case ir::ActionKind::Backward:
    case ir::ActionKind::BackwardInput:
    case ir::ActionKind::BackwardWeight:
    case ir::ActionKind::Recompute:
    case ir::ActionKind::Free:
    case ir::ActionKind::Offload:
    case ir::ActionKind::Reload: return execute_units(run, action);
    case ir::ActionKind::ZeroGrad: return update_.zero_grad(s, u, action.lane);
    case ir::ActionKind::ReduceLoss: return reduce_loss(run);
    case ir::ActionKind::ReduceReplicaGrad: return update_.reduce_replicas(s);
    case ir::ActionKind::ReduceTiedGrad: return update_.reduce_tied(s);
    case ir::ActionKind::AllReduce: return update_.all_reduce(s, u, action.group);
    case ir::ActionKind::ReduceScatter: return update_.reduce_scatter(s, u, action.group);
    case ir::ActionKind::AllReduceShard: return update_.all_reduce_shard(s, u, action.group);
    case ir::ActionKind::Unshard: return update_.unshard(s, u, action.group, action.lane);
    case ir::ActionKind::Reshard: return update_.reshard(s, u);
    case ir::ActionKind::GradNorm: return norm(run);
    case ir::ActionKind::ClipGrad:
      if (result.finite) update_.clip(s, result.grad_norm, result.metrics.tokens);
      return;
    case ir::ActionKind::OptimizerStep: return update_.optimizer_step(s, u, run.input.lr, run.input.update);
    case ir::ActionKind::ReloadOptimizer: return update_.reload_optimizer(s, u, action.lane);
    case ir::ActionKind::OffloadOptimizer: return update_.offload_optimizer(s, u);
    case ir::ActionKind::RecvForward:
    case ir::ActionKind::SendForward:
    case ir::ActionKind::RecvBackward:
    case ir::ActionKind::SendBackward: return exchange({&action, 1}, action.lane);
  }
}

void Interpreter::execute_units(Run& run, const ir::Action& action) {
  const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(action.stage)];
  ir::each_unit(stage, action, [&](int unit) { execute_unit(run, action, unit - stage.first_unit); });
}

void Interpreter::execute_unit(Run& run, const ir::Action& action, int unit) {
  const int s = action.stage, m = action.microbatch;
  const Recompute what = action.slot == 1 ? Recompute::cheap : Recompute::everything;
  switch (action.kind) {
    case ir::ActionKind::Forward:
      return stages_.forward(s, m, unit, batch(run, m), run.program.forward_only ? Keep::nothing : Keep::everything,
                             run.losses);
    case ir::ActionKind::Backward:
      stages_.backward_input(s, m, unit);
      return stages_.backward_weight(s, m, unit);
    case ir::ActionKind::BackwardInput: return stages_.backward_input(s, m, unit);
    case ir::ActionKind::BackwardWeight: return stages_.backward_weight(s, m, unit);
    case ir::ActionKind::Recompute: return stages_.recompute(s, m, unit, batch(run, m), what);
    case ir::ActionKind::Offload: return stages_.offload(s, m, unit, action.slot);
    case ir::ActionKind::Reload: return stages_.reload(s, m, unit, action.slot);
    default: return stages_.free_saved(s, m, unit, what);
  }
}

void Interpreter::reduce_loss(Run& run) {
  StepResult& result = run.result;
  const bool stop = run.input.stop && run.input.stop->load(std::memory_order_relaxed);
  result.metrics = run.losses.reduce(comm_, run.input.step, norm_bits_, stop);
  if (dry_) return;  // no numbers: every step counts as finite
  if (result.metrics.tokens == 0) {
    result.problem = "no valid target in the whole batch";
  } else if (!std::isfinite(result.metrics.loss_sum)) {
    result.problem = run.losses.not_finite(topology_) + " is not finite";
    result.overflow = true;
  }
  result.finite = result.problem.empty();
}

void Interpreter::norm(Run& run) {
  StepResult& result = run.result;
  result.grad_norm = update_.grad_norm(result.metrics.tokens);
  norm_bits_ = std::bit_cast<std::uint64_t>(result.grad_norm);
  if (result.finite && !std::isfinite(result.grad_norm)) {
    result.problem = "gradient of " + update_.not_finite(topology_) + " is not finite";
    result.overflow = true;
  }
  result.finite = result.problem.empty();
}

}  // namespace fem::exec

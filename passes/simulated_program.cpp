#include "passes/simulated_program.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "ir/text.hpp"

namespace fem::passes {
namespace simulating {

using ir::Action;
using ir::ActionKind;

namespace {

bool names_what_exists(const ir::Plan& plan, const ir::Program& program, int rank, const Action& a) {
  const int stages = static_cast<int>(plan.stages.size()), ranks = static_cast<int>(program.ranks.size());
  if (a.stage < 0 || a.stage >= stages || a.microbatch < 0 || a.microbatch >= program.microbatches) return false;
  const ir::Stage& stage = plan.stages[static_cast<std::size_t>(a.stage)];
  if ((a.kind == ActionKind::SendForward || a.kind == ActionKind::RecvBackward) && stage.next < 0) return false;
  if ((a.kind == ActionKind::SendBackward || a.kind == ActionKind::RecvForward) && stage.prev < 0) return false;
  return !ir::is_p2p(a.kind) || (a.peer >= 0 && a.peer < ranks && a.peer != rank);
}

}  // namespace

bool check_operands(const ir::Plan& plan, const ir::Program& program, ir::DiagnosticSink& sink) {
  const int stages = static_cast<int>(plan.stages.size()), ranks = static_cast<int>(program.ranks.size());
  const auto valid_stage = [&](int s) { return s >= -1 && s < stages; };
  for (const ir::Stage& s : plan.stages) {
    if (s.pp >= 0 && s.pp < ranks && valid_stage(s.prev) && valid_stage(s.next)) continue;
    sink.error({}, "a stage names a rank or a stage that does not exist");
    return false;
  }
  for (int r = 0; r < ranks; ++r) {
    const std::span<const Action> actions = program.ranks[static_cast<std::size_t>(r)].actions;
    const auto fail = [&](const Action& a, const std::string& what) {
      sink.error({}, "program " + program.name + ", rank " + std::to_string(r) + ": " + ir::action_text({&a, 1}) +
                         what);
      return false;
    };
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& a = actions[i];
      if (a.joined() && i + 1 < actions.size() && ir::is_p2p(a.kind) != ir::is_p2p(actions[i + 1].kind)) {
        return fail(a, " is joined with an action of another kind");
      }
      if (!ir::is_computation(a.kind) && !ir::is_p2p(a.kind)) continue;
      if (!names_what_exists(plan, program, r, a)) {
        return fail(a, " names a stage, microbatch or rank that does not exist");
      }
    }
  }
  return true;
}

void SpanCount::count(RankTimes& times, std::span<const Action> batch, ActionTime at, bool forward_only) {
  if (!ir::is_computation(batch.front().kind)) return;
  if (!std::exchange(started_, true)) times.first_start = at.start;
  times.last_end = at.end;
  times.busy += at.end - at.start;
  for (const Action& a : batch) in_flight_ += a.kind == ActionKind::Forward;
  times.peak_in_flight = std::max(times.peak_in_flight, in_flight_);
  for (const Action& a : batch) {
    in_flight_ -= forward_only ? a.kind == ActionKind::Forward
                               : ir::is_weight_backward(a.kind);
  }
}

void Summary::add(RankTimes& times) {
  const double span = times.last_end - times.first_start;
  times.waiting = span - times.busy;
  result_.ideal = std::max(result_.ideal, times.busy);
  result_.stage_span = std::max(result_.stage_span, span);
  first_ = any_ ? std::min(first_, times.first_start) : times.first_start;
  last_ = std::max(last_, times.last_end);
  any_ = true;
  result_.makespan = last_ - first_;
}

}  // namespace simulating

namespace {

Bubble bubble(double span, double ideal) {
  const double time = span - ideal;
  return {time, ideal > 0 ? time / ideal : 0, span > 0 ? time / span : 0};
}

}  // namespace

Bubble Simulation::makespan_bubble() const { return bubble(makespan, ideal); }
Bubble Simulation::stage_span_bubble() const { return bubble(stage_span, ideal); }

}  // namespace fem::passes

#include "tests/fuzz/cases.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "passes/communication.hpp"
#include "passes/simulate.hpp"
#include "tests/ir/corruption.hpp"
#include "tests/ir/lane_programs.hpp"
#include "tests/ir/plans.hpp"

namespace fem::fuzz {
namespace {

using ir::Action;
using ir::ActionKind;
using ir::Plan;
using ir::testing::below;
using ir::testing::Random;
using passes::Communication;
using test::Placement;

struct Case {
  std::uint32_t number;
  Random random;
  Tally& tally;

  // The complaint of a failed case.
  static std::string wrong(const std::string& what, const Plan& plan, const ir::DiagnosticSink& sink) {
    return what + "\n" + sink.text() + ir::print_plan(plan);
  }
};

bool has_code_below(const ir::DiagnosticSink& sink, std::string_view code) {
  return std::ranges::any_of(sink.all(), [&](const ir::Diagnostic& d) {
    return d.severity == ir::Severity::Error && d.code < code;
  });
}
bool only_code(const ir::DiagnosticSink& sink, std::string_view code) {
  return sink.has_errors() && std::ranges::all_of(sink.all(), [&](const ir::Diagnostic& d) {
           return d.severity != ir::Severity::Error || d.code == code;
         });
}

// Whether every program of the plan runs through.
bool runs(const Plan& plan, Communication communication) {
  return std::ranges::all_of(plan.programs, [&](const ir::Program& program) {
    ir::DiagnosticSink sink;
    return passes::simulate(plan, program, passes::UnitCosts(1, 2, 1, 1), sink, {communication}).has_value();
  });
}

bool round_trips(const Plan& plan) {
  const std::string text = ir::print_plan(plan);
  ir::DiagnosticSink sink;
  const auto parsed = ir::parse_plan(ir::SourceText("round_trip.plan", text), sink);
  return parsed && *parsed == plan && ir::print_plan(*parsed) == text;
}

// Any plan: verified ones come back from their text and run through, deadlocked ones block, and the rest does no harm.
std::string examine(Case& c, const Plan& plan) {
  ir::DiagnosticSink sink;
  const bool ok = ir::verify(plan, sink);
  if (ok == sink.has_errors()) return c.wrong("the verifier's answer and its errors differ", plan, sink);
  const bool at_stage_level = plan.level == ir::Level::Stage;
  const Communication matching = at_stage_level ? Communication::Asynchronous : Communication::Rendezvous;
  if (ok) {
    ++c.tally.verified;
    if (!round_trips(plan)) return c.wrong("a verified plan does not come back from its text", plan, sink);
    if (!runs(plan, matching)) return c.wrong("verified, but the simulator blocks", plan, sink);
    if (!runs(plan, Communication::Asynchronous)) return c.wrong("verified, but cannot run at all", plan, sink);
    return "";
  }
  if (only_code(sink, "V23")) {
    ++c.tally.deadlocks;
    Plan in_order = plan;  // lanes may run through where ranks that do one thing after the other block
    in_order.level = std::min(plan.level, ir::Level::Unit);
    return runs(in_order, matching) ? c.wrong("a deadlock, but the simulator runs through", plan, sink) : "";
  }
  ++c.tally.faults;
  // Without programs that fit the settings nothing can be simulated.
  if (has_code_below(sink, "V05")) return "";
  runs(plan, Communication::Asynchronous);
  if (!at_stage_level) runs(plan, Communication::Rendezvous);
  return "";
}

struct Shape {
  Placement placement;
  int p, chunks, m;
  bool split, pairs;
};

Shape random_shape(Random& random) {
  const auto placement = static_cast<Placement>(below(random, 3));
  Shape shape{placement, 1, 1, 1, false, false};
  shape.p += static_cast<int>(below(random, 5));
  shape.m += static_cast<int>(below(random, 6));
  if (placement == Placement::V) shape.chunks = 2;
  if (placement == Placement::Loop) shape.chunks = 1 + static_cast<int>(below(random, 3));
  if (placement == Placement::Bidirectional) shape.m = 2 * (1 + shape.m / 2);
  if (shape.p == 1) shape.chunks = placement == Placement::V ? 2 : 1;
  shape.split = below(random, 2);
  shape.pairs = !shape.split && below(random, 2);
  return shape;
}

Plan stage_plan(Case& c, const Shape& s) {
  return test::make_plan(s.placement, s.p, s.chunks, s.m,
                         test::random_order(c.number, s.placement, s.p, s.chunks, s.m, s.split, s.pairs));
}

// Empty only where the lowering refuses the plan.
std::optional<Plan> lower(Plan plan, ir::DiagnosticSink& sink) {
  for (ir::Program& program : plan.programs) {
    if (!passes::lower_communication(plan.stages, program, sink)) return std::nullopt;
  }
  plan.level = ir::Level::Communication;
  return plan;
}

// An order that can run: it verifies at both levels, and one damaged action is refused or does no harm.
std::string valid_then_corrupted(Case& c) {
  Plan stage = stage_plan(c, random_shape(c.random));
  ir::DiagnosticSink sink;
  if (!ir::verify(stage, sink)) return c.wrong("an order that runs does not verify", stage, sink);
  if (std::string fault = examine(c, stage); !fault.empty()) return fault;
  auto lowered = lower(stage, sink);
  if (!lowered || !ir::verify(*lowered, sink)) return c.wrong("lowered, but does not verify", stage, sink);
  if (std::string fault = examine(c, *lowered); !fault.empty()) return fault;
  Plan& damaged = below(c.random, 3) ? *lowered : stage;
  for (std::size_t n = 1 + below(c.random, 3); n > 0; --n) ir::testing::corrupt(c.random, damaged.programs[0]);
  return examine(c, damaged);
}

// Every rank shuffles its forwards and backwards; what it does not know is what the others do.
void shuffle_locally(Random& random, std::vector<Action>& actions) {
  const auto depends = [](const Action& later, const Action& first) {
    if (later.stage != first.stage || later.microbatch != first.microbatch) return false;
    return later.kind != ActionKind::Forward;  // backward after forward, weight gradient after input gradient
  };
  const auto movable = [](const Action& a) { return a.microbatch >= 0 && !a.joined(); };
  for (std::size_t n = actions.size() * (1 + below(random, 4)); n > 0; --n) {
    const std::size_t i = below(random, actions.size() - 1);
    if (!movable(actions[i]) || !movable(actions[i + 1]) || depends(actions[i + 1], actions[i])) continue;
    std::swap(actions[i], actions[i + 1]);
  }
}

// At stage level the verifier, the simulator and the lowering agree on which orders contradict themselves.
std::string orders_that_may_contradict(Case& c) {
  Shape shape = random_shape(c.random);
  shape.pairs = false;
  Plan plan = stage_plan(c, shape);
  for (ir::RankProgram& rank : plan.programs[0].ranks) {
    if (below(c.random, 3) == 0) shuffle_locally(c.random, rank.actions);
  }
  if (std::string fault = examine(c, plan); !fault.empty()) return fault;
  ir::DiagnosticSink verifier, lowering;
  const bool ok = ir::verify(plan, verifier);
  if (!ok && !only_code(verifier, "V23")) return "";
  const auto lowered = lower(plan, lowering);
  if (lowered.has_value() != ok) return c.wrong("verifier and lowering differ on a contradiction", plan, verifier);
  return lowered ? examine(c, *lowered) : "";
}

// Receives move up and sends down past other actions, in the order of their channels; neighbours join.
void move_messages(Random& random, std::vector<Action>& actions) {
  const auto same_channel = [](const Action& a, const Action& b) {
    return ir::is_p2p(a.kind) && ir::is_p2p(b.kind) && ir::is_send(a.kind) == ir::is_send(b.kind) && a.peer == b.peer;
  };
  const auto makes = [](const Action& first, const Action& later) {  // first defines what later uses
    return first.stage == later.stage && first.microbatch == later.microbatch;
  };
  for (std::size_t n = actions.size() * below(random, 4); n > 0; --n) {
    const std::size_t i = below(random, actions.size() - 1);
    Action &first = actions[i], &later = actions[i + 1];
    if (first.microbatch < 0 || later.microbatch < 0 || first.joined() || later.joined()) continue;
    if ((i > 0 && actions[i - 1].joined()) || (!ir::is_p2p(first.kind) && !ir::is_p2p(later.kind))) continue;
    if (!same_channel(first, later) && !makes(first, later)) std::swap(first, later);
  }
  for (std::size_t n = below(random, 6); n > 0; --n) {
    const std::size_t i = below(random, actions.size() - 1);
    if (ir::is_p2p(actions[i].kind) && ir::is_p2p(actions[i + 1].kind)) actions[i].flags ^= Action::kJoined;
  }
}

std::string messages_that_may_block(Case& c) {
  Shape shape = random_shape(c.random);
  shape.p = std::max(shape.p, 2);
  ir::DiagnosticSink sink;
  auto plan = lower(stage_plan(c, shape), sink);
  if (!plan) return "an order that runs is not lowered\n" + sink.text();
  const bool alone = below(c.random, 2);  // every half by itself: blocks wherever two ranks send to each other
  for (ir::RankProgram& rank : plan->programs[0].ranks) {
    for (Action& a : rank.actions) {
      if (alone && ir::is_p2p(a.kind)) a.flags &= static_cast<std::uint8_t>(~Action::kJoined);
    }
    if (below(c.random, 2)) move_messages(c.random, rank.actions);
  }
  return examine(c, *plan);
}

ir::testing::PlanShape plan_shape(Random& random) {
  return {.pp = 1 + static_cast<int>(below(random, 4)),
          .microbatches = 1 + static_cast<int>(below(random, 3)),
          .order = static_cast<ir::testing::Order>(below(random, 3)),
          .placement = static_cast<ir::testing::Placement>(below(random, 3)),
          .tied = below(random, 2) == 0,
          .batches = false};
}

// Training and evaluation, tied or not.
std::string corrupted_world(Case& c) {
  const auto shape = plan_shape(c.random);
  Plan plan = below(c.random, 4) ? ir::testing::communication_plan(shape) : ir::testing::stage_plan(shape);
  for (std::size_t n = below(c.random, 4); n > 0; --n) {
    ir::testing::corrupt(c.random, plan.programs[below(c.random, plan.programs.size())]);
  }
  return examine(c, plan);
}

std::string damaged_text(Case& c) {
  std::string text = ir::print_plan(ir::testing::communication_plan(plan_shape(c.random)));
  for (std::size_t n = 1 + below(c.random, 4); n > 0; --n) ir::testing::damage(c.random, text);
  ir::DiagnosticSink sink;
  const auto plan = ir::parse_plan(ir::SourceText("damaged.plan", text), sink);
  if (plan.has_value() == sink.has_errors()) return "the parser's answer and its errors differ\n" + text;
  if (!plan) {
    ++c.tally.unparsed;
    return "";
  }
  if (!round_trips(*plan)) return "a parsed plan does not come back from its text\n" + text;
  return examine(c, *plan);
}

std::string lanes(Case& c) {
  auto shape = plan_shape(c.random);
  shape.microbatches = std::min(shape.microbatches, 2);
  Plan plan = ir::testing::lane_plan(ir::testing::communication_plan(shape));
  for (ir::RankProgram& rank : plan.programs[0].ranks) {
    for (ir::Wait& wait : rank.waits) {
      if (below(c.random, 24) == 0 && wait.count > 1) --wait.count;
    }
    std::erase_if(rank.waits, [&](const ir::Wait&) { return below(c.random, 24) == 0; });
    ir::testing::set_labels(rank);
  }
  ir::DiagnosticSink sink;
  const bool race = ir::testing::has_race(plan, plan.programs[0]);
  if (ir::verify(plan, sink) == race) return c.wrong("races are judged differently", plan, sink);
  if (race) {
    ++c.tally.races;
    return only_code(sink, "V25") ? "" : c.wrong("a race, but other errors", plan, sink);
  }
  for (const ir::Program& program : plan.programs) {
    const std::string blocked = ir::testing::run_lanes(program, c.number);
    if (!blocked.empty()) return c.wrong("verified, but a lane blocks at " + blocked, plan, sink);
  }
  return examine(c, plan);
}

}  // namespace

std::string run_case(std::uint32_t number, Tally& tally) {
  constexpr std::array kCases{valid_then_corrupted, orders_that_may_contradict, messages_that_may_block,
                              messages_that_may_block, corrupted_world, corrupted_world, damaged_text, lanes};
  Case c{number, Random(number), tally};
  return kCases[number % kCases.size()](c);
}

}  // namespace fem::fuzz

// Faults that pipelines of other systems have been reported to have, each as a test of its whole kind: what the
// compiler makes does not have them, and what would have them is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/builder.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "passes/communication.hpp"
#include "passes/pass.hpp"
#include "passes/simulate.hpp"

namespace fem {
namespace {

using ir::Action;
using ir::ActionKind;
using test::Order;
using test::Placement;

struct Named {
  std::string name;
  ir::Plan plan;
};

ir::Plan lowered(ir::Plan plan) {
  ir::DiagnosticSink sink;
  for (ir::Program& program : plan.programs)
    EXPECT_TRUE(passes::lower_communication(plan.stages, program, sink)) << sink.text();
  plan.level = ir::Level::Communication;
  EXPECT_TRUE(ir::verify(plan, sink)) << sink.text();
  return plan;
}

// Schedules of every placement at depths from 2, most at 4 and more; `split` only those with weight gradients apart.
std::vector<Named> plans(bool split = false) {
  std::vector<Named> out;
  const auto add = [&](std::string name, Placement placement, int p, int v, int m, Order order) {
    out.push_back({name + " p=" + std::to_string(p) + " m=" + std::to_string(m),
                   lowered(test::make_plan(placement, p, v, m, std::move(order)))});
  };
  for (const int p : {2, 4, 6}) {
    const int m = 2 * p;
    if (!split) {
      add("gpipe", Placement::Loop, p, 1, m, test::gpipe(p, m));
      add("1f1b", Placement::Loop, p, 1, m, test::one_f_one_b(p, m));
      add("interleaved", Placement::Loop, p, 2, m, test::interleaved(p, m, 2, p));
    }
    add("zb_h1", Placement::Loop, p, 1, m, test::zb_h(p, m, 1));
    add("zb_h2", Placement::Loop, p, 1, m, test::zb_h(p, m, 2));
    add("interleaved_zb", Placement::Loop, p, 2, m, test::interleaved(p, m, 2, p, true));
    add("dualpipe_v", Placement::V, p, 2, m, test::dualpipe_v(p, m));
    add("dualpipe", Placement::Bidirectional, p, 1, m, test::dualpipe(p, m));
  }
  return out;
}

// The codes of all errors.
std::set<std::string> codes(const ir::Plan& plan) {
  ir::DiagnosticSink sink;
  ir::verify(plan, sink);
  std::set<std::string> found;
  for (const ir::Diagnostic& d : sink.all())
    if (d.severity == ir::Severity::Error) found.insert(d.code);
  return found;
}

bool runs(const ir::Plan& plan) {
  ir::DiagnosticSink sink;
  return passes::simulate(plan, plan.programs[0], passes::UnitCosts(), sink).has_value();
}

void move(std::vector<Action>& actions, std::size_t from, std::size_t to) {
  const Action moved = actions[from];
  actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(from));
  actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(to), moved);
}

std::size_t find(const std::vector<Action>& actions, ActionKind kind, int stage) {
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (actions[i].kind == kind && actions[i].stage == stage) return i;
  return actions.size();
}

// A weight gradient that is deferred past the reduction of its stage's gradients would not be in the sum.
TEST(Hazards, NoWeightGradientMayPassTheReduction) {
  int moved = 0;
  for (const Named& named : plans(true)) {
    for (std::size_t r = 0; r < named.plan.programs[0].ranks.size(); ++r) {
      const std::vector<Action>& actions = named.plan.programs[0].ranks[r].actions;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].kind != ActionKind::BackwardWeight) continue;
        ir::Plan late = named.plan;
        move(late.programs[0].ranks[r].actions, i, find(actions, ActionKind::AllReduce, actions[i].stage));
        std::set<std::string> expected{"V18"};
        // With two directions it passes the sum of the replicas, too.
        if (find(actions, ActionKind::ReduceReplicaGrad, actions[i].stage) < actions.size()) expected.insert("V26");
        EXPECT_EQ(codes(late), expected) << named.name << " rank " << r << " action " << i;
        ++moved;
      }
    }
  }
  EXPECT_GT(moved, 200);
}

// Past the sum of the two replicas: the other direction's replica would not see it.
TEST(Hazards, NoGradientMayPassTheSumOfTheReplicas) {
  int moved = 0;
  for (const int p : {2, 4}) {
    const ir::Plan plan = lowered(test::make_plan(Placement::Bidirectional, p, 1, 2 * p, test::dualpipe(p, 2 * p)));
    for (std::size_t r = 0; r < plan.programs[0].ranks.size(); ++r) {
      const std::vector<Action>& actions = plan.programs[0].ranks[r].actions;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].kind != ActionKind::BackwardWeight) continue;
        ir::Plan late = plan;
        move(late.programs[0].ranks[r].actions, i, find(actions, ActionKind::ReduceReplicaGrad, actions[i].stage));
        EXPECT_EQ(codes(late), std::set<std::string>{"V26"}) << "p=" << p << " rank " << r << " action " << i;
        ++moved;
      }
      ir::Plan without = plan;
      std::erase_if(without.programs[0].ranks[r].actions,
                    [](const Action& a) { return a.kind == ActionKind::ReduceReplicaGrad; });
      EXPECT_EQ(codes(without), std::set<std::string>{"V26"}) << "p=" << p << " rank " << r;
    }
  }
  EXPECT_GT(moved, 10);
}

// The embedding's and the head's, past the sum of the tied copies: each copy would see a part of it.
TEST(Hazards, NoTiedWeightGradientMayPassTheTiedReduction) {
  for (const int p : {2, 4}) {
    ir::Plan plan = test::make_plan(Placement::Loop, p, 1, 2 * p, test::zb_h(p, 2 * p, 1));
    plan.settings.model.tied = true;
    for (const int s : {0, p - 1}) {
      auto& actions = plan.programs[0].ranks[static_cast<std::size_t>(s)].actions;
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(find(actions, ActionKind::AllReduce, s)),
                     ir::reduce_tied_grad(s));
    }
    plan = lowered(plan);
    for (const int s : {0, p - 1}) {
      const std::vector<Action>& actions = plan.programs[0].ranks[static_cast<std::size_t>(s)].actions;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].kind != ActionKind::BackwardWeight) continue;
        ir::Plan late = plan;
        move(late.programs[0].ranks[static_cast<std::size_t>(s)].actions, i,
             find(actions, ActionKind::ReduceTiedGrad, s));
        EXPECT_EQ(codes(late), std::set<std::string>{"V16"}) << "p=" << p << " rank " << s << " action " << i;
      }
    }
  }
}

// Reductions in shards (ZeRO-2 and 3) under a pipeline: the same proofs, in the place of the whole ones.
TEST(Hazards, PipelinesReduceInShardsToo) {
  for (const Named& named : plans()) {
    for (const int zero : {1, 2, 3}) {
      ir::Plan plan = named.plan;
      plan.settings.parallel.zero = zero;
      ir::DiagnosticSink sink;
      ASSERT_TRUE(passes::run_units(plan, passes::PassOptions({}), sink)) << sink.text();
      EXPECT_EQ(codes(plan), std::set<std::string>{}) << named.name << " zero=" << zero;
      EXPECT_TRUE(runs(plan)) << named.name;
    }
  }
}

// Shapes are settings of the plan and the order of messages is proved: nothing is negotiated at run time, so there is
// no exchange of shapes that could block. All actions between pipeline ranks are the four halves and collectives; two
// receives of one channel in another order than the sends are refused.
TEST(Hazards, TheOrderOfMessagesIsProvedAtEveryDepth) {
  int swapped = 0;
  for (const Named& named : plans()) {
    for (std::size_t r = 0; r < named.plan.programs[0].ranks.size(); ++r) {
      const std::vector<Action>& actions = named.plan.programs[0].ranks[r].actions;
      std::set<int> peers;  // of which the first two receives have been swapped
      for (std::size_t i = 0; i < actions.size(); ++i) {
        if (!ir::is_p2p(actions[i].kind) || ir::is_send(actions[i].kind)) continue;
        for (std::size_t k = i + 1; k < actions.size() && !peers.contains(actions[i].peer); ++k) {
          if (actions[k].kind != actions[i].kind || actions[k].peer != actions[i].peer) continue;
          peers.insert(actions[i].peer);
          ir::Plan wrong = named.plan;
          auto& changed = wrong.programs[0].ranks[r].actions;
          std::swap(changed[i].microbatch, changed[k].microbatch);
          std::swap(changed[i].stage, changed[k].stage);
          EXPECT_FALSE(codes(wrong).empty()) << named.name << " rank " << r << " action " << i;
          ++swapped;
        }
      }
    }
  }
  EXPECT_GT(swapped, 100);
}

// Who speaks with whom can be read off the stage lines: every pair's communicator can be made before the first action.
TEST(Hazards, AllPairsAreKnownFromTheStages) {
  for (const Named& named : plans()) {
    std::set<std::pair<int, int>> neighbours, used;
    for (const ir::Stage& stage : named.plan.stages) {
      if (stage.next < 0) continue;
      const int here = stage.pp, there = named.plan.stages[static_cast<std::size_t>(stage.next)].pp;
      if (here != there) neighbours.insert({std::min(here, there), std::max(here, there)});
    }
    const auto& ranks = named.plan.programs[0].ranks;
    for (int r = 0; r < static_cast<int>(ranks.size()); ++r)
      for (const Action& a : ranks[static_cast<std::size_t>(r)].actions)
        if (ir::is_p2p(a.kind)) used.insert({std::min<int>(r, a.peer), std::max<int>(r, a.peer)});
    EXPECT_EQ(used, neighbours) << named.name;

    ir::Plan wrong = named.plan;  // another rank than the neighbour
    auto& actions = wrong.programs[0].ranks[0].actions;
    const auto send = std::ranges::find_if(actions, [](const Action& a) { return ir::is_p2p(a.kind); });
    send->peer = static_cast<std::int16_t>((send->peer + 1) % static_cast<int>(ranks.size()));
    EXPECT_TRUE(codes(wrong).contains("V07")) << named.name;
  }
}

// A receive that stands ahead of unrelated compute holds up its lane, and moving it elsewhere may block: each receive
// is moved up by every distance, and what the verifier lets pass runs through, what it calls a deadlock does not.
TEST(Hazards, ReceivesAheadOfUnrelatedComputeAreProvedOrRefused) {
  int proved = 0, deadlocks = 0;
  for (const Named& named : plans()) {
    if (named.plan.programs[0].ranks.size() > 4) continue;
    for (std::size_t r = 0; r < named.plan.programs[0].ranks.size(); ++r) {
      const std::vector<Action>& actions = named.plan.programs[0].ranks[r].actions;
      for (std::size_t i = 1; i < actions.size(); ++i) {
        if (!ir::is_p2p(actions[i].kind) || ir::is_send(actions[i].kind)) continue;
        if (actions[i].joined() || actions[i - 1].joined()) continue;
        for (std::size_t to = i; to-- > 0 && actions[to].microbatch >= 0;) {
          if (to > 0 && actions[to - 1].joined()) continue;
          ir::Plan early = named.plan;
          move(early.programs[0].ranks[r].actions, i, to);
          const std::set<std::string> found = codes(early);
          SCOPED_TRACE(named.name + " rank " + std::to_string(r) + " receive " + std::to_string(i) + " to " +
                       std::to_string(to));
          const bool deadlock = found == std::set<std::string>{"V23"};
          if (found.empty() || deadlock) {
            EXPECT_EQ(runs(early), found.empty());
          }
          proved += found.empty();
          deadlocks += deadlock;
        }
      }
    }
  }
  EXPECT_GT(proved, 100);
  EXPECT_GT(deadlocks, 50);
}

// The lowering's own choice: a receive that no batch needs stands directly before its consumer.
TEST(Hazards, ALoneReceiveStandsBeforeItsConsumer) {
  for (const Named& named : plans()) {
    if (named.plan.stages.size() != named.plan.programs[0].ranks.size()) continue;  // one stage a rank
    for (const ir::RankProgram& rank : named.plan.programs[0].ranks) {
      for (std::size_t i = 1; i + 1 < rank.actions.size(); ++i) {
        const Action& a = rank.actions[i];
        if (!ir::is_p2p(a.kind) || ir::is_send(a.kind) || a.joined() || rank.actions[i - 1].joined()) continue;
        EXPECT_EQ(rank.actions[i + 1].microbatch, a.microbatch) << named.name << " action " << i;
      }
    }
  }
}

}  // namespace
}  // namespace fem

// Lanes, arena, prefetch and receives ahead: every wait is needed, no two live blocks share bytes, gathers run ahead.
#include <algorithm>
#include <random>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/memory_blocks.hpp"
#include "ir/text.hpp"
#include "ir/unit_sizes.hpp"
#include "ir/verify.hpp"
#include "orders.hpp"
#include "passes/arena_layout.hpp"
#include "run_passes.hpp"
#include "tests/ir/lane_programs.hpp"

namespace fem {
namespace {

using ir::Action;
using ir::ActionKind;
using ir::Lane;
using test::Placement;
using test::run_passes;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  ir::Plan plan;  // of level lane, with an arena
};

ir::Plan sized(ir::Plan plan, std::int64_t zero, const char* reduce) {
  plan.settings.parallel.dp = 2;
  plan.settings.batch.global *= 2;
  plan.settings.parallel.zero = zero;
  plan.settings.parallel.reduce = reduce;
  return plan;
}

// A few orders in several combinations of ZeRO, reduction, recompute and slack.
std::vector<Case> cases() {
  const std::vector<std::pair<std::string, ir::Plan>> orders{
      {"1f1b", test::make_plan(Placement::Loop, 2, 1, 4, test::one_f_one_b(2, 4))},
      {"interleaved", test::make_plan(Placement::Loop, 2, 2, 4, test::interleaved(2, 4, 2, 2))},
      {"zb_h2", test::make_plan(Placement::Loop, 3, 1, 6, test::zb_h(3, 6, 2))},
      {"random v", test::make_plan(Placement::V, 2, 2, 4, test::random_order(7, Placement::V, 2, 2, 4, true, true))},
      {"forwards", test::make_plan(Placement::Loop, 2, 1, 4, test::forwards_only(test::gpipe(2, 4)), true)},
  };
  std::vector<Case> all;
  for (const auto& [name, plan] : orders) {
    for (const auto& [zero, reduce, passes] :
         {std::tuple{0, "step", "receive_ahead,lanes,arena"}, std::tuple{1, "step", "recompute,lanes,arena{slack=0}"},
          std::tuple{3, "step", "prefetch,lanes,arena"},
          std::tuple{3, "microbatch", "recompute{mode=selective},prefetch{distance=2},receive_ahead,lanes,arena"}}) {
      all.push_back({name + " zero=" + std::to_string(zero) + " " + reduce + " " + passes,
                     run_passes(std::string("communication,units,") + passes, sized(plan, zero, reduce))});
    }
  }
  // Gathers that stay, that begin with the program, reductions in groups and in buckets.
  for (const auto& [zero, gather, reduce, passes] :
       {std::tuple{1, "forward", "bucket", "receive_ahead,lanes,arena"},
        std::tuple{3, "update", "bucket", "recompute,prefetch{distance=2},lanes,arena"},
        std::tuple{3, "update", "microbatch", "prefetch,receive_ahead,lanes,arena"}}) {
    ir::Plan plan = sized(orders[1].second, zero, reduce);
    plan.settings.parallel.dp = 4;
    plan.settings.batch.global *= 2;
    plan.settings.parallel.shard = 2;
    plan.settings.parallel.gather = gather;
    plan.settings.parallel.bucket = "8KiB";
    plan.settings.overlap.lanes = true;
    plan.settings.parallel.resident = std::to_string(3 * ir::unit_sizes(plan.settings)[0].params);
    all.push_back({"shard groups zero=" + std::to_string(zero) + " " + reduce + " " + passes,
                   run_passes(std::string("communication,units,") + passes, plan)});
  }
  return all;
}

// No wait can be left out: the verifier names each one that is missing, as a race over a resource or over bytes.
TEST(Lanes, EveryWaitIsNeededAndNamed) {
  int waits = 0, over_bytes = 0;
  for (const Case& c : cases()) {
    for (std::size_t r = 0; r < c.plan.programs[0].ranks.size(); ++r) {
      for (std::size_t w = 0; w < c.plan.programs[0].ranks[r].waits.size(); ++w, ++waits) {
        ir::Plan changed = c.plan;
        ir::RankProgram& rank = changed.programs[0].ranks[r];
        const ir::Wait wait = rank.waits[w];
        rank.waits.erase(rank.waits.begin() + static_cast<std::ptrdiff_t>(w));
        ir::testing::set_labels(rank);
        ir::DiagnosticSink sink;
        ASSERT_FALSE(ir::verify(changed, sink)) << c.name << " wait " << w << " of rank " << r;
        for (const ir::Diagnostic& d : sink.all()) {
          if (d.severity != ir::Severity::Error) continue;
          EXPECT_TRUE(d.code == "V25" || d.code == "V29") << d.code << " " << d.message;
          over_bytes += d.code == "V29";
        }
        EXPECT_THAT(sink.text(), HasSubstr("'wait " + std::string(ir::name(wait.lane)) + ">=" +
                                           std::to_string(wait.count) + "'"));
      }
    }
  }
  EXPECT_GT(waits, 500);
  EXPECT_GT(over_bytes, 20);
}

// All pairs of blocks with a common byte: one is dead, to the last lane, before the other begins.
TEST(Arena, BlocksShareBytesOnlyWhereTheWaitsOrderThem) {
  std::size_t shared = 0;
  for (const Case& c : cases()) {
    const ir::Program& program = c.plan.programs[0];
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      const ir::RankProgram& rank = program.ranks[r];
      const auto before = ir::testing::finished_before(rank);
      std::vector<std::size_t> batches;
      for (std::size_t i = 0; i < rank.actions.size(); i += ir::batch_size(rank.actions, i)) batches.push_back(i);
      std::array<std::vector<std::size_t>, ir::kLanes> lanes;
      for (std::size_t b = 0; b < batches.size(); ++b)
        lanes[ir::lane_index(rank.actions[batches[b]].lane)].push_back(b);
      const ir::RankBlocks all = ir::memory_blocks(c.plan, program, r);
      ASSERT_EQ(all.blocks.size(), rank.offsets.size());
      for (std::size_t later = 0; later < all.blocks.size(); ++later) {
        const std::int64_t begin = rank.offsets[later].offset, end = begin + all.blocks[later].bytes;
        EXPECT_LE(end, rank.arena);
        const auto birth = static_cast<std::size_t>(
            std::ranges::find(batches, all.birth_action(all.blocks[later])) - batches.begin());
        for (std::size_t earlier = 0; earlier < later; ++earlier) {
          const std::int64_t from = rank.offsets[earlier].offset;
          if (from >= end || from + all.blocks[earlier].bytes <= begin) continue;
          ++shared;
          for (std::size_t l = 0; l < lanes.size(); ++l) {
            const std::uint32_t last = all.blocks[earlier].uses[l];
            EXPECT_TRUE(last == 0 || before[birth][lanes[l][last - 1]])
                << c.name << ", rank " << r << ": blocks " << earlier << " and " << later;
          }
        }
      }
    }
  }
  EXPECT_GT(shared, 1000u);
}

TEST(Arena, TextHoldsOffsetsAndWaits) {
  for (const Case& c : cases()) {
    const std::string text = ir::print_plan(c.plan);
    ir::DiagnosticSink sink;
    const auto read = ir::parse_plan(ir::SourceText("plan", text), sink);
    ASSERT_TRUE(read) << sink.text();
    EXPECT_EQ(*read, c.plan);
    EXPECT_EQ(ir::print_plan(*read), text);
  }
}

TEST(Arena, VerifierRefusesWrongOffsets) {
  const ir::Plan plan = cases()[0].plan;
  const auto errors = [&](auto change) {
    ir::Plan wrong = plan;
    change(wrong.programs[0].ranks[0]);
    ir::DiagnosticSink sink;
    EXPECT_FALSE(ir::verify(wrong, sink));
    return sink.text();
  };
  EXPECT_THAT(errors([](ir::RankProgram& r) { r.offsets[3].offset += 8; }), HasSubstr("not a multiple of 64"));
  EXPECT_THAT(errors([](ir::RankProgram& r) { r.offsets[3].offset = r.arena; }), HasSubstr("ends outside the arena"));
  EXPECT_THAT(errors([](ir::RankProgram& r) { r.offsets.pop_back(); }), HasSubstr("each has one offset after 'at'"));
  EXPECT_THAT(errors([](ir::RankProgram& r) { r.arena = 0; }), HasSubstr("arena=BYTES"));
  // A block over one that is alive.
  EXPECT_THAT(errors([](ir::RankProgram& r) { r.offsets[2].offset = r.offsets[1].offset; }), HasSubstr("[V29]"));
  ir::Plan unit = plan;
  unit.level = ir::Level::Unit;
  for (ir::RankProgram& rank : unit.programs[0].ranks) {
    rank.waits.clear();
    ir::testing::set_labels(rank);
  }
  ir::DiagnosticSink sink;
  EXPECT_FALSE(ir::verify(unit, sink));
  EXPECT_THAT(sink.text(), HasSubstr("an arena stands at level lane only"));
}

// As little is recomputed as the arena's size allows, and the plan that comes out keeps the limit.
TEST(Recompute, FitsTheArenaOfAPlanWithLanes) {
  const ir::Plan order = sized(test::make_plan(Placement::Loop, 2, 8, 4, test::interleaved(2, 4, 8, 2)), 3, "step");
  const auto peak = [](const ir::Plan& plan) {
    std::int64_t most = 0;
    for (std::size_t r = 0; r < 2; ++r)
      most = std::max(most, ir::memory_peak(plan, plan.programs[0], r).bytes());
    return most;
  };
  const auto recomputed = [](const ir::Plan& plan) {
    std::ptrdiff_t n = 0;
    for (const ir::RankProgram& rank : plan.programs[0].ranks)
      n += std::ranges::count(rank.actions, ActionKind::Recompute, &Action::kind);
    return n;
  };
  const std::string after = ",prefetch,receive_ahead,lanes,arena";
  ir::Plan lanes = order;
  lanes.settings.overlap.lanes = true;
  const std::int64_t most = peak(run_passes("communication,units" + after, lanes));
  const std::int64_t least = peak(run_passes("communication,units,recompute" + after, lanes));
  ASSERT_LT(least, most);
  for (const std::int64_t limit : {most, (most + least) / 2, least}) {
    lanes.settings.memory.limit = std::to_string(limit);
    const ir::Plan plan = run_passes("communication,units,recompute{mode=fit}" + after, lanes);
    EXPECT_LE(peak(plan), limit);
    EXPECT_EQ(recomputed(plan) == 0, limit == most);
  }
}

TEST(ArenaLayout, HoldsWhatIsAliveAndLittleMore) {
  std::mt19937 random(3);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int n = 0; n < 200; ++n) {
    std::vector<passes::ArenaInterval> intervals;
    const std::uint32_t ticks = 1 + below(60);
    for (std::uint32_t i = below(80); i-- > 0;) {
      const std::uint32_t birth = below(ticks);
      intervals.push_back({birth, birth + below(20), 64 * std::int64_t{1 + below(9)}});
    }
    const passes::ArenaLayout layout = passes::lay_out(intervals);
    const std::int64_t least = passes::most_alive(intervals);
    EXPECT_GE(layout.bytes, least);
    EXPECT_LE(layout.bytes, 2 * least);
    for (std::size_t a = 0; a < intervals.size(); ++a) {
      EXPECT_GE(layout.offsets[a], 0);
      EXPECT_LE(layout.offsets[a] + intervals[a].bytes, layout.bytes);
      for (std::size_t b = 0; b < a; ++b) {
        const bool together = intervals[a].birth <= intervals[b].death && intervals[b].birth <= intervals[a].death;
        const bool apart = layout.offsets[a] + intervals[a].bytes <= layout.offsets[b] ||
                           layout.offsets[b] + intervals[b].bytes <= layout.offsets[a];
        EXPECT_TRUE(!together || apart);
      }
    }
  }
}

// Of one size there are never gaps: the arena is what is alive.
TEST(ArenaLayout, IsExactForBlocksOfOneSize) {
  std::mt19937 random(5);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::vector<passes::ArenaInterval> intervals;
  for (int i = 0; i < 5000; ++i) {  // more than the quadratic heuristic takes
    const std::uint32_t birth = below(3000);
    intervals.push_back({birth, birth + below(50), 128});
  }
  EXPECT_EQ(passes::lay_out(intervals).bytes, passes::most_alive(intervals));
}

std::string unit_text(const ir::Plan& plan, std::size_t rank) {
  std::string out;
  for (const Action& a : plan.programs[0].ranks[rank].actions) out += ir::action_text({&a, 1}) + "\n";
  return out;
}

// Bytes of gathered parameters, at their highest.
std::int64_t most_gathered(const ir::Plan& plan, std::size_t rank, int& units) {
  const ir::UnitSizeTable sizes = ir::unit_sizes(plan.settings);
  std::multiset<int> there;
  std::int64_t now = 0, most = 0;
  units = 0;
  for (const Action& a : plan.programs[0].ranks[rank].actions) {
    if (a.kind != ActionKind::Unshard && a.kind != ActionKind::Reshard) continue;
    const std::int64_t bytes = ir::sizes_of(sizes, plan.settings, a.unit).params;
    now += a.kind == ActionKind::Unshard ? bytes : -bytes;
    a.kind == ActionKind::Unshard ? void(there.insert(a.unit)) : void(there.erase(there.find(a.unit)));
    most = std::max(most, now);
    units = std::max(units, static_cast<int>(there.size()));
  }
  return most;
}

TEST(Prefetch, GathersWhileTheUnitBeforeComputes) {
  ir::Plan plan = sized(test::make_plan(Placement::Loop, 1, 1, 1, test::gpipe(1, 1)), 3, "step");
  const std::string program = unit_text(run_passes("communication,units,prefetch", plan), 0);
  EXPECT_THAT(program, HasSubstr("Unshard s0 u0 over dp_cp\nUnshard s0 u1 over dp_cp\nForward s0 m0 u0\n"));
}

// Units that stay are not moved; the others keep their distance, and none is gathered while it is there.
TEST(Prefetch, GoesRoundResidents) {
  const ir::Plan order = sized(test::make_plan(Placement::Loop, 2, 4, 4, test::interleaved(2, 4, 4, 2)), 3, "step");
  const std::int64_t block = ir::unit_sizes(order.settings)[static_cast<std::size_t>(ir::UnitKind::block)].params;
  for (const int distance : {1, 3}) {
    for (const int kept : {1, 2, 3}) {
      ir::Plan plan = order;
      plan.settings.overlap.lanes = true;
      plan.settings.parallel.resident = std::to_string(kept * block);
      plan = run_passes("communication,units,prefetch{distance=" + std::to_string(distance) + "},lanes,arena", plan);
      for (std::size_t r = 0; r < 2; ++r) {
        int units = 0;
        most_gathered(plan, r, units);
        EXPECT_LE(units, distance + 1 + kept + 1);  // the embedding or the head may stay beside the blocks
      }
      // The budget of what is gathered ahead counts what does not stay.
      plan = order;
      plan.settings.overlap.lanes = true;
      plan.settings.parallel.resident = std::to_string(kept * block);
      plan = run_passes("communication,units,prefetch{distance=9,budget=" + std::to_string(2 * block) + "}", plan);
      for (std::size_t r = 0; r < 2; ++r) {
        int units = 0;
        EXPECT_LE(most_gathered(plan, r, units), (kept + 2) * block);
        EXPECT_GT(units, kept + 1);
      }
    }
  }
}

TEST(Prefetch, KeepsDistanceAndBudget) {
  const ir::Plan order = sized(test::make_plan(Placement::Loop, 2, 4, 4, test::interleaved(2, 4, 4, 2)), 3, "step");
  for (const int distance : {0, 1, 2, 5}) {
    const ir::Plan plan = run_passes("communication,units,prefetch{distance=" + std::to_string(distance) + "}", order);
    for (std::size_t r = 0; r < 2; ++r) {
      int units = 0;
      most_gathered(plan, r, units);
      EXPECT_LE(units, distance + 1);
      EXPECT_TRUE(distance != 1 || units == 2);
    }
  }
  const ir::UnitSizeTable sizes = ir::unit_sizes(order.settings);
  std::int64_t largest = 0;
  for (const ir::UnitSizes& size : sizes) largest = std::max(largest, size.params);
  const std::int64_t budget = largest + sizes[static_cast<std::size_t>(ir::UnitKind::block)].params;
  const std::string options = "{distance=5,budget=" + std::to_string(budget) + "}";
  const ir::Plan plan = run_passes("communication,units,prefetch" + options, order);
  for (std::size_t r = 0; r < 2; ++r) {
    int units = 0;
    EXPECT_LE(most_gathered(plan, r, units), budget);
    EXPECT_GE(units, 2);
  }
}

// What crosses ranks keeps its order on each rank: that is the proof that nothing can block. Here the receive of the
// last stage moves before the computation of the microbatch before.
TEST(ReceiveAhead, MovesReceivesAndKeepsTheirOrder) {
  const ir::Plan order = test::make_plan(Placement::Loop, 2, 1, 4, test::gpipe(2, 4));
  const ir::Plan before = run_passes("communication,units", order);
  const ir::Plan after = run_passes("communication,units,receive_ahead{distance=1}", order);
  int moved = 0;
  for (std::size_t r = 0; r < 2; ++r) {
    const auto messages = [&](const ir::Plan& plan) {
      std::vector<std::string> out;
      for (const Action& a : plan.programs[0].ranks[r].actions) {
        if (ir::is_p2p(a.kind) || a.stage < 0) out.push_back(ir::action_text({&a, 1}));
      }
      return out;
    };
    EXPECT_EQ(messages(before), messages(after));
    moved += before.programs[0].ranks[r].actions != after.programs[0].ranks[r].actions;
  }
  EXPECT_GT(moved, 0);
  const std::string last = unit_text(after, 1);
  EXPECT_LT(last.find("RecvForward s1 m1 from 0"), last.find("Forward s1 m0 u" + std::to_string(
                                                       ir::unit_count(after.settings) - 1)));
}

}  // namespace
}  // namespace fem

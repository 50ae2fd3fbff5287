// The action table, the groups, the unit table.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/builder.hpp"
#include "ir/plan.hpp"
#include "ir/units.hpp"

namespace fem::ir::testing {
namespace {

TEST(ActionTable, NamesAreDistinctAndDocumented) {
  std::set<std::string_view> names;
  for (int k = 0; k < kActionKinds; ++k) {
    const ActionInfo& row = info(static_cast<ActionKind>(k));
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_GT(row.doc.size(), 10u) << row.name;
  }
  EXPECT_EQ(name(ActionKind::SendForward), "SendForward");
  EXPECT_EQ(name(ActionKind::OptimizerStep), "OptimizerStep");
}

// A batch is spelled by its halves' names written together; that must have one reading only.
TEST(ActionTable, NoTwoPairsOfNamesSpellTheSame) {
  std::set<std::string> pairs;
  for (int a = 0; a < kActionKinds; ++a) {
    EXPECT_TRUE(pairs.insert(std::string(name(static_cast<ActionKind>(a)))).second);
    for (int b = 0; b < kActionKinds; ++b) {
      const std::string first(name(static_cast<ActionKind>(a)));
      const std::string pair = first + std::string(name(static_cast<ActionKind>(b)));
      EXPECT_TRUE(pairs.insert(pair).second) << pair;
    }
  }
}

TEST(ActionTable, WhatIsKilledIsReadAndWhatIsReadIsWrittenSomewhere) {
  for (int r = 0; r < kResourceKinds; ++r) {
    const auto kind = static_cast<ResourceKind>(r);
    const bool held_from_the_start = kind == ResourceKind::Shard || kind == ResourceKind::Optimizer ||
                                     kind == ResourceKind::HostOptimizer;
    bool written = held_from_the_start;
    bool read = false;
    for (int k = 0; k < kActionKinds; ++k) {
      const ActionInfo& row = info(static_cast<ActionKind>(k));
      // Another name for blocks of Saved.
      written = written || row.writes.has(kind == ResourceKind::SavedRest ? ResourceKind::Saved : kind);
      read = read || row.reads.has(kind);
      EXPECT_TRUE(!row.kills.has(kind) || row.reads.has(kind)) << row.name;
    }
    EXPECT_TRUE(written && read) << r;
  }
}

TEST(ActionTable, PredicatesAgreeWithTheRows) {
  for (int k = 0; k < kActionKinds; ++k) {
    const auto kind = static_cast<ActionKind>(k);
    EXPECT_EQ(is_p2p(kind), info(kind).has(operand::kPeer)) << name(kind);
    EXPECT_EQ(is_p2p(kind), info(kind).lane == Lane::P2p) << name(kind);
    EXPECT_EQ(info(kind).has(operand::kG), info(kind).lane == Lane::Collective) << name(kind);
    EXPECT_TRUE(!is_send(kind) || is_p2p(kind)) << name(kind);
  }
}

TEST(ActionTable, LanesAndGroupsHaveNames) {
  EXPECT_EQ(name(Lane::Compute), "compute");
  EXPECT_EQ(name(Lane::P2p), "p2p");
  EXPECT_EQ(name(Lane::Collective), "collective");
  EXPECT_EQ(name(Lane::Copy), "copy");
  EXPECT_EQ(name(Group::dp_cp), "dp_cp");
  EXPECT_EQ(name(Group::none), "none");
  EXPECT_EQ(doc(Group::world), "all ranks");
  EXPECT_EQ(kGroups, 11);
}

TEST(Builder, FillsExactlyTheOperandsOfTheRow) {
  const Action actions[] = {recv_forward(1, 2, 0), send_forward(0, 2, 1), recv_backward(0, 2, 1),
                            send_backward(1, 2, 0), forward(0, 2), backward(0, 2), backward_input(0, 2),
                            backward_weight(0, 2), zero_grad(0), reduce_loss(), reduce_replica_grad(0),
                            reduce_tied_grad(0), all_reduce(0), reduce_scatter(0), grad_norm(), clip_grad(0),
                            optimizer_step(0)};
  for (const Action& a : actions) {
    const ActionInfo& row = info(a.kind);
    EXPECT_EQ(a.stage >= 0, row.has(operand::kS)) << row.name;
    EXPECT_EQ(a.microbatch == 2, row.has(operand::kM)) << row.name;
    EXPECT_EQ(a.peer >= 0, row.has(operand::kPeer)) << row.name;
    EXPECT_EQ(a.group != Group::none, row.has(operand::kG)) << row.name;
    EXPECT_EQ(a.lane, row.lane) << row.name;
    EXPECT_EQ(a.if_finite(), a.kind == ActionKind::OptimizerStep) << row.name;
  }
}

TEST(Builder, JoinsAllButTheLastOfABatch) {
  std::vector<Action> actions{forward(0, 0)};
  append_batch(actions, {send_forward(0, 0, 1), recv_backward(0, 1, 1), recv_forward(0, 2, 1)});
  append_batch(actions, {});
  ASSERT_EQ(actions.size(), 4u);
  EXPECT_EQ(batch_size(actions, 0), 1u);
  EXPECT_EQ(batch_size(actions, 1), 3u);
  EXPECT_EQ(batch_size(actions, 3), 1u);
  actions.back().flags |= Action::kJoined;  // joined to nothing: the batch ends with the program
  EXPECT_EQ(batch_size(actions, 1), 3u);
}

Settings small_llama() {
  Settings s;
  s.model.layers = 2;
  s.model.hidden = 8;
  s.model.intermediate = 24;
  s.model.heads = 4;
  s.model.kv_heads = 2;
  s.model.vocab = 100;
  s.batch.micro = 3;
  s.batch.seq_len = 5;
  return s;
}

TEST(Units, DimensionsResolveWhatIsLeftOut) {
  Settings s = small_llama();
  EXPECT_EQ(unit_dims(s).head_dim, 2);
  EXPECT_EQ(unit_dims(s).kv_heads, 2);
  EXPECT_EQ(unit_dims(s).tokens, 15);
  s.model.kv_heads = 0;
  s.model.head_dim = 16;
  EXPECT_EQ(unit_dims(s).kv_heads, 4);
  EXPECT_EQ(unit_dims(s).head_dim, 16);
}

// Counted by hand from the layers of a Llama: per block two norms, q, k, v, o and the three SwiGLU matrices.
TEST(Units, CountsTheParametersOfALlama) {
  Settings s = small_llama();
  const std::int64_t block = 2 * 8 + 8 * 8 + 2 * (2 * 2 * 8) + 8 * 8 + 3 * 24 * 8;
  EXPECT_EQ(parameter_count(s), 100 * 8 + 2 * block + 8 + 100 * 8);
  s.model.tied = true;
  EXPECT_EQ(parameter_count(s), 100 * 8 + 2 * block + 8);
}

// Llama 2 7B and Llama 3 8B as their authors publish them: 6,738,415,616 and 8,030,261,248 parameters.
TEST(Units, CountsTheParametersOfPublishedModels) {
  Settings s;
  s.model.layers = 32;
  s.model.hidden = 4096;
  s.model.intermediate = 11008;
  s.model.heads = 32;
  s.model.vocab = 32000;
  EXPECT_EQ(parameter_count(s), 6738415616);
  s.model.intermediate = 14336;
  s.model.kv_heads = 8;
  s.model.vocab = 128256;
  EXPECT_EQ(parameter_count(s), 8030261248);
}

TEST(Units, TheModelIsAListOfUnits) {
  const Settings s = small_llama();
  EXPECT_EQ(unit_count(s), 4);
  EXPECT_EQ(unit_kind(s, 0), UnitKind::embedding);
  EXPECT_EQ(unit_kind(s, 1), UnitKind::block);
  EXPECT_EQ(unit_kind(s, 2), UnitKind::block);
  EXPECT_EQ(unit_kind(s, 3), UnitKind::head);
  EXPECT_EQ(unit_layer(2), 1);
  EXPECT_EQ(name(UnitKind::block), "block");
  EXPECT_EQ(param_hf_name(info(UnitKind::block).params[1], 12), "model.layers.12.self_attn.q_proj.weight");
  EXPECT_EQ(param_hf_name(info(UnitKind::head).params[0], 0), "model.norm.weight");
}

TEST(Units, TablesNameEachTensorOnce) {
  const UnitDims d = unit_dims(small_llama());
  for (int k = 0; k < kUnitKinds; ++k) {
    const UnitInfo& unit = info(static_cast<UnitKind>(k));
    std::set<std::string_view> params, saved, work;
    for (const ParamInfo& p : unit.params) {
      EXPECT_TRUE(params.insert(p.name).second) << p.name;
      EXPECT_GT(p.elements(d), 0) << p.name;
    }
    for (const BufferInfo& b : unit.saved) {
      EXPECT_TRUE(saved.insert(b.name).second) << b.name;
      EXPECT_GT(b.elements(d), 0) << b.name;
    }
    for (const BufferInfo& b : unit.work) {
      EXPECT_TRUE(work.insert(b.name).second) << b.name;
      EXPECT_GT(b.elements(d), 0) << b.name;
    }
    EXPECT_FALSE(params.empty());
    EXPECT_FALSE(saved.empty()) << unit.name;
    EXPECT_FALSE(work.empty()) << unit.name;
  }
}

// A matrix product of t tokens with an r x c matrix takes 2 t r c operations, once forward and twice backward.
TEST(Units, ArithmeticFollowsFromTheMatrices) {
  const UnitDims d = unit_dims(small_llama());
  for (const UnitKind kind : {UnitKind::block, UnitKind::head}) {
    std::int64_t matrices = 0;
    for (const ParamInfo& p : info(kind).params) {
      if (p.cols(d) > 0) matrices += p.elements(d);
    }
    EXPECT_EQ(info(kind).flops_backward_weight(d), 2 * d.tokens * matrices) << name(kind);
    EXPECT_GE(info(kind).flops_forward(d), 2 * d.tokens * matrices) << name(kind);
    EXPECT_GE(info(kind).flops_backward_input(d), info(kind).flops_forward(d)) << name(kind);
  }
  // Recomputing everything leaves the last product out; the cheap slots leave q, k, v and o out besides.
  const UnitInfo& block = info(UnitKind::block);
  EXPECT_EQ(block.flops_forward(d) - block.flops_again(d), 2 * d.tokens * d.hidden * d.intermediate);
  EXPECT_EQ(block.flops_again(d) - block.flops_cheap(d),
            2 * d.tokens * d.hidden * (2 * d.heads + 2 * d.kv_heads) * d.head_dim);
  EXPECT_EQ(info(UnitKind::head).flops_again(d), info(UnitKind::head).flops_forward(d));
}

// Each tensor at an aligned offset behind the one before it, none beyond the end of the block; what lies in the memory
// of another fits there.
TEST(Units, TensorsLieInTheirBlocksOneBehindTheOther) {
  const UnitDims d = unit_dims(small_llama());
  for (const UnitFormats f : {UnitFormats{4}, UnitFormats{2}}) {
    for (int k = 0; k < kUnitKinds; ++k) {
      const auto kind = static_cast<UnitKind>(k);
      const UnitInfo& unit = info(kind);
      std::int64_t end[5] = {};
      const auto follow = [&](const BufferPlace& place) {
        EXPECT_EQ(place.offset, aligned(end[place.where])) << name(kind);
        end[place.where] = place.offset + place.bytes;
      };
      bool cheap = true, any_cheap = false;
      for (std::size_t i = 0; i < unit.saved.size(); ++i) {
        const BufferPlace place = saved_place(kind, i, d, f);
        EXPECT_EQ(place.bytes, unit.saved[i].elements(d) * f.of(unit.saved[i].format));
        if (place.where != BufferPlace::input) follow(place);
        EXPECT_TRUE(!unit.saved[i].cheap || unit.saved[i].life == Life::until_w) << unit.saved[i].name;
        if (unit.saved[i].life == Life::until_w) cheap &= unit.saved[i].cheap, any_cheap |= unit.saved[i].cheap;
      }
      EXPECT_EQ(cheap, any_cheap) << name(kind) << ": selective recompute drops a whole block or nothing";
      EXPECT_EQ(saved_w_is_cheap(kind), any_cheap);
      std::set<std::string_view> reused;
      for (std::size_t i = 0; i < unit.work.size(); ++i) {
        const BufferPlace place = work_place(kind, i, d, f);
        const WorkInfo& row = unit.work[i];
        EXPECT_EQ(place.bytes, row.elements(d) * f.of(row.format)) << row.name;
        if (row.at.place == Place::own) follow(place);
        if (row.at.place == Place::saved) {
          EXPECT_EQ(place.where, BufferPlace::saved_w) << row.name << " lies in memory that B frees";
          EXPECT_TRUE(reused.insert(row.at.slot).second) << row.at.slot << " holds two rows";
        }
      }
      for (const SavedInfo& slot : unit.saved)
        EXPECT_EQ(slot.life == Life::until_w, reused.count(slot.name) == 1) << slot.name;
      EXPECT_EQ(block_bytes(kind, UnitBlock::saved_b, d, f), aligned(end[BufferPlace::saved_b]));
      EXPECT_EQ(block_bytes(kind, UnitBlock::saved_w, d, f), aligned(end[BufferPlace::saved_w]));
      EXPECT_EQ(block_bytes(kind, UnitBlock::work, d, f), aligned(end[BufferPlace::work]));
      EXPECT_EQ(block_bytes(kind, UnitBlock::output, d, f),
                kind == UnitKind::head ? 0 : aligned(d.tokens * d.hidden * f.compute));
      EXPECT_EQ(block_bytes(kind, UnitBlock::grad_input, d, f),
                kind == UnitKind::embedding ? 0 : aligned(d.tokens * d.hidden * f.compute));
    }
  }
}

// A block in fp32 without grouped heads needs: forward, the larger of normed rows and SwiGLU's product; backward, two
// matrices of the hidden size and the means (the norm's gradient), or SwiGLU's gradient; nothing for the weights.
TEST(Units, WorkspaceOfABlockInFp32) {
  Settings s = small_llama();
  s.model.heads = s.model.kv_heads = 4;
  const UnitDims d = unit_dims(s);
  const UnitFormats f{4};
  const std::int64_t hidden = aligned(4 * d.tokens * d.hidden);
  const std::int64_t intermediate = aligned(4 * d.tokens * d.intermediate);
  EXPECT_EQ(workspace_bytes(UnitKind::block, Phase::forward, d, f), std::max(hidden, intermediate));
  EXPECT_EQ(workspace_bytes(UnitKind::block, Phase::backward_input, d, f),
            std::max(2 * hidden + aligned(4 * d.tokens), intermediate));
  EXPECT_EQ(workspace_bytes(UnitKind::block, Phase::backward_weight, d, f), 0);
  EXPECT_EQ(workspace_bytes(UnitKind::embedding, Phase::forward, d, f), 0);
}

}  // namespace
}  // namespace fem::ir::testing

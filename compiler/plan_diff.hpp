// What differs between two plans.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/plan.hpp"

namespace fem::compiler {

// A key with its values as texts; "none" where one side lacks it.
struct ValueDifference {
  std::string key, a, b;
};

enum class EditKind : std::uint8_t { Keep, OnlyA, OnlyB, MoveFrom, MoveTo };

// One line of an aligned edit script. Places count the actions of a rank from 0, a batch as one; -1: not there. A moved
// action has two lines, MoveFrom at its place in A and MoveTo at its place in B, both with both places.
struct Edit {
  EditKind kind = EditKind::Keep;
  std::int32_t a = -1, b = -1;
  std::int32_t shift = 0;  // of a moved one: the kept actions that it passes, negative: earlier
};

struct RankDifference {
  int rank = 0;
  std::vector<Edit> script;                                         // in the order of both programs
  std::array<std::int32_t, ir::kActionKinds> count_a{}, count_b{};  // halves of a batch counting each
  std::int32_t kept = 0, moved = 0, only_a = 0, only_b = 0;         // actions, a batch counting once
};

struct ProgramDifference {
  std::string name;
  bool in_a = true, in_b = true;
  std::vector<ValueDifference> values;
  std::vector<RankDifference> ranks;  // those that differ
  bool any() const { return !in_a || !in_b || !values.empty() || !ranks.empty(); }
};

struct PlanDifference {
  std::vector<ValueDifference> settings, stages;
  std::vector<ProgramDifference> programs;  // those that differ
  bool any() const { return !settings.empty() || !stages.empty() || !programs.empty(); }
};

// The alignment pairs the n-th occurrence of an action (with its waits) on one side with the n-th on the other and
// keeps the longest increasing run of pairs: where no action stands twice, as in the schedule's part of every verified
// plan, that is the longest common subsequence (Hunt and Szymanski 1977). Time n log n in the part between the common
// beginning and end, however much differs; memory linear.
PlanDifference diff_plans(const ir::Plan& a, const ir::Plan& b);

struct DiffOptions {
  int rank = -1;       // this pipeline rank only; -1: all
  bool all = false;    // every line; without it kShown of each rank
  bool table = false;  // the aligned edit scripts too

  static constexpr int kShown = 12;
};

// In words, and as tables where asked for. "no difference" where there is none.
std::string diff_text(const PlanDifference& difference, const ir::Plan& a, const ir::Plan& b, DiffOptions options);

}  // namespace fem::compiler

#include "compiler/plan_diff.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include <fmt/format.h>

namespace fem::compiler {
namespace {

using ir::Action;

constexpr std::int32_t kNone = -1;

// The actions of one rank as comparable lines: a batch with its waits.
class Lines {
 public:
  explicit Lines(const ir::RankProgram& program) : program_(program) {
    std::size_t wait = 0;
    for (std::size_t i = 0; i < program.actions.size(); i += ir::batch_size(program.actions, i)) {
      begins_.push_back(i);
      while (wait < program.waits.size() && program.waits[wait].action < i) ++wait;
      waits_.push_back(wait);
    }
    begins_.push_back(program.actions.size());
    waits_.push_back(program.waits.size());
  }

  std::size_t size() const { return begins_.size() - 1; }
  std::span<const Action> batch(std::size_t i) const {
    return std::span(program_.actions).subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }
  std::span<const ir::Wait> waits(std::size_t i) const {
    return std::span(program_.waits).subspan(waits_[i], waits_[i + 1] - waits_[i]);
  }

  bool same(std::size_t i, const Lines& other, std::size_t j) const {
    const auto equal_wait = [](const ir::Wait& x, const ir::Wait& y) { return x.lane == y.lane && x.count == y.count; };
    return std::ranges::equal(batch(i), other.batch(j)) && std::ranges::equal(waits(i), other.waits(j), equal_wait);
  }

  // Equal for equal lines only.
  std::string key(std::size_t i) const {
    static_assert(std::has_unique_object_representations_v<Action>);
    const std::span<const Action> actions = batch(i);
    std::string key(reinterpret_cast<const char*>(actions.data()), actions.size_bytes());
    for (const ir::Wait& wait : waits(i)) key += fmt::format("w{}>={}", static_cast<int>(wait.lane), wait.count);
    return key;
  }

 private:
  const ir::RankProgram& program_;
  std::vector<std::size_t> begins_, waits_;
};

// For each line of A in [begin, a_end): its partner in B, or kNone.
std::vector<std::int32_t> partners(const Lines& a, const Lines& b, std::size_t begin, std::size_t a_end,
                                   std::size_t b_end) {
  struct Places {
    std::vector<std::int32_t> at;
    std::size_t used = 0;
  };
  std::unordered_map<std::string, Places> in_b;
  in_b.reserve(b_end - begin);
  for (std::size_t j = begin; j < b_end; ++j) in_b[b.key(j)].at.push_back(static_cast<std::int32_t>(j));
  std::vector<std::int32_t> result(a_end - begin, kNone);
  for (std::size_t i = begin; i < a_end; ++i) {
    const auto found = in_b.find(a.key(i));
    if (found == in_b.end() || found->second.used == found->second.at.size()) continue;
    result[i - begin] = found->second.at[found->second.used++];
  }
  return result;
}

// Marks a longest strictly increasing subsequence of the entries that are not kNone.
std::vector<bool> longest_increasing(const std::vector<std::int32_t>& values) {
  std::vector<std::size_t> tails;  // [length - 1]: the entry that ends a run of that length with the least value
  std::vector<std::size_t> before(values.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == kNone) continue;
    const auto at = std::ranges::lower_bound(tails, values[i], {}, [&](std::size_t k) { return values[k]; });
    if (at != tails.begin()) before[i] = *(at - 1);
    if (at == tails.end()) {
      tails.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<bool> kept(values.size(), false);
  for (std::size_t i = tails.empty() ? values.size() : tails.back(); i != values.size(); i = before[i]) kept[i] = true;
  return kept;
}

class RankDiff {
 public:
  RankDiff(const ir::RankProgram& a, const ir::RankProgram& b) : a_(a), b_(b) {}

  void fill(RankDifference& result) {
    const std::size_t shorter = std::min(a_.size(), b_.size());
    std::size_t begin = 0, end = 0;  // of the common beginning, and lines of the common end
    while (begin < shorter && a_.same(begin, b_, begin)) ++begin;
    while (end < shorter - begin && a_.same(a_.size() - end - 1, b_, b_.size() - end - 1)) ++end;
    const std::size_t a_end = a_.size() - end, b_end = b_.size() - end;

    for (std::size_t i = 0; i < begin; ++i) keep(result, i, i);
    align(result, begin, a_end, b_end);
    for (std::size_t i = 0; i < end; ++i) keep(result, a_end + i, b_end + i);
    for (const Edit& edit : result.script) {
      result.kept += edit.kind == EditKind::Keep;
      result.moved += edit.kind == EditKind::MoveFrom;
      result.only_a += edit.kind == EditKind::OnlyA;
      result.only_b += edit.kind == EditKind::OnlyB;
    }
  }

 private:
  static void keep(RankDifference& result, std::size_t i, std::size_t j) {
    result.script.push_back({EditKind::Keep, static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), 0});
  }

  void align(RankDifference& result, std::size_t begin, std::size_t a_end, std::size_t b_end) {
    const std::vector<std::int32_t> partner = partners(a_, b_, begin, a_end, b_end);
    const std::vector<bool> kept = longest_increasing(partner);
    const std::size_t size_b = b_end - begin;
    std::vector<std::int32_t> origin(size_b, kNone);    // by line of B: its partner in A
    std::vector<std::int32_t> passed_b(size_b + 1, 0);  // by line of B: kept lines before it
    for (std::size_t i = 0; i < partner.size(); ++i) {
      if (partner[i] == kNone) continue;
      const auto j = static_cast<std::size_t>(partner[i]) - begin;
      origin[j] = static_cast<std::int32_t>(begin + i);
      passed_b[j + 1] = kept[i];
    }
    for (std::size_t j = 0; j < size_b; ++j) passed_b[j + 1] += passed_b[j];

    std::vector<std::int32_t> shift(partner.size(), 0);
    std::int32_t passed_a = 0;
    for (std::size_t i = 0; i < partner.size(); ++i) {
      if (partner[i] != kNone) shift[i] = passed_b[static_cast<std::size_t>(partner[i]) - begin] - passed_a;
      passed_a += kept[i];
    }
    std::size_t i = 0, j = 0;
    while (i < partner.size() || j < size_b) {
      const auto a = static_cast<std::int32_t>(begin + i), b = static_cast<std::int32_t>(begin + j);
      if (i < partner.size() && !kept[i]) {
        const bool moved = partner[i] != kNone;
        result.script.push_back({moved ? EditKind::MoveFrom : EditKind::OnlyA, a, partner[i], shift[i]});
        ++i;
      } else if (j < size_b && (origin[j] == kNone || !kept[static_cast<std::size_t>(origin[j]) - begin])) {
        const bool moved = origin[j] != kNone;
        const std::int32_t by = moved ? shift[static_cast<std::size_t>(origin[j]) - begin] : 0;
        result.script.push_back({moved ? EditKind::MoveTo : EditKind::OnlyB, origin[j], b, by});
        ++j;
      } else {
        keep(result, begin + i++, begin + j++);
      }
    }
  }

  Lines a_, b_;
};

std::vector<ValueDifference> diff_settings(const ir::Plan& a, const ir::Plan& b) {
  std::vector<ValueDifference> differences;
  for (const ir::SettingInfo& row : ir::setting_table()) {
    std::string in_a = ir::setting_text(a.settings, row), in_b = ir::setting_text(b.settings, row);
    if (in_a == in_b) continue;
    differences.push_back({fmt::format("{}.{}", row.section, row.key), std::move(in_a), std::move(in_b)});
  }
  return differences;
}

std::string stage_text(const std::vector<ir::Stage>& stages, std::size_t s) {
  if (s >= stages.size()) return "none";
  const ir::Stage& stage = stages[s];
  std::string text = fmt::format("pp={} prev={} next={} units={}..{}", stage.pp, stage.prev, stage.next,
                                 stage.first_unit, stage.first_unit + stage.units - 1);
  if (stage.replica_of >= 0) text += fmt::format(" replica_of={}", stage.replica_of);
  return text;
}

std::vector<ValueDifference> diff_stages(const ir::Plan& a, const ir::Plan& b) {
  std::vector<ValueDifference> differences;
  if (a.level != b.level) {
    differences.push_back({"level", std::string(ir::name(a.level)), std::string(ir::name(b.level))});
  }
  for (std::size_t s = 0; s < std::max(a.stages.size(), b.stages.size()); ++s) {
    if (s < a.stages.size() && s < b.stages.size() && a.stages[s] == b.stages[s]) continue;
    differences.push_back({fmt::format("stage {}", s), stage_text(a.stages, s), stage_text(b.stages, s)});
  }
  return differences;
}

ProgramDifference diff_programs(const ir::Program& a, const ir::Program& b) {
  ProgramDifference result;
  result.name = a.name;
  const auto value = [&](std::string key, const auto& in_a, const auto& in_b) {
    if (in_a != in_b) result.values.push_back({std::move(key), fmt::format("{}", in_a), fmt::format("{}", in_b)});
  };
  value("microbatches", a.microbatches, b.microbatches);
  value("forward_only", a.forward_only, b.forward_only);
  value("ranks", a.ranks.size(), b.ranks.size());
  const ir::RankProgram none;
  for (std::size_t r = 0; r < std::max(a.ranks.size(), b.ranks.size()); ++r) {
    const ir::RankProgram& in_a = r < a.ranks.size() ? a.ranks[r] : none;
    const ir::RankProgram& in_b = r < b.ranks.size() ? b.ranks[r] : none;
    if (in_a == in_b) continue;
    RankDifference& rank = result.ranks.emplace_back();
    rank.rank = static_cast<int>(r);
    for (const Action& action : in_a.actions) ++rank.count_a[static_cast<std::size_t>(action.kind)];
    for (const Action& action : in_b.actions) ++rank.count_b[static_cast<std::size_t>(action.kind)];
    RankDiff(in_a, in_b).fill(rank);
  }
  return result;
}

}  // namespace

PlanDifference diff_plans(const ir::Plan& a, const ir::Plan& b) {
  PlanDifference result;
  result.settings = diff_settings(a, b);
  result.stages = diff_stages(a, b);
  for (const ir::Program& program : a.programs) {
    const ir::Program* other = b.find(program.name);
    ProgramDifference difference;
    if (other) {
      difference = diff_programs(program, *other);
    } else {
      difference.name = program.name;
      difference.in_b = false;
    }
    if (difference.any()) result.programs.push_back(std::move(difference));
  }
  for (const ir::Program& program : b.programs) {
    if (a.find(program.name)) continue;
    ProgramDifference& difference = result.programs.emplace_back();
    difference.name = program.name;
    difference.in_a = false;
  }
  return result;
}

}  // namespace fem::compiler

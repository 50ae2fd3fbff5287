#include <algorithm>
#include <cstdlib>
#include <span>

#include <fmt/format.h>

#include "compiler/plan_diff.hpp"
#include "ir/text.hpp"

namespace fem::compiler {
namespace {

void append_values(std::string& text, const std::vector<ValueDifference>& values, std::string_view indent) {
  std::size_t width = 0;
  for (const ValueDifference& value : values) width = std::max(width, value.key.size());
  for (const ValueDifference& value : values) {
    text += fmt::format("{}{:<{}}  {} -> {}\n", indent, value.key, width, value.a, value.b);
  }
}

// The lines of one rank as texts.
class Lines {
 public:
  explicit Lines(const ir::Program* program, int rank) {
    if (!program || static_cast<std::size_t>(rank) >= program->ranks.size()) return;
    program_ = &program->ranks[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < program_->actions.size(); i += ir::batch_size(program_->actions, i)) {
      begins_.push_back(i);
    }
  }

  std::string text(std::int32_t line) const {
    const std::size_t begin = begins_[static_cast<std::size_t>(line)];
    const std::span<const ir::Action> rest = std::span(program_->actions).subspan(begin);
    std::string text = ir::action_text(rest);
    const auto end = static_cast<std::uint32_t>(begin + ir::batch_size(program_->actions, begin));
    auto wait = std::ranges::lower_bound(program_->waits, static_cast<std::uint32_t>(begin), {}, &ir::Wait::action);
    for (; wait != program_->waits.end() && wait->action < end; ++wait) {
      text += fmt::format(" wait {}>={}", ir::name(wait->lane), wait->count);
    }
    return text;
  }
  std::size_t size() const { return begins_.size(); }

 private:
  const ir::RankProgram* program_ = nullptr;
  std::vector<std::size_t> begins_;
};

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

class RankText {
 public:
  RankText(const RankDifference& difference, const ir::Program* a, const ir::Program* b)
      : difference_(difference), a_(a, difference.rank), b_(b, difference.rank) {}

  void append(std::string& text, DiffOptions options) const {
    const RankDifference& d = difference_;
    text += fmt::format("rank {}: {} -> {}: {} stay, {} moved, {} only in A, {} only in B\n", d.rank,
                        plural(static_cast<std::int64_t>(a_.size()), "action"), b_.size(), d.kept, d.moved, d.only_a,
                        d.only_b);
    append_counts(text);
    append_words(text, options.all);
    if (options.table) append_table(text, options.all);
  }

 private:
  void append_counts(std::string& text) const {
    for (std::size_t kind = 0; kind < difference_.count_a.size(); ++kind) {
      const auto a = difference_.count_a[kind], b = difference_.count_b[kind];
      if (a != b) text += fmt::format("  {:<14}  {} -> {}\n", ir::name(static_cast<ir::ActionKind>(kind)), a, b);
    }
  }

  std::string words(const Edit& edit) const {
    switch (edit.kind) {
      case EditKind::Keep:
      case EditKind::MoveTo:
        return {};  // a move is said once
      case EditKind::OnlyA:
        return fmt::format("{} only in A (at {})", a_.text(edit.a), edit.a);
      case EditKind::OnlyB:
        return fmt::format("{} only in B (at {})", b_.text(edit.b), edit.b);
      case EditKind::MoveFrom:
        return fmt::format("{} moved {} {} (from {} to {})", a_.text(edit.a), plural(std::abs(edit.shift), "action"),
                           edit.shift < 0 ? "earlier" : "later", edit.a, edit.b);
    }
    return {};
  }

  void append_words(std::string& text, bool all) const {
    int shown = 0, more = 0;
    for (const Edit& edit : difference_.script) {
      if (edit.kind == EditKind::Keep || edit.kind == EditKind::MoveTo) continue;
      if (!all && shown == DiffOptions::kShown) {
        ++more;
        continue;
      }
      ++shown;
      text += fmt::format("  rank {}: {}\n", difference_.rank, words(edit));
    }
    if (more > 0) text += fmt::format("  and {} more differences (--all shows them)\n", more);
  }

  std::string row(const Edit& edit) const {
    const std::string a = edit.a >= 0 ? fmt::format("{}", edit.a) : "",
                      b = edit.b >= 0 ? fmt::format("{}", edit.b) : "";
    switch (edit.kind) {
      case EditKind::Keep:
        return fmt::format("{:>7} {:>7}    {}", a, b, a_.text(edit.a));
      case EditKind::OnlyA:
        return fmt::format("{:>7} {:>7}  - {}", a, "", a_.text(edit.a));
      case EditKind::OnlyB:
        return fmt::format("{:>7} {:>7}  + {}", "", b, b_.text(edit.b));
      case EditKind::MoveFrom:
        return fmt::format("{:>7} {:>7}  - {}  (to {})", a, "", a_.text(edit.a), b);
      case EditKind::MoveTo:
        return fmt::format("{:>7} {:>7}  + {}  (from {})", "", b, b_.text(edit.b), a);
    }
    return {};
  }

  // The script with kContext kept lines around what differs.
  void append_table(std::string& text, bool all) const {
    constexpr std::size_t kContext = 2, kRows = 60;
    const std::vector<Edit>& script = difference_.script;
    std::vector<bool> near(script.size(), false);
    for (std::size_t i = 0; i < script.size(); ++i) {
      if (script[i].kind == EditKind::Keep) continue;
      const std::size_t end = std::min(script.size(), i + kContext + 1);
      for (std::size_t k = i - std::min(i, kContext); k < end; ++k) near[k] = true;
    }
    text += fmt::format("{:>7} {:>7}\n", "A", "B");
    std::size_t rows = 0;
    for (std::size_t i = 0; i < script.size(); ++i) {
      if (!near[i]) continue;
      if (!all && rows == kRows) {
        text += "  and more rows (--all shows them)\n";
        return;
      }
      if (i > 0 && !near[i - 1]) text += fmt::format("{:>7} {:>7}\n", "...", "...");
      text += row(script[i]) + "\n";
      ++rows;
    }
  }

  const RankDifference& difference_;
  Lines a_, b_;
};

}  // namespace

std::string diff_text(const PlanDifference& difference, const ir::Plan& a, const ir::Plan& b, DiffOptions options) {
  if (!difference.any()) return "no difference\n";
  std::string text;
  if (!difference.settings.empty()) text += "settings\n";
  append_values(text, difference.settings, "  ");
  if (!difference.stages.empty()) text += "layout\n";
  append_values(text, difference.stages, "  ");
  for (const ProgramDifference& program : difference.programs) {
    text += fmt::format("program {}{}\n", program.name,
                        !program.in_b   ? ": only in A"
                        : !program.in_a ? ": only in B"
                                        : "");
    append_values(text, program.values, "  ");
    for (const RankDifference& rank : program.ranks) {
      if (options.rank >= 0 && options.rank != rank.rank) continue;
      RankText(rank, a.find(program.name), b.find(program.name)).append(text, options);
    }
  }
  return text;
}

}  // namespace fem::compiler

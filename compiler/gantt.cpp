#include "compiler/gantt.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace fem::compiler {
namespace {

struct Bar {
  std::int64_t start, end;
  std::string label;
  char letter;
};

// '\0' for actions that are not shown.
char kind_letter(ir::ActionKind kind) {
  if (kind == ir::ActionKind::Forward) return 'F';
  if (kind == ir::ActionKind::Backward) return 'B';
  if (kind == ir::ActionKind::BackwardInput) return 'I';
  if (kind == ir::ActionKind::BackwardWeight) return 'W';
  if (kind == ir::ActionKind::Recompute) return 'R';
  return '\0';
}

std::string label(const ir::Action& action, bool stages) {
  const std::string text = fmt::format("{}{}", kind_letter(action.kind), action.microbatch);
  return stages ? fmt::format("{}{}", action.stage, text) : text;
}

std::vector<Bar> bars_of(const ir::RankProgram& rank, const std::vector<passes::ActionTime>& times, bool stages) {
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < rank.actions.size(); i += ir::batch_size(rank.actions, i)) {
    const ir::Action& action = rank.actions[i];
    if (!kind_letter(action.kind)) continue;
    Bar bar{std::llround(times[i].start), std::llround(times[i].end), label(action, stages), kind_letter(action.kind)};
    if (action.joined()) {
      bar.label += "&" + label(rank.actions[i + 1], stages);
      bar.letter = '&';
    }
    bars.push_back(std::move(bar));
  }
  return bars;
}

std::string draw(const std::vector<Bar>& bars, std::int64_t end, std::int64_t columns) {
  std::string line(static_cast<std::size_t>(end * columns), '.');
  for (const Bar& bar : bars) {
    const auto begin = static_cast<std::size_t>(bar.start * columns);
    const auto size = static_cast<std::size_t>((bar.end - bar.start) * columns);
    if (size == 0) continue;
    std::string text = columns == 1 ? std::string(size, bar.letter) : bar.label;
    text.resize(size, '-');
    if (columns > 1) text.back() = ' ';
    line.replace(begin, size, text);
  }
  return line;
}

std::string draw_compressed(const std::vector<Bar>& bars, std::int64_t end, std::int64_t units) {
  const std::string full = draw(bars, end, 1);
  std::string line;
  for (std::size_t i = 0; i < full.size(); i += static_cast<std::size_t>(units)) line += full[i];
  return line;
}

}  // namespace

std::string gantt(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation, int width) {
  const bool stages = plan.stages.size() > program.ranks.size();
  std::vector<std::vector<Bar>> ranks;
  std::int64_t end = 0, columns = 1;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    ranks.push_back(bars_of(program.ranks[r], simulation.actions[r], stages));
    for (const Bar& bar : ranks.back()) {
      end = std::max(end, bar.end);
      const std::int64_t length = std::max<std::int64_t>(1, bar.end - bar.start);
      const auto size = static_cast<std::int64_t>(bar.label.size()) + 1;
      columns = std::max(columns, (size + length - 1) / length);
    }
  }
  const std::string margin = fmt::format("rank {:>{}} ", "", fmt::formatted_size("{}", ranks.size() - 1));
  const std::int64_t room = std::max<std::int64_t>(20, width - static_cast<std::int64_t>(margin.size()));
  const bool named = end * columns <= room;
  const std::int64_t units = named ? 1 : (end + room - 1) / std::max<std::int64_t>(room, 1);
  std::string text;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    text += fmt::format("rank {:>{}} ", r, margin.size() - 6);
    text += named ? draw(ranks[r], end, columns) : draw_compressed(ranks[r], end, std::max<std::int64_t>(units, 1));
    if (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  if (units > 1) text += fmt::format("(one column is {} units of time)\n", units);
  return text;
}

}  // namespace fem::compiler

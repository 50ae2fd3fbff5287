#include "compiler/gantt.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace fem::compiler {
namespace {

struct Bar {
  std::int64_t start, end;
  std::string label;
  char letter;
};

struct Row {
  std::string name;
  std::vector<Bar> bars;
};

// What a row without lanes shows: the schedule.
bool of_schedule(char letter) { return std::string_view("FBIWR").find(letter) != std::string_view::npos; }

// "2F0", "sF1" where it is a message, "Gu3" of a unit.
std::string label(const ir::Action& action, bool stages) {
  std::string text = stages && action.stage >= 0 ? fmt::format("{}", action.stage) : "";
  text += ir::info(action.kind).letter;
  if (ir::is_p2p(action.kind)) {
    text += action.kind == ir::ActionKind::SendForward || action.kind == ir::ActionKind::RecvForward ? 'F' : 'B';
  }
  if (action.microbatch >= 0) text += fmt::format("{}", action.microbatch);
  if (action.microbatch < 0 && action.unit >= 0) text += fmt::format("u{}", action.unit);
  return text;
}

// Of one lane, or of the schedule.
std::vector<Bar> bars_of(const ir::RankProgram& rank, const std::vector<passes::ActionTime>& times, bool stages,
                         std::optional<ir::Lane> lane) {
  std::vector<Bar> bars;
  for (std::size_t i = 0, size = 0; i < rank.actions.size(); i += size) {
    size = ir::batch_size(rank.actions, i);
    const ir::Action& action = rank.actions[i];
    const char letter = ir::info(action.kind).letter;
    if (letter == '\0' || (lane ? action.lane != *lane : !of_schedule(letter))) continue;
    Bar bar{std::llround(times[i].start), std::llround(times[i].end), label(action, stages), letter};
    for (std::size_t k = 1; k < size; ++k) {
      bar.label += "&" + label(rank.actions[i + k], stages);
      bar.letter = '&';
    }
    bars.push_back(std::move(bar));
  }
  return bars;
}

// A row for each rank, or for each of its lanes that takes time.
std::vector<Row> rows_of(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation,
                         bool lanes) {
  const bool stages = plan.stages.size() > program.ranks.size();
  const std::size_t digits = fmt::formatted_size("{}", program.ranks.size() - 1);
  std::vector<Row> rows;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const std::string rank = fmt::format("rank {:>{}} ", r, digits);
    if (!lanes) rows.push_back({rank, bars_of(program.ranks[r], simulation.actions[r], stages, std::nullopt)});
    for (int l = 0; lanes && l < ir::kLanes; ++l) {
      const auto lane = static_cast<ir::Lane>(l);
      std::vector<Bar> bars = bars_of(program.ranks[r], simulation.actions[r], stages, lane);
      std::erase_if(bars, [](const Bar& bar) { return bar.end == bar.start; });
      if (bars.empty() && lane != ir::Lane::Compute) continue;
      rows.push_back({fmt::format("{}{:<11}", rank, ir::name(lane)), std::move(bars)});
    }
  }
  return rows;
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

std::string gantt(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation, int width,
                  bool lanes) {
  const std::vector<Row> rows = rows_of(plan, program, simulation, lanes);
  std::int64_t end = 0, columns = 1;
  for (const Row& row : rows) {
    for (const Bar& bar : row.bars) {
      end = std::max(end, bar.end);
      const std::int64_t length = std::max<std::int64_t>(1, bar.end - bar.start);
      const auto size = static_cast<std::int64_t>(bar.label.size()) + 1;
      columns = std::max(columns, (size + length - 1) / length);
    }
  }
  const std::size_t margin = rows.empty() ? 0 : rows.front().name.size();
  const std::int64_t room = std::max<std::int64_t>(20, width - static_cast<std::int64_t>(margin));
  const bool named = end * columns <= room;
  const std::int64_t units = named ? 1 : (end + room - 1) / std::max<std::int64_t>(room, 1);
  std::string text;
  for (const Row& row : rows) {
    text += row.name;
    text += named ? draw(row.bars, end, columns) : draw_compressed(row.bars, end, std::max<std::int64_t>(units, 1));
    if (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  if (lanes) text += "(s, r: messages; G: gathers; A: reductions; U: gradients and optimizer; O, L: host copies)\n";
  if (units > 1) text += fmt::format("(one column is {} units of time)\n", units);
  return text;
}

}  // namespace fem::compiler

#include "ir/verify_report.hpp"

#include <utility>

namespace fem::ir::verifying {

bool Report::take(Code code) {
  ++errors_;
  return ++count_[static_cast<std::size_t>(code)] <= kShownPerCode;
}

void Report::say(Code code, int line, int column, std::string message, std::string place) {
  const std::string name(invariants()[static_cast<std::size_t>(code)].code);
  if (source_.text && line > 0) return source_.text->error(sink_, line, column, std::move(message), name);
  if (!place.empty()) message = std::move(place) + ": " + message;
  sink_.error({source_.text ? source_.text->file() : std::string(), 0, 0}, std::move(message), name);
}

void Report::settings(Code code, std::string_view section, std::string message) {
  if (!take(code)) return;
  int line = 0;
  for (std::size_t i = 0; source_.locations && i < setting_sections().size(); ++i) {
    if (setting_sections()[i].name == section) line = source_.locations->section_line[i];
  }
  say(code, line, line > 0 ? 1 : 0, std::move(message), {});
}

void Report::plan(Code code, std::string message) {
  if (take(code)) say(code, 0, 0, std::move(message), {});
}

void Report::stage(Code code, std::size_t stage, std::string message) {
  if (!take(code)) return;
  say(code, source_.locations ? source_.locations->stage_line[stage] : 0, 1, std::move(message), {});
}

void Report::program(Code code, std::size_t program, std::string message) {
  if (!take(code)) return;
  say(code, source_.locations ? source_.locations->program_line[program] : 0, 1, std::move(message),
      "program " + plan_.programs[program].name);
}

void Report::rank(Code code, std::size_t program, std::size_t rank, std::string message) {
  if (!take(code)) return;
  say(code, source_.locations ? source_.locations->rank_line[program][rank] : 0, 1, std::move(message),
      "program " + plan_.programs[program].name + ", rank " + std::to_string(rank));
}

std::span<const Action> Report::from(Place place) const {
  const std::span<const Action> actions = plan_.programs[place.program].ranks[place.rank].actions;
  return actions.subspan(place.action);
}

int Report::line_of(Place place) const {
  return source_.locations ? source_.locations->action[place.program][place.rank][place.action].line : 0;
}

void Report::action(Code code, Place place, std::string message) {
  if (!take(code)) return;
  const int line = line_of(place);
  const int column = line > 0 ? source_.locations->action[place.program][place.rank][place.action].column : 0;
  say(code, line, column, std::move(message),
      "program " + plan_.programs[place.program].name + ", rank " + std::to_string(place.rank) + ", action " +
          std::to_string(place.action) + " (" + action_text(from(place).first(1)) + ")");
}

std::string Report::at(Place place) const { return numbered(action_text(from(place).first(1)), place); }

std::string Report::batch_at(Place place) const { return numbered(action_text(from(place)), place); }

std::string Report::numbered(std::string text, Place place) const {
  const int line = line_of(place);
  return text + (line > 0 ? " (line " + std::to_string(line) + ")" : " (action " + std::to_string(place.action) + ")");
}

void Report::finish() {
  for (std::size_t i = 0; i < count_.size(); ++i) {
    if (count_[i] <= kShownPerCode) continue;
    sink_.note({source_.text ? source_.text->file() : std::string(), 0, 0},
               std::to_string(count_[i] - kShownPerCode) + " more errors " + std::string(invariants()[i].code) +
                   " (" + std::string(invariants()[i].title) + ")");
  }
}

}  // namespace fem::ir::verifying

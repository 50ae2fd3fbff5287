#include <limits>
#include <utility>

#include "ir/parse_action.hpp"
#include "ir/parse_line.hpp"
#include "ir/text.hpp"

namespace fem::ir {
namespace {

using parsing::Cursor;
using parsing::integer;
using parsing::quote;

constexpr std::int64_t kMost16 = std::numeric_limits<std::int16_t>::max();
constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();

// The parts of a plan stand in this order.
enum class Part { Settings, Stages, Programs };

class Parser {
 public:
  Parser(const SourceText& source, DiagnosticSink& sink, PlanLocations& locations)
      : source_(source), report_(source, sink), actions_(report_), locations_(locations) {
    locations_.section_line.resize(setting_sections().size());
  }

  std::optional<Plan> parse() {
    if (source_.text().size() > static_cast<std::size_t>(kMost32)) {
      report_.error(0, "a plan of more than 2 GiB cannot be read");
      return std::nullopt;
    }
    int line = 1;
    while (line <= source_.lines() && Cursor(source_.line(line)).at_end()) ++line;
    report_.line = line;
    if (!version(Cursor(source_.line(line)))) return std::nullopt;
    for (++line; line <= source_.lines() && !report_.full(); ++line) {
      report_.line = line;
      Cursor cursor(source_.line(line));
      if (!cursor.at_end()) statement(cursor);
    }
    report_.line = source_.lines();
    if (!report_.failed() && part_ == Part::Settings) report_.error(0, "the plan has no 'level' line");
    if (report_.failed()) return std::nullopt;
    return std::move(plan_);
  }

 private:
  bool version(Cursor cursor) {
    const int column = cursor.column();
    if (!cursor.accept("femtotron") || !cursor.accept("plan") || cursor.at_end()) {
      return report_.error(column, "not a plan: the first line must be 'femtotron plan v" +
                                       std::to_string(Plan::kVersion) + "'");
    }
    const std::string_view version = cursor.word();
    if (version != "v" + std::to_string(Plan::kVersion)) {
      return report_.error(cursor.column(),
                           "plan " + std::string(version) + ": this program reads v" + std::to_string(Plan::kVersion));
    }
    cursor.skip(version.size());
    return end(cursor);
  }

  bool statement(Cursor& cursor) {
    const char first = cursor.peek();
    if (in_rank_ && first >= 'A' && first <= 'Z') {
      return actions_.read(cursor, plan_.programs.back().ranks.back(), &locations_.action.back().back());
    }
    if (cursor.accept("rank")) return rank(cursor);
    if (cursor.accept("program")) return program(cursor);
    if (cursor.accept("stage")) return stage(cursor);
    if (cursor.accept("level")) return level(cursor);
    return settings(cursor);
  }

  bool settings(Cursor& cursor) {
    const std::string_view word = cursor.word();
    for (const SectionInfo& section : setting_sections()) {
      if (section.name == word) return section_line(cursor, section);
    }
    return unknown(cursor);
  }

  bool unknown(const Cursor& cursor) {
    std::vector<std::string_view> words;
    if (in_rank_) words = parsing::action_names();
    words.insert(words.end(), {"rank", "program", "stage", "level"});
    for (const SectionInfo& section : setting_sections()) words.push_back(section.name);
    const std::string_view word = cursor.word();
    if (word.empty()) return report_.error(cursor.column(), "unexpected ','");
    const char first = word.front();
    const bool action = first >= 'A' && first <= 'Z';
    if (action && !in_rank_) return report_.error(cursor.column(), "an action outside a 'rank' of a 'program'");
    const std::string what = in_rank_ ? "unknown action or keyword " : "unknown keyword ";
    return report_.error(cursor.column(), what + quote(word) + did_you_mean(word, words));
  }

  bool section_line(Cursor& cursor, const SectionInfo& section) {
    if (part_ != Part::Settings) {
      return report_.error(cursor.column(), "settings " + quote(section.name) + " must stand before 'level'");
    }
    for (const std::string_view seen : sections_) {
      if (seen == section.name) return report_.error(cursor.column(), "a second line of " + quote(section.name));
    }
    sections_.push_back(section.name);
    locations_.section_line[static_cast<std::size_t>(&section - setting_sections().data())] = report_.line;
    cursor.skip(section.name.size());
    std::vector<std::string_view> keys;
    while (!cursor.at_end()) {
      if (!setting(cursor, section, keys)) return false;
    }
    return true;
  }

  bool setting(Cursor& cursor, const SectionInfo& section, std::vector<std::string_view>& seen) {
    const int column = cursor.column();
    const std::string_view key = cursor.word().substr(0, cursor.word().find('='));
    const SettingInfo* row = find_setting(section.name, key);
    if (!row) {
      std::vector<std::string_view> names;
      for (const SettingInfo& r : setting_table()) {
        if (r.section == section.name) names.push_back(r.key);
      }
      return report_.error(column,
                           "unknown key " + quote(key) + " of " + quote(section.name) + did_you_mean(key, names));
    }
    for (const std::string_view other : seen) {
      if (other == key) return report_.error(column, "a second value of " + quote(key));
    }
    seen.push_back(row->key);
    if (key.size() == cursor.word().size()) return report_.error(column, "expected '=' after " + quote(key));
    cursor.step(key.size() + 1);
    const int value_column = cursor.column();
    const std::optional<std::string> value = cursor.value();
    if (!value) {
      return report_.error(cursor.column(), "unclosed quotes or an unknown escape; known are \\\" \\\\ and \\xHH");
    }
    const std::string reason = set_from_text(plan_.settings, *row, *value);
    if (reason.empty()) return true;
    return report_.error(value_column, std::string(section.name) + '.' + std::string(key) + " = " + quote(*value) +
                                           " is " + reason);
  }

  bool level(Cursor& cursor) {
    if (part_ != Part::Settings) return report_.error(cursor.column(), "a second 'level' line");
    std::vector<std::string_view> names;
    for (const Level l : {Level::Stage, Level::Communication, Level::Unit, Level::Lane}) {
      names.push_back(name(l));
      if (cursor.word() != name(l)) continue;
      plan_.level = l;
      part_ = Part::Stages;
      cursor.skip(cursor.word().size());
      return end(cursor);
    }
    const std::string_view word = cursor.word();
    return report_.error(cursor.column(), "unknown level " + quote(word) + did_you_mean(word, names));
  }

  bool stage(Cursor& cursor) {
    if (part_ != Part::Stages) {
      return report_.error(cursor.column(), part_ == Part::Settings ? "a stage before the 'level' line"
                                                                    : "a stage after the first 'program'");
    }
    Stage s;
    if (!next_index(cursor, "stage", plan_.stages.size())) return false;
    if (!field(cursor, "pp", 0, s.pp) || !field(cursor, "prev", -1, s.prev) || !field(cursor, "next", -1, s.next) ||
        !units(cursor, s)) {
      return false;
    }
    if (!cursor.at_end() && !field(cursor, "replica_of", 0, s.replica_of)) return false;
    if (!end(cursor)) return false;
    plan_.stages.push_back(s);
    locations_.stage_line.push_back(report_.line);
    return true;
  }

  bool units(Cursor& cursor, Stage& stage) {
    const int column = cursor.column();
    const std::string_view word = cursor.word();
    const std::size_t dots = word.find("..");
    if (word.starts_with("units=") && dots != std::string_view::npos) {
      const auto first = integer(word.substr(6, dots - 6), 0, kMost16 - 1);
      const auto last = integer(word.substr(dots + 2), -1, kMost16 - 1);
      if (first && last && *last >= *first - 1) {
        stage.first_unit = static_cast<std::int16_t>(*first);
        stage.units = static_cast<std::int16_t>(*last - *first + 1);
        cursor.skip(word.size());
        return true;
      }
    }
    return report_.error(column, "expected 'units=FIRST..LAST', found " + quote(word));
  }

  bool program(Cursor& cursor) {
    if (part_ == Part::Settings) return report_.error(cursor.column(), "a program before the 'level' line");
    Program p;
    p.name = cursor.word();
    if (p.name.empty()) return report_.error(cursor.column(), "expected the program's name");
    cursor.skip(p.name.size());
    if (!field(cursor, "microbatches", 0, p.microbatches)) return false;
    p.forward_only = cursor.accept("forward_only");
    if (!end(cursor)) return false;
    part_ = Part::Programs;
    in_rank_ = false;
    plan_.programs.push_back(std::move(p));
    locations_.action.emplace_back();
    locations_.program_line.push_back(report_.line);
    locations_.rank_line.emplace_back();
    return true;
  }

  bool rank(Cursor& cursor) {
    if (part_ != Part::Programs) return report_.error(cursor.column(), "a rank before the first 'program'");
    auto& ranks = plan_.programs.back().ranks;
    if (!next_index(cursor, "rank", ranks.size())) return false;
    std::int64_t arena = 0;
    if (!cursor.at_end() && !field(cursor, "arena", 1, arena)) return false;
    if (!end(cursor)) return false;
    ranks.emplace_back().arena = arena;
    locations_.action.back().emplace_back();
    locations_.rank_line.back().push_back(report_.line);
    in_rank_ = true;
    return true;
  }

  // Stages and ranks are written in order, so a number costs no more memory than its own line.
  bool next_index(Cursor& cursor, std::string_view what, std::size_t next) {
    const std::string_view word = cursor.word();
    const std::optional<std::int64_t> index = integer(word, 0, kMost16);
    if (!index || static_cast<std::size_t>(*index) != next) {
      return report_.error(cursor.column(), std::string(what) + ' ' + quote(word) + ": expected " + std::string(what) +
                                                ' ' + std::to_string(next));
    }
    cursor.skip(word.size());
    return true;
  }

  template <class T>
  bool field(Cursor& cursor, std::string_view key, std::int64_t least, T& value) {
    const std::string_view word = cursor.word();
    if (word.size() <= key.size() || !word.starts_with(key) || word[key.size()] != '=') {
      return report_.error(cursor.column(), "expected '" + std::string(key) + "=N', found " + quote(word));
    }
    constexpr std::int64_t kMost = std::numeric_limits<T>::max();
    const std::optional<std::int64_t> number = integer(word.substr(key.size() + 1), least, kMost);
    if (!number) {
      return report_.error(cursor.column(), std::string(key) + " in " + quote(word) + " must be a number between " +
                                                std::to_string(least) + " and " + std::to_string(kMost));
    }
    value = static_cast<T>(*number);
    cursor.skip(word.size());
    return true;
  }

  bool end(const Cursor& cursor) {
    if (cursor.at_end()) return true;
    const std::string_view rest = cursor.peek() == ',' ? std::string_view(",") : cursor.word();
    return report_.error(cursor.column(), "unexpected " + quote(rest) + " at the line's end");
  }

  const SourceText& source_;
  parsing::Reporter report_;
  parsing::ActionReader actions_;
  PlanLocations& locations_;
  Plan plan_;
  Part part_ = Part::Settings;
  bool in_rank_ = false;
  std::vector<std::string_view> sections_;
};

}  // namespace

std::optional<Plan> parse_plan(const SourceText& source, DiagnosticSink& sink, PlanLocations* locations) {
  PlanLocations own;
  PlanLocations& used = locations ? *locations : own;
  used = {};
  return Parser(source, sink, used).parse();
}

}  // namespace fem::ir

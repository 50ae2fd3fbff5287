// Pipelines as text: reading, checking against the table, printing.
#include <algorithm>
#include <charconv>
#include <string>

#include "passes/manager.hpp"

namespace fem::passes {
namespace {

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '/';
}

bool read_integer(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::vector<std::string_view> split_choices(std::string_view choices) {
  std::vector<std::string_view> words;
  while (!choices.empty()) {
    const std::size_t bar = std::min(choices.find('|'), choices.size());
    words.push_back(choices.substr(0, bar));
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return words;
}

// Why the value does not fit the row; "" when it does.
std::string refuse(const OptionInfo& row, std::string_view value) {
  switch (row.type) {
    case OptionType::Bool:
      if (value == "true" || value == "false") return "";
      return quoted(value) + " is neither true nor false";
    case OptionType::Text: {
      const std::vector<std::string_view> words = split_choices(row.choices);
      if (words.empty() || std::ranges::find(words, value) != words.end()) return "";
      return quoted(value) + " is not one of " + std::string(row.choices) + ir::did_you_mean(value, words);
    }
    case OptionType::Int: {
      std::int64_t number = 0, low = 0, high = 0;
      if (!read_integer(value, number)) return quoted(value) + " is not an integer";
      const std::size_t dots = row.choices.find("..");
      if (dots == std::string_view::npos) return "";
      if (read_integer(row.choices.substr(0, dots), low) && number < low)
        return std::string(value) + " is less than " + std::to_string(low);
      if (read_integer(row.choices.substr(dots + 2), high) && number > high)
        return std::string(value) + " is more than " + std::to_string(high);
      return "";
    }
  }
  return "";
}

class Parser {
 public:
  Parser(const ir::SourceText& source, ir::DiagnosticSink& sink, std::span<const PassInfo> table)
      : source_(source), sink_(sink), table_(table), text_(source.text()) {}

  std::optional<Pipeline> parse() {
    const int errors_before = sink_.errors();
    skip_blanks();
    if (!done()) do {
        if (!parse_call()) return std::nullopt;
      } while (accept(','));
    if (!done()) {
      error_here("expected ',' or the end of the pipeline");
      return std::nullopt;
    }
    if (sink_.errors() == errors_before) check();
    if (sink_.errors() != errors_before) return std::nullopt;
    return std::move(pipeline_);
  }

 private:
  bool done() const { return at_ == text_.size(); }
  char now() const { return done() ? '\0' : text_[at_]; }

  void step() {
    if (text_[at_++] == '\n') {
      ++line_;
      column_ = 1;
    } else {
      ++column_;
    }
  }
  void skip_blanks() {
    while (!done() && is_blank(now())) step();
  }
  bool accept(char c) {
    if (now() != c) return false;
    step();
    skip_blanks();
    return true;
  }
  std::string_view word() {
    const std::size_t start = at_;
    while (!done() && is_word(now())) step();
    const std::string_view found = text_.substr(start, at_ - start);
    skip_blanks();
    return found;
  }
  void error_here(std::string message) { source_.error(sink_, line_, column_, std::move(message)); }

  bool parse_call();
  bool parse_options(PassOptions* options, const PassInfo* pass);
  void check();
  void check_names(const PassCall& call, std::size_t position);

  const ir::SourceText& source_;
  ir::DiagnosticSink& sink_;
  std::span<const PassInfo> table_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
  Pipeline pipeline_;
};

// False only where the text cannot be read on; an unknown name is reported and passed over.
bool Parser::parse_call() {
  ir::SourceLocation where{source_.file(), line_, column_};
  const std::string_view name = word();
  if (name.empty()) {
    error_here("expected the name of a pass");
    return false;
  }
  const auto pass = std::ranges::find(table_, name, &PassInfo::name);
  if (pass == table_.end()) {
    std::vector<std::string_view> known;
    for (const PassInfo& row : table_) known.push_back(row.name);
    source_.error(sink_, where.line, where.column, "unknown pass " + quoted(name) + ir::did_you_mean(name, known));
    return !accept('{') || parse_options(nullptr, nullptr);
  }
  PassCall call{&*pass, PassOptions(pass->options), std::move(where)};
  if (accept('{') && !parse_options(&call.options, call.pass)) return false;
  pipeline_.calls.push_back(std::move(call));
  return true;
}

// `name=value,...}`; a null pass reads over them.
bool Parser::parse_options(PassOptions* options, const PassInfo* pass) {
  if (accept('}')) return true;
  std::vector<std::string_view> given;
  do {
    const int line = line_, column = column_;
    const std::string_view name = word();
    if (name.empty()) {
      error_here("expected the name of an option");
      return false;
    }
    if (!accept('=')) {
      error_here("expected '=' after option " + quoted(name));
      return false;
    }
    const int value_line = line_, value_column = column_;
    const std::string_view value = word();
    if (!pass) continue;
    const auto row = std::ranges::find(pass->options, name, &OptionInfo::name);
    if (row == pass->options.end()) {
      std::vector<std::string_view> known;
      for (const OptionInfo& option : pass->options) known.push_back(option.name);
      source_.error(sink_, line, column,
                    "pass " + quoted(pass->name) + " has no option " + quoted(name) +
                        (known.empty() ? "; it takes none" : ir::did_you_mean(name, known)));
    } else if (std::ranges::find(given, name) != given.end()) {
      source_.error(sink_, line, column, "option " + quoted(name) + " is given twice");
    } else if (const std::string reason = refuse(*row, value); !reason.empty()) {
      source_.error(sink_, value_line, value_column, "option " + quoted(name) + ": " + reason);
    } else {
      options->set(static_cast<std::size_t>(row - pass->options.begin()), std::string(value));
    }
    given.push_back(name);
  } while (accept(','));
  if (accept('}')) return true;
  error_here("expected ',' or '}' after an option");
  return false;
}

// Levels, requirements and conflicts.
void Parser::check() {
  for (std::size_t i = 0; i < pipeline_.calls.size(); ++i) {
    const PassCall& call = pipeline_.calls[i];
    if (i > 0 && pipeline_.calls[i - 1].pass->out != call.pass->in)
      source_.error(sink_, call.where.line, call.where.column,
                    "pass " + quoted(call.pass->name) + " takes a plan at " + std::string(ir::name(call.pass->in)) +
                        " level, but " + quoted(pipeline_.calls[i - 1].pass->name) + " before it leaves it at " +
                        std::string(ir::name(pipeline_.calls[i - 1].pass->out)) + " level");
    check_names(call, i);
  }
}

void Parser::check_names(const PassCall& call, std::size_t position) {
  const auto before = std::span(pipeline_.calls).first(position);
  auto runs_before = [&](std::string_view name) {
    return std::ranges::any_of(before, [&](const PassCall& c) { return c.pass->name == name; });
  };
  for (std::string_view needed : call.pass->needs)
    if (!runs_before(needed))
      source_.error(sink_, call.where.line, call.where.column,
                    "pass " + quoted(call.pass->name) + " needs " + quoted(needed) + " before it");
  for (const PassCall& other : before)
    if (std::ranges::find(call.pass->conflicts, other.pass->name) != call.pass->conflicts.end() ||
        std::ranges::find(other.pass->conflicts, call.pass->name) != other.pass->conflicts.end())
      source_.error(sink_, call.where.line, call.where.column,
                    "pass " + quoted(call.pass->name) + " cannot run together with " + quoted(other.pass->name));
}

}  // namespace

std::optional<Pipeline> parse_pipeline(const ir::SourceText& source, ir::DiagnosticSink& sink,
                                       std::span<const PassInfo> table) {
  return Parser(source, sink, table).parse();
}

std::string pipeline_text(const Pipeline& pipeline) {
  std::string text;
  for (const PassCall& call : pipeline.calls) {
    if (!text.empty()) text += ',';
    text += call.pass->name;
    std::string options;
    for (std::size_t i = 0; i < call.pass->options.size(); ++i)
      if (!call.options.is_default(i))
        options += (options.empty() ? "" : ",") + std::string(call.pass->options[i].name) + "=" + call.options.value(i);
    if (!options.empty()) text += "{" + options + "}";
  }
  return text;
}

}  // namespace fem::passes

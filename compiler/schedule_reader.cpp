// From the YAML of a schedule file to a Schedule. Keys are read in the order in which they depend on one another, not
// in the file's: a condition may use a parameter that stands below it.
#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/order_kinds.hpp"
#include "compiler/schedule.hpp"

namespace fem::compiler {
namespace {

constexpr std::array<std::string_view, 2> kBackward = {"whole", "split"};
constexpr std::array<std::string_view, 8> kReserved = {"p", "m", "v", "r", "F", "B", "I", "W"};

class ScheduleReader {
 public:
  ScheduleReader(const YamlFile& file, ir::DiagnosticSink& sink) : file_(file), sink_(sink) {}

  std::optional<Schedule> read() {
    const int errors = sink_.errors();
    schedule_.source = file_.source();
    std::vector<std::string_view> keys = {"name",       "reference", "placement", "chunks", "backward",
                                          "parameters", "let",       "require",   "check",  "walk"};
    for (const OrderKind& kind : order_kinds()) keys.push_back(kind.key);
    map_ = read_map(file_, file_.root(), "a schedule", keys, sink_);
    if (!file_.root().IsMap()) return std::nullopt;

    read_header();
    read_chunks();
    read_names();
    read_require();
    read_check();
    read_order();
    return sink_.errors() == errors ? std::optional(std::move(schedule_)) : std::nullopt;
  }

 private:
  void error(const YAML::Node& node, std::string message) { file_.error(sink_, node, std::move(message)); }

  // The value of a key that must be there.
  const YAML::Node* required(std::string_view key) {
    const YAML::Node* node = map_.find(key);
    if (!node) error(file_.root(), fmt::format("a schedule needs '{}'", key));
    return node;
  }

  void read_header() {
    if (const YAML::Node* node = required("name")) {
      if (const auto text = read_scalar(file_, *node, "name", sink_)) schedule_.name = text->text();
      schedule_.name_at = file_.position(*node);
    }
    if (const YAML::Node* node = required("reference")) {
      if (const auto text = read_scalar(file_, *node, "reference", sink_)) schedule_.reference = text->text();
    }
    if (const YAML::Node* node = required("placement")) {
      const auto choice = read_choice(file_, *node, "placement", placement_names(), sink_);
      schedule_.placement = static_cast<PlacementKind>(choice.value_or(0));
    }
    if (const YAML::Node* node = required("backward")) {
      schedule_.split = read_choice(file_, *node, "backward", kBackward, sink_) == 1;
    }
  }

  std::optional<int> read_count(const YAML::Node& node, std::string_view name) {
    const auto text = read_scalar(file_, node, name, sink_);
    if (!text) return std::nullopt;
    int value = 0;
    const char* end = text->text().data() + text->text().size();
    const auto [stop, fault] = std::from_chars(text->text().data(), end, value);
    if (fault == std::errc() && stop == end && value >= 1 && value <= kMaxChunks) return value;
    error(node, fmt::format("{} is '{}', not an integer from 1 to {}", name, text->text(), kMaxChunks));
    return std::nullopt;
  }

  // `chunks: 2` is fixed; `chunks: {default: 2, min: 2}` is a range, `max` may bound it above.
  void read_chunks() {
    const YAML::Node* node = required("chunks");
    if (!node) return;
    ChunkRange& chunks = schedule_.chunks;
    if (!node->IsMap()) {
      chunks.value = read_count(*node, "chunks").value_or(1);
      chunks.low = chunks.high = chunks.value;
    } else {
      constexpr std::array<std::string_view, 3> kKeys = {"default", "min", "max"};
      const YamlMap map = read_map(file_, *node, "chunks", kKeys, sink_);
      const auto value = [&](std::string_view key, int otherwise) {
        const YAML::Node* entry = map.find(key);
        return entry ? read_count(*entry, fmt::format("chunks {}", key)).value_or(otherwise) : otherwise;
      };
      if (!map.find("default")) error(*node, "chunks needs 'default'");
      chunks.value = value("default", 1);
      chunks.low = value("min", 1);
      chunks.high = value("max", kMaxChunks);
      if (chunks.low > chunks.value || chunks.value > chunks.high) {
        error(*node,
              fmt::format("default {} does not lie between min {} and max {}", chunks.value, chunks.low, chunks.high));
      }
    }
    const auto fixed = [&](int count) {
      if (chunks.low == count && chunks.high == count) return;
      error(*node, fmt::format("placement {} takes chunks: {}", name(schedule_.placement), count));
    };
    if (schedule_.placement == PlacementKind::V) fixed(2);
    if (schedule_.placement == PlacementKind::Bidirectional) fixed(1);
  }

  bool valid_name(const YamlEntry& entry, std::string_view what) {
    const std::string& text = entry.key;
    const bool word = std::ranges::all_of(text, [](char c) {
      return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    });
    if (!word || text.empty() || (text[0] >= '0' && text[0] <= '9')) {
      error(entry.key_node, fmt::format("{} '{}': a name is letters, digits and '_', no digit first", what, text));
      return false;
    }
    const bool taken = std::ranges::find(kReserved, text) != kReserved.end() ||
                       std::ranges::find(expression_words(), text) != expression_words().end() ||
                       std::ranges::find(schedule_.names.all, text) != schedule_.names.all.end();
    if (taken) error(entry.key_node, fmt::format("{} '{}': the name has a meaning already", what, text));
    return !taken;
  }

  // A parameter's default may be `{priced: F}`. True where the entry is a map, right or wrong.
  bool read_priced(const YamlEntry& entry, std::vector<ScheduleParameter>& result) {
    if (!entry.value.IsMap()) return false;
    constexpr std::array<std::string_view, 1> kKeys = {"priced"};
    const YamlMap map = read_map(file_, entry.value, fmt::format("parameter '{}'", entry.key), kKeys, sink_);
    const YAML::Node* what = map.find("priced");
    if (map.ok && !what) error(entry.value, "a default that is a map needs 'priced'");
    const auto choice = what ? read_choice(file_, *what, "priced", priced_names(), sink_) : std::nullopt;
    if (choice) result.push_back({entry.key, {}, priced_time(*choice)});
    schedule_.names.all.push_back(entry.key);
    return true;
  }
  static bool read_priced(const YamlEntry&, const std::vector<ScheduleLet>&) { return false; }

  // Each value sees what stands before it.
  template <class Named>
  void read_named(std::string_view key, std::string_view what, std::vector<Named>& result) {
    const YAML::Node* node = map_.find(key);
    if (!node) return;
    for (const YamlEntry& entry : read_open_map(file_, *node, key, sink_).entries) {
      if (!valid_name(entry, what) || read_priced(entry, result)) continue;
      const auto text = read_scalar(file_, entry.value, fmt::format("{} '{}'", what, entry.key), sink_);
      const auto& names = schedule_.names;
      auto value = text ? Expression::parse(*text, names.until(names.all.size()), sink_) : std::nullopt;
      if (value) result.emplace_back(Named{.name = entry.key, .value = std::move(*value)});
      schedule_.names.all.push_back(entry.key);
    }
  }

  void read_names() {
    ScheduleNames& names = schedule_.names;
    names.all = {"p", "m", "v"};
    read_named("parameters", "parameter", schedule_.parameters);
    names.parameters_end = names.all.size();
    names.all.push_back("r");
    read_named("let", "name", schedule_.lets);
    names.lets_end = names.all.size();
    for (const char* counter : {"F", "B", "I", "W"}) names.all.emplace_back(counter);
  }

  std::optional<Expression> read_expression(const YAML::Node* node, std::string_view name, std::size_t scope) {
    if (!node) return std::nullopt;
    const auto text = read_scalar(file_, *node, name, sink_);
    return text ? Expression::parse(*text, schedule_.names.until(scope), sink_) : std::nullopt;
  }

  std::optional<MessageTemplate> read_message(const ScalarText& text) {
    MessageTemplate result;
    std::size_t at = 0;
    while (true) {
      const std::size_t open = text.text().find('{', at);
      result.texts.push_back(text.text().substr(at, open - at));
      if (open == std::string::npos) return result;
      const std::size_t close = text.text().find('}', open);
      if (close == std::string::npos) {
        text.error(sink_, open, "this '{' is not closed");
        return std::nullopt;
      }
      auto value = Expression::parse(text.part(open + 1, close - open - 1),
                                     schedule_.names.until(schedule_.names.parameters_end), sink_);
      if (!value) return std::nullopt;
      result.values.push_back(std::move(*value));
      at = close + 1;
    }
  }

  void read_require() {
    const YAML::Node* list = map_.find("require");
    if (!list || !is_list(file_, *list, "require", sink_)) return;
    constexpr std::array<std::string_view, 2> kKeys = {"that", "message"};
    for (const YAML::Node& node : *list) {
      const YamlMap map = read_map(file_, node, "a condition", kKeys, sink_);
      const YAML::Node* message = map.find("message");
      if (map.ok && (!map.find("that") || !message)) error(node, "a condition needs 'that' and 'message'");
      auto that = read_expression(map.find("that"), "that", schedule_.names.parameters_end);
      const auto text = message ? read_scalar(file_, *message, "message", sink_) : std::nullopt;
      auto parts = text ? read_message(*text) : std::nullopt;
      if (that && parts) schedule_.require.push_back({std::move(*that), std::move(*parts)});
    }
  }

  void read_check() {
    const YAML::Node* list = map_.find("check");
    if (!list || !is_list(file_, *list, "check", sink_)) return;
    constexpr std::array<std::string_view, 3> kKeys = {"what", "equals", "when"};
    for (const YAML::Node& node : *list) {
      const YamlMap map = read_map(file_, node, "a check", kKeys, sink_);
      const YAML::Node* what = map.find("what");
      if (map.ok && (!what || !map.find("equals"))) error(node, "a check needs 'what' and 'equals'");
      const auto measure = what ? read_choice(file_, *what, "what", measure_names(), sink_) : std::nullopt;
      auto equals = read_expression(map.find("equals"), "equals", schedule_.names.all.size());
      auto when = read_expression(map.find("when"), "when", schedule_.names.all.size());
      if (measure && equals) {
        schedule_.check.push_back({static_cast<Measure>(*measure), std::move(*equals), std::move(when)});
      }
    }
  }

  // One order, or an order and a search that begins with it.
  void read_order() {
    const OrderKind *chosen = nullptr, *search = nullptr;
    std::vector<std::string_view> keys;
    for (const OrderKind& kind : order_kinds()) {
      keys.push_back(kind.key);
      if (!map_.find(kind.key)) continue;
      if (chosen && !kind.improves) {
        error(*map_.find(kind.key),
              fmt::format("a schedule has one order, but both '{}' and '{}' are here", chosen->key, kind.key));
        return;
      }
      (kind.improves ? search : chosen) = &kind;
    }
    if (!chosen && !search) {
      if (map_.ok) error(file_.root(), fmt::format("a schedule needs an order: one of {}", fmt::join(keys, ", ")));
      return;
    }
    if (chosen) read_order(*chosen, nullptr);
    if (search && (!chosen || schedule_.order)) read_order(*search, schedule_.order);
  }

  void read_order(const OrderKind& kind, std::shared_ptr<const OrderGenerator> start) {
    const YAML::Node& node = *map_.find(kind.key);
    const YAML::Node* walk = start ? nullptr : map_.find("walk");
    if (walk && !kind.walks) error(*walk, fmt::format("'walk' has no meaning beside '{}'", kind.key));
    schedule_.order_kind = kind.key;
    schedule_.order_at = file_.position(node);
    schedule_.order = kind.read({file_, node, walk, schedule_, std::move(start)}, sink_);
  }

  const YamlFile& file_;
  ir::DiagnosticSink& sink_;
  YamlMap map_;
  Schedule schedule_;
};

}  // namespace

std::optional<Schedule> read_schedule(SourcePtr source, ir::DiagnosticSink& sink) {
  const auto file = YamlFile::parse(std::move(source), sink);
  return file ? ScheduleReader(*file, sink).read() : std::nullopt;
}

}  // namespace fem::compiler

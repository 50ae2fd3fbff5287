#include "compiler/config.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/yaml.hpp"

namespace fem::compiler {
namespace {

constexpr std::array<std::string_view, 7> kRequired = {"model.layers", "model.hidden", "model.intermediate",
                                                       "model.heads",  "model.vocab",  "batch.global",
                                                       "batch.seq_len"};

std::string key_of(const ir::SettingInfo& row) { return fmt::format("{}.{}", row.section, row.key); }

std::vector<std::string_view> keys_of(std::string_view section) {
  std::vector<std::string_view> keys;
  for (const ir::SettingInfo& row : ir::setting_table()) {
    if (row.section == section) keys.push_back(row.key);
  }
  return keys;
}

}  // namespace

std::span<const std::string_view> required_settings() { return kRequired; }

void Configuration::error(ir::DiagnosticSink& sink, std::initializer_list<std::string_view> keys,
                          std::string message) const {
  for (std::string_view key : keys) {
    const auto rows = ir::setting_table();
    const auto row = std::ranges::find_if(rows, [&](const ir::SettingInfo& r) { return key_of(r) == key; });
    if (row == rows.end()) continue;
    const Place& place = places_[static_cast<std::size_t>(row - rows.begin())];
    if (!place.source) continue;
    place.source->error(sink, place.at.line, place.at.column, std::move(message));
    return;
  }
  sink.error({file_->file(), 0, 0}, std::move(message));
}

class ConfigurationReader {
 public:
  ConfigurationReader(SourcePtr file, ir::DiagnosticSink& sink) : sink_(sink) {
    result_.file_ = std::move(file);
    result_.places_.resize(ir::setting_table().size());
  }

  std::optional<Configuration> read(std::span<const std::string> overrides) {
    const int errors = sink_.errors();
    read_file();
    if (!overrides.empty()) apply(overrides);
    if (sink_.errors() == errors) check_required();
    return sink_.errors() == errors ? std::optional(std::move(result_)) : std::nullopt;
  }

 private:
  void read_file() {
    const auto file = YamlFile::parse(result_.file_, sink_);
    if (!file) return;
    if (file->root().IsNull()) return;  // an empty file: check_required() names what is missing
    std::vector<std::string_view> sections;
    for (const ir::SectionInfo& section : ir::setting_sections()) sections.push_back(section.name);
    for (const YamlEntry& section : read_map(*file, file->root(), "the configuration", sections, sink_).entries) {
      if (section.value.IsNull()) continue;
      const auto keys = keys_of(section.key);
      const std::string what = fmt::format("section {}", section.key);
      for (const YamlEntry& entry : read_map(*file, section.value, what, keys, sink_).entries) {
        read_value(*file, *ir::find_setting(section.key, entry.key), entry);
      }
    }
  }

  void read_value(const YamlFile& file, const ir::SettingInfo& row, const YamlEntry& entry) {
    if (entry.value.IsNull()) {
      file.error(sink_, entry.key_node, fmt::format("{} has no value", key_of(row)));
      return;
    }
    std::string text;
    if (row.type == ir::SettingType::Ints && entry.value.IsSequence()) {
      const auto items = read_integers(file, row, entry.value);
      if (!items) return;
      text = fmt::format("{}", fmt::join(*items, ","));
    } else {
      const auto scalar = read_scalar(file, entry.value, key_of(row), sink_);
      if (!scalar) return;
      text = scalar->text();
    }
    set(row, text, result_.file_, file.position(entry.value));
  }

  std::optional<std::vector<std::int64_t>> read_integers(const YamlFile& file, const ir::SettingInfo& row,
                                                         const YAML::Node& list) {
    std::vector<std::int64_t> items;
    for (const YAML::Node& node : list) {
      const auto scalar = read_scalar(file, node, fmt::format("an item of {}", key_of(row)), sink_);
      if (!scalar) return std::nullopt;
      std::int64_t value = 0;
      const char* end = scalar->text().data() + scalar->text().size();
      const auto [stop, fault] = std::from_chars(scalar->text().data(), end, value);
      if (fault != std::errc() || stop != end) {
        file.error(sink_, node, fmt::format("{}: '{}' is not an integer", key_of(row), scalar->text()));
        return std::nullopt;
      }
      items.push_back(value);
    }
    return items;
  }

  void set(const ir::SettingInfo& row, const std::string& text, const SourcePtr& source, Position at) {
    const std::string reason = ir::set_from_text(result_.settings_, row, text);
    if (!reason.empty()) {
      source->error(sink_, at.line, at.column, fmt::format("{}: '{}' is {}", key_of(row), text, reason));
      return;
    }
    result_.places_[static_cast<std::size_t>(&row - ir::setting_table().data())] = {source, at};
  }

  // All overrides are the lines of one pseudo-file.
  void apply(std::span<const std::string> overrides) {
    const auto source =
        std::make_shared<const ir::SourceText>("--set", fmt::format("{}\n", fmt::join(overrides, "\n")));
    int line = 0;
    for (const std::string& text : overrides) apply(text, source, ++line);
  }

  void apply(const std::string& text, const SourcePtr& source, int line) {
    const auto fail = [&](std::size_t offset, std::string message) {
      source->error(sink_, line, static_cast<int>(offset) + 1, std::move(message));
    };
    const std::size_t equals = text.find('=');
    const std::size_t dot = text.find('.');
    if (text.find('\n') != std::string::npos) return fail(0, "an override is one line");
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      return fail(0, fmt::format("'{}' does not read section.key=value", text));
    }
    const std::string section = text.substr(0, dot), key = text.substr(dot + 1, equals - dot - 1);
    std::vector<std::string_view> sections;
    for (const ir::SectionInfo& info : ir::setting_sections()) sections.push_back(info.name);
    if (std::ranges::find(sections, section) == sections.end()) {
      return fail(0, fmt::format("unknown section '{}'{}", section, ir::did_you_mean(section, sections)));
    }
    const ir::SettingInfo* row = ir::find_setting(section, key);
    if (!row) {
      return fail(dot + 1, fmt::format("unknown key '{}' in section {}{}", key, section,
                                       ir::did_you_mean(key, keys_of(section))));
    }
    set(*row, text.substr(equals + 1), source, {line, static_cast<int>(equals) + 2});
  }

  void check_required() {
    std::vector<std::string_view> missing;
    for (std::string_view key : kRequired) {
      const std::size_t dot = key.find('.');
      const ir::SettingInfo* row = ir::find_setting(key.substr(0, dot), key.substr(dot + 1));
      if (!result_.places_[static_cast<std::size_t>(row - ir::setting_table().data())].source) missing.push_back(key);
    }
    if (missing.empty()) return;
    sink_.error({result_.file_->file(), 0, 0},
                fmt::format("required settings are missing: {}", fmt::join(missing, ", ")));
  }

  ir::DiagnosticSink& sink_;
  Configuration result_;
};

std::optional<Configuration> read_configuration(SourcePtr file, std::span<const std::string> overrides,
                                                ir::DiagnosticSink& sink) {
  return ConfigurationReader(std::move(file), sink).read(overrides);
}

}  // namespace fem::compiler

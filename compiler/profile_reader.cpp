#include "compiler/profile_reader.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "compiler/yaml.hpp"

namespace fem::compiler {
namespace {

using passes::HardwareProfile;
using passes::LinkLevel;
using passes::NumberFormat;
using passes::PassTimes;

constexpr std::array<std::string_view, 9> kKeys = {"name", "reference", "matmul",    "memory",  "host",
                                                   "overhead", "node_size", "links", "measured"};
constexpr std::array<std::string_view, 4> kMatmul = {"fp32", "bf16", "fp16", "efficiency"};
constexpr std::array<std::string_view, 2> kMemory = {"bandwidth", "capacity"};
constexpr std::array<std::string_view, 1> kHost = {"bandwidth"};
constexpr std::array<std::string_view, 2> kLinks = {"in_node", "between_nodes"};
constexpr std::array<std::string_view, 2> kLink = {"latency", "bandwidth"};
constexpr std::array<std::string_view, 6> kMeasured = {"embedding", "block", "head", "stages", "optimizer", "p2p"};
constexpr std::array<std::string_view, 4> kPasses = {"F", "I", "W", "B"};
constexpr double kMost = 1e24;  // above any machine; keeps products of figures finite

struct Range {
  double least;
  double most;
  std::string_view text;
};
constexpr Range kPositive = {1e-24, kMost, "a number above 0"};
constexpr Range kNotNegative = {0, kMost, "a number, 0 or above"};
constexpr Range kShare = {1e-24, 1, "a number above 0 and at most 1"};

class ProfileReader {
 public:
  ProfileReader(const YamlFile& file, ir::DiagnosticSink& sink) : file_(file), sink_(sink) {}

  std::optional<HardwareProfile> read() {
    const int errors = sink_.errors();
    const YamlMap map = read_map(file_, file_.root(), "a profile", kKeys, sink_);
    if (!file_.root().IsMap()) return std::nullopt;
    if (const YAML::Node* node = required(map, file_.root(), "a profile", "name")) {
      if (const auto text = read_scalar(file_, *node, "name", sink_)) profile_.name = text->text();
    }
    if (const YAML::Node* node = required(map, file_.root(), "a profile", "reference")) {
      read_scalar(file_, *node, "reference", sink_);
    }
    read_compute(map);
    read_links(map);
    if (const YAML::Node* node = map.find("measured")) read_measured(*node);
    return sink_.errors() == errors ? std::optional(std::move(profile_)) : std::nullopt;
  }

 private:
  // The value of a key that must be there; an absent one is an error at the map.
  const YAML::Node* required(const YamlMap& map, const YAML::Node& at, std::string_view what, std::string_view key) {
    const YAML::Node* node = map.find(key);
    if (!node) file_.error(sink_, at, fmt::format("{} needs '{}'", what, key));
    return node;
  }

  std::optional<double> number(const YAML::Node& node, std::string_view name, const Range& range) {
    const auto text = read_scalar(file_, node, name, sink_);
    if (!text) return std::nullopt;
    double value = 0;
    const char* end = text->text().data() + text->text().size();
    const auto [stop, fault] = std::from_chars(text->text().data(), end, value);
    if (fault == std::errc() && stop == end && std::isfinite(value) && value >= range.least && value <= range.most) {
      return value;
    }
    file_.error(sink_, node, fmt::format("{} is '{}', not {}", name, text->text(), range.text));
    return std::nullopt;
  }

  // A number of a map that must be there.
  void figure(const YamlMap& map, const YAML::Node& at, std::string_view what, std::string_view key, const Range& range,
              double& value) {
    const YAML::Node* node = required(map, at, what, key);
    if (!node) return;
    value = number(*node, what == "a profile" ? std::string(key) : fmt::format("{}.{}", what, key), range).value_or(1);
  }

  // The map under a key of the profile.
  std::optional<YamlMap> section(const YamlMap& map, std::string_view key, std::span<const std::string_view> keys) {
    const YAML::Node* node = required(map, file_.root(), "a profile", key);
    if (!node) return std::nullopt;
    YamlMap result = read_map(file_, *node, key, keys, sink_);
    return node->IsMap() ? std::optional(std::move(result)) : std::nullopt;
  }

  void read_compute(const YamlMap& map) {
    if (const auto matmul = section(map, "matmul", kMatmul)) {
      const YAML::Node& at = *map.find("matmul");
      for (int f = 0; f < passes::kNumberFormats; ++f) {
        const std::string_view format = passes::name(static_cast<NumberFormat>(f));
        figure(*matmul, at, "matmul", format, kPositive, profile_.matmul[static_cast<std::size_t>(f)]);
      }
      figure(*matmul, at, "matmul", "efficiency", kShare, profile_.efficiency);
    }
    if (const auto memory = section(map, "memory", kMemory)) {
      figure(*memory, *map.find("memory"), "memory", "bandwidth", kPositive, profile_.memory_bandwidth);
      if (const YAML::Node* node = memory->find("capacity")) {
        profile_.memory_capacity = number(*node, "memory.capacity", kPositive).value_or(0);
      }
    }
    if (const auto host = section(map, "host", kHost)) {
      figure(*host, *map.find("host"), "host", "bandwidth", kPositive, profile_.host_bandwidth);
    }
    figure(map, file_.root(), "a profile", "overhead", kNotNegative, profile_.overhead);
  }

  void read_links(const YamlMap& map) {
    if (const YAML::Node* node = required(map, file_.root(), "a profile", "node_size")) {
      profile_.node_size = integer(*node, "node_size", 1, 1 << 20).value_or(1);
    }
    const auto links = section(map, "links", kLinks);
    if (!links) return;
    for (int l = 0; l < passes::kLinkLevels; ++l) {
      const std::string_view level = passes::name(static_cast<LinkLevel>(l));
      const YAML::Node* node = required(*links, *map.find("links"), "links", level);
      if (!node) continue;
      const std::string what = fmt::format("links.{}", level);
      const YamlMap link = read_map(file_, *node, what, kLink, sink_);
      if (!node->IsMap()) continue;
      passes::Link& value = profile_.links[static_cast<std::size_t>(l)];
      figure(link, *node, what, "latency", kNotNegative, value.latency);
      figure(link, *node, what, "bandwidth", kPositive, value.bandwidth);
    }
  }

  std::optional<int> integer(const YAML::Node& node, std::string_view name, int least, int most) {
    const auto text = read_scalar(file_, node, name, sink_);
    if (!text) return std::nullopt;
    int value = 0;
    const char* end = text->text().data() + text->text().size();
    const auto [stop, fault] = std::from_chars(text->text().data(), end, value);
    if (fault == std::errc() && stop == end && value >= least && value <= most) return value;
    file_.error(sink_, node, fmt::format("{} is '{}', not an integer from {} to {}", name, text->text(), least, most));
    return std::nullopt;
  }

  void read_measured(const YAML::Node& node) {
    for (const YamlEntry& entry : read_map(file_, node, "measured", kMeasured, sink_).entries) {
      const std::string what = fmt::format("measured.{}", entry.key);
      if (entry.key == "optimizer") {
        profile_.measured.optimizer = number(entry.value, what, kNotNegative);
      } else if (entry.key == "p2p") {
        profile_.measured.p2p = number(entry.value, what, kNotNegative);
      } else if (entry.key == "stages") {
        for (const YamlEntry& stage : read_open_map(file_, entry.value, what, sink_).entries) {
          const auto index = integer(stage.key_node, "a stage of measured.stages", 0, 32767);
          if (index) profile_.measured.stage[*index] = passes_of(stage.value, fmt::format("{}.{}", what, stage.key));
        }
      } else {
        for (int k = 0; k < ir::kUnitKinds; ++k) {
          if (ir::name(static_cast<ir::UnitKind>(k)) != entry.key) continue;
          profile_.measured.unit[static_cast<std::size_t>(k)] = passes_of(entry.value, what);
        }
      }
    }
  }

  PassTimes passes_of(const YAML::Node& node, const std::string& what) {
    PassTimes times;
    const std::array<std::optional<double>*, 4> fields = {&times.forward, &times.input, &times.weight,
                                                          &times.backward};
    for (const YamlEntry& entry : read_map(file_, node, what, kPasses, sink_).entries) {
      for (std::size_t i = 0; i < kPasses.size(); ++i) {
        if (kPasses[i] != entry.key) continue;
        *fields[i] = number(entry.value, fmt::format("{}.{}", what, entry.key), kNotNegative);
      }
    }
    return times;
  }

  const YamlFile& file_;
  ir::DiagnosticSink& sink_;
  HardwareProfile profile_;
};

}  // namespace

std::optional<HardwareProfile> read_profile(const SourcePtr& source, ir::DiagnosticSink& sink) {
  const auto file = YamlFile::parse(source, sink);
  return file ? ProfileReader(*file, sink).read() : std::nullopt;
}

}  // namespace fem::compiler

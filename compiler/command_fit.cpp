#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "compiler/command_support.hpp"
#include "compiler/config_text.hpp"
#include "compiler/fit_text.hpp"
#include "compiler/profile_reader.hpp"
#include "ir/bytes.hpp"

namespace fem::compiler {
namespace {

// The argument, or memory.limit, or what the machine has.
std::optional<std::string> memory_of(const FitArguments& arguments, const ir::Settings& settings,
                                     const passes::HardwareProfile& profile, ir::DiagnosticSink& sink) {
  if (!arguments.memory && !settings.memory.limit.empty()) return settings.memory.limit;
  if (!arguments.memory && profile.memory_capacity > 0) return fmt::format("{:.0f}", profile.memory_capacity);
  const std::string given = arguments.memory.value_or("");
  const auto bytes = ir::parse_bytes(given);
  if (bytes && *bytes > 0) return given;
  const std::string near = ir::nearest_bytes(given);
  std::string message = fmt::format("'{}' is not a number of bytes, ", given);
  message += near.empty() ? "as 80GiB or 512MB" : fmt::format("did you mean '{}'?", near);
  if (bytes) message = "a rank needs more than nothing, as 80GiB";
  if (!arguments.memory) message = "neither memory.limit nor the profile says what a rank has: give it, as 80GiB";
  sink.error({"--memory", 0, 0}, std::move(message));
  return std::nullopt;
}

std::vector<std::string> split_keys(const std::vector<std::string>& lists) {
  std::vector<std::string> keys;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      keys.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return keys;
}

int write_best(const std::string& path, const std::string& config, const FitRow& best, Streams streams) {
  const std::string text = fmt::format("# {} with the settings that femc fit found the fastest.\n{}", config,
                                       configuration_text(best.settings, fit_keys()));
  const std::string reason = write_file(path, text);
  if (reason.empty()) return kSuccess;
  streams.err << fmt::format("{}: error: cannot write: {}\n", path, reason);
  return kRuntime;
}

}  // namespace

int fit_command(const FitArguments& arguments, const ScheduleFolders& folders, Streams streams) {
  const SourcePtr file = read_source(arguments.config, streams);
  if (!file) return kDiagnosed;
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(file, arguments.set, sink);
  const auto profile = load_profile(arguments.profile, default_profile_folders(), sink);
  if (!configuration || !profile) return report(sink, streams);
  const auto memory = memory_of(arguments, configuration->settings(), *profile, sink);
  if (!memory) return report(sink, streams);
  const FitRequest request{*memory, split_keys(arguments.fix), arguments.top, *profile};
  const auto result = fit(*configuration, folders, request, sink);
  if (!result) return report(sink, streams);
  streams.out << (arguments.json ? fit_json(*result, request, *configuration)
                                 : fit_text(*result, request, *configuration));
  if (result->ranked.empty()) {
    sink.error({arguments.config, 0, 0}, nothing_fits(*result, request));
    return report(sink, streams);
  }
  if (arguments.output) {
    if (const int code = write_best(*arguments.output, arguments.config, result->ranked.front(), streams)) return code;
    if (!arguments.json) {
      streams.out << fmt::format("{}: the first of the table; comments of {} are not kept\n", *arguments.output,
                                 arguments.config);
    }
  }
  return finish_output(streams);
}

}  // namespace fem::compiler

// Helpers of the compiler's tests.
#pragma once

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "compiler/commands.hpp"
#include "compiler/config.hpp"
#include "compiler/planner.hpp"
#include "compiler/schedule_files.hpp"

namespace fem::compiler::test {

inline SourcePtr source(std::string text, std::string file = "test.yaml") {
  return std::make_shared<const ir::SourceText>(std::move(file), std::move(text));
}

inline ScheduleFolders folders() { return {std::filesystem::path(FEM_SOURCE) / "schedules"}; }

// A schedule of the source tree; the test fails where it does not load.
inline Schedule schedule(const std::string& name) {
  ir::DiagnosticSink sink;
  auto result = load_schedule(
      name, folders(), [&](std::string message) { sink.error({}, std::move(message)); }, sink);
  if (!result) throw std::runtime_error(sink.text());
  return std::move(*result);
}

// Parameters at their defaults.
inline ScheduleCase sizes(const Schedule& schedule, int p, std::int64_t m, int v) {
  ir::DiagnosticSink sink;
  const auto scope = parameter_scope(schedule, p, m, v, {}, sink);
  if (!scope) throw std::runtime_error(sink.text());
  return {p, m, v, {scope->begin() + 3, scope->end()}};
}

// The first rank's text of the order and so on; throws with the diagnostics.
inline std::vector<std::string> order_texts(const Schedule& schedule, const ScheduleCase& sizes) {
  ir::DiagnosticSink sink;
  const auto order = generate_order(schedule, sizes, sink);
  if (!order) throw std::runtime_error(sink.text());
  std::vector<std::string> texts;
  for (const RankOrder& rank : *order) texts.push_back(order_text(rank));
  return texts;
}

inline std::string config_text(int layers, int pp, int global) {
  std::ostringstream text;
  text << "model: {layers: " << layers << ", hidden: 64, intermediate: 128, heads: 4, vocab: 256}\n"
       << "parallel: {pp: " << pp << "}\nbatch: {global: " << global << ", seq_len: 16}\n";
  return text.str();
}

// A folder of its own, removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fem-compiler-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;

 private:
  std::filesystem::path path_;
};

}  // namespace fem::compiler::test

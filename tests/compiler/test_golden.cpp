// Transcripts of femc in golden/*.txt: commands, the files that they read, and what the program prints (both streams,
// and the exit code where it is not 0). FEM_UPDATE=1 rewrites the outputs.
//
//   $ femc plan run.yaml -o run.fem
//   == run.yaml
//   model: ...
//   == output
//   $ femc plan run.yaml -o run.fem
//   run.fem: 1 program, ...
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "support.hpp"

namespace fem::compiler::test {
namespace {

namespace fs = std::filesystem;

struct Transcript {
  std::string head;  // everything before "== output"
  std::vector<std::string> commands;
  std::vector<std::pair<std::string, std::string>> files;
  std::string output;
};

Transcript read_transcript(const fs::path& path) {
  std::ifstream stream(path);
  Transcript result;
  std::string line;
  std::string* section = nullptr;
  while (std::getline(stream, line)) {
    if (section != &result.output) {
      if (line == "== output") {
        result.head += line + "\n";
        section = &result.output;
        continue;
      }
      result.head += line + "\n";
    }
    if (section != &result.output && line.starts_with("== ")) {
      result.files.emplace_back(line.substr(3), "");
      section = &result.files.back().second;
    } else if (section) {
      *section += line + "\n";
    } else if (line.starts_with("$ ")) {
      result.commands.push_back(line.substr(2));
    }
  }
  return result;
}

std::string run(const std::string& command, const fs::path& folder) {
  const std::string program = (fs::absolute(FEM_BIN) / "femc").string();
  std::string shell = "cd '" + folder.string() + "' && ";
  shell += command.starts_with("femc") ? "'" + program + "'" + command.substr(4) : command;
  FILE* pipe = ::popen(("(" + shell + ") 2>&1").c_str(), "r");
  if (!pipe) throw std::runtime_error("popen failed");
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), size);
  const int status = ::pclose(pipe);
  if (!WIFEXITED(status)) output += "(ended by a signal)\n";
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) output += "exit " + std::to_string(WEXITSTATUS(status)) + "\n";
  return output;
}

// Folders differ between machines.
std::string without_source_folder(std::string text) {
  const std::string folder = fs::canonical(FEM_SOURCE).string() + "/";
  for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at))
    text.erase(at, folder.size());
  return text;
}

std::vector<std::string> golden_files() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(FEM_TEST_DATA) / "golden")) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, Transcript) {
  const fs::path path = fs::path(FEM_TEST_DATA) / "golden" / (GetParam() + ".txt");
  const Transcript transcript = read_transcript(path);
  ASSERT_FALSE(transcript.commands.empty());
  TemporaryFolder folder;
  for (const auto& [name, text] : transcript.files) folder.write(name, text);
  std::string output;
  for (const std::string& command : transcript.commands) {
    output += "$ " + command + "\n" + without_source_folder(run(command, folder.path()));
  }
  if (std::getenv("FEM_UPDATE")) {
    std::ofstream(path) << transcript.head << output;
    return;
  }
  EXPECT_EQ(output, transcript.output) << "FEM_UPDATE=1 rewrites " << path;
}

INSTANTIATE_TEST_SUITE_P(Compiler, Golden, testing::ValuesIn(golden_files()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fem::compiler::test

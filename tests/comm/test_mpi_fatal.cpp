// What must end a world, between processes: started under mpirun, judged by its output and exit code.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "fatal_rules.hpp"

namespace fem::exec::test {
namespace {

using testing::HasSubstr;

struct Ended {
  int exit_code;
  std::string output;
};

Ended shell(const std::string& command) {
  Ended ended{-1, {}};
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return ended;
  std::array<char, 4096> part;
  while (std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) ended.output.append(part.data(), count);
  const int status = pclose(pipe);
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

const std::string kProgram = FEM_BIN "/" FEM_RULES_MPI;
const std::string kMpirun = "timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n ";

std::string line_of_rank(const std::string& output, int rank) {
  const std::size_t begin = output.find("RANK " + std::to_string(rank) + ": ");
  if (begin == std::string::npos) return {};
  return output.substr(begin, output.find('\n', begin) - begin);
}

class MpiFatalRules : public testing::TestWithParam<FatalRule> {};

TEST_P(MpiFatalRules, EndEveryRankWithCode3) {
  constexpr int kRanks = 3;
  const Ended ended = shell(kMpirun + std::to_string(kRanks) + " " + kProgram + " --fatal " + GetParam().name);
  EXPECT_EQ(ended.exit_code, 3) << ended.output;
  for (int rank = 0; rank < kRanks; ++rank) expect_error(GetParam(), rank, line_of_rank(ended.output, rank));
}

INSTANTIATE_TEST_SUITE_P(All, MpiFatalRules, testing::ValuesIn(fatal_rules().begin(), fatal_rules().end()),
                         [](const auto& info) { return info.param.name; });

TEST(MpiLaunch, ProgramStartsMpirunItself) {
  const Ended ended = shell("timeout 60 " + kProgram + " --relaunch 2");
  EXPECT_EQ(ended.exit_code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("MpiRules_pp2_dp1"));
}

TEST(MpiLaunch, ButOnlyOnce) {
  const Ended ended = shell("FEMTOTRON_STARTED_MPIRUN=1 timeout 60 " + kProgram + " --relaunch 2");
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.output, HasSubstr("gave it no rank"));
}

TEST(MpiLaunch, WithoutMpirunItSaysSo) {
  const Ended ended = shell("PATH=/nowhere " + kProgram + " --relaunch 2");
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.output, HasSubstr("no mpirun in PATH"));
}

}  // namespace
}  // namespace fem::exec::test

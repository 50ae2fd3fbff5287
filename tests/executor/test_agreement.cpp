#include "executor/agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Agreement> agree(const std::vector<std::uint64_t>& digests, const std::vector<std::string>& problems) {
  ir::Settings settings = test::small_settings();
  settings.parallel.dp = static_cast<std::int64_t>(digests.size());
  std::vector<Agreement> found(digests.size());
  test::on_ranks(settings, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    found[rank] = agree_to_start(comm, digests[rank], problems[rank]);
  });
  return found;
}

TEST(Agreement, AllStartWithTheSamePlanAndNoProblem) {
  for (const Agreement& agreement : agree({5, 5, 5}, {"", "", ""})) {
    EXPECT_TRUE(agreement.start);
    EXPECT_EQ(agreement.message, "");
  }
}

TEST(Agreement, TheLowestRankWithAProblemSpeaksAndNoneStarts) {
  const std::vector<Agreement> found = agree({5, 5, 5, 6}, {"", "no file", "no file either", ""});
  for (const Agreement& agreement : found) EXPECT_FALSE(agreement.start);
  EXPECT_THAT((std::vector{found[0].message, found[1].message, found[2].message, found[3].message}),
              ElementsAre("", "no file", "", ""));
}

TEST(Agreement, ARankWithAnotherPlanSaysSo) {
  const std::vector<Agreement> found = agree({5, 5, 6, 7}, {"", "", "", ""});
  for (const Agreement& agreement : found) EXPECT_FALSE(agreement.start);
  EXPECT_THAT(found[2].message, HasSubstr("rank 2 has another plan"));
  EXPECT_EQ(found[0].message + found[1].message + found[3].message, "");
}

}  // namespace
}  // namespace fem::exec

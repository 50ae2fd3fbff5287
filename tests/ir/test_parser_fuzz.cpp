// Damaged plan text: parsed or refused, never a crash, a hang or an absurd allocation.
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "tests/ir/corruption.hpp"
#include "tests/ir/plans.hpp"

namespace fem::ir::testing {
namespace {

// Parses, and where that succeeds demands the round trip and runs the verifier, too.
void examine(const std::string& text) {
  const SourceText source("fuzz.plan", text);
  DiagnosticSink sink;
  PlanLocations locations;
  const std::optional<Plan> plan = parse_plan(source, sink, &locations);
  ASSERT_EQ(plan.has_value(), !sink.has_errors());
  ASSERT_EQ(sink.text().empty(), plan.has_value());
  if (!plan) return;
  const std::string printed = print_plan(*plan);
  DiagnosticSink again;
  const std::optional<Plan> second = parse_plan(SourceText("again.plan", printed), again);
  ASSERT_TRUE(second) << again.text();
  ASSERT_EQ(*second, *plan);
  ASSERT_EQ(print_plan(*second), printed);
  const bool ok = verify(*plan, sink, {&source, &locations});
  ASSERT_EQ(ok, !sink.has_errors());
}

TEST(ParserFuzz, DamagedPlans) {
  Random random(42);
  std::vector<std::string> originals;
  for (const PlanShape& shape : all_shapes()) {
    if (shape.microbatches <= 2) originals.push_back(print_plan(communication_plan(shape)));
  }
  for (int n = 0; n < 6000; ++n) {
    std::string text = originals[random() % originals.size()];
    for (std::size_t k = 1 + random() % 4; k > 0; --k) damage(random, text);
    examine(text);
    ASSERT_FALSE(HasFatalFailure()) << n << '\n' << text;
  }
}

TEST(ParserFuzz, RandomBytes) {
  Random random(43);
  for (int n = 0; n < 2000; ++n) {
    examine(random_bytes(random, random() % 300));
    examine("femtotron plan v1\nlevel lane\nprogram p microbatches=1\nrank 0\n" + random_bytes(random, random() % 300));
    ASSERT_FALSE(HasFatalFailure()) << n;
  }
}

TEST(ParserFuzz, HostileSizes) {
  examine("femtotron plan v1\nlevel stage\nprogram p microbatches=2000000000\nrank 0\n");
  examine("femtotron plan v1\nmodel layers=9223372036854775807 hidden=9223372036854775807\n"
          "batch micro=9223372036854775807 seq_len=9223372036854775807 global=-9223372036854775808\nlevel stage\n");
  examine("femtotron plan v1\nparallel pp=32767 dp=32767 tp=32767 cp=32767\nlevel stage\n");
  examine("femtotron plan v1\nlevel stage\nstage 0 pp=32767 prev=32767 next=32767 units=0..32766\nprogram p "
          "microbatches=1\nrank 0\n");
  std::string long_line = "femtotron plan v1\nlevel stage\nprogram p microbatches=1\nrank 0\n  ";
  for (int i = 0; i < 100000; ++i) long_line += "Forward";
  examine(long_line);
  examine(std::string(1 << 20, 'x'));
  examine(std::string(1 << 20, '\n'));
}

TEST(ParserFuzz, AMillionActionsRoundTrip) {
  const Plan plan = communication_plan(
      {.pp = 32, .microbatches = 1024, .order = Order::AllForwardThenBackward, .placement = Placement::V,
       .batches = false});
  const std::string text = print_plan(plan);
  DiagnosticSink sink;
  const std::optional<Plan> parsed = parse_plan(SourceText("big.plan", text), sink);
  ASSERT_TRUE(parsed) << sink.text();
  EXPECT_TRUE(*parsed == plan);
}

}  // namespace
}  // namespace fem::ir::testing

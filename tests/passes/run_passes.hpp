// A pipeline of passes on a plan, as femc runs it: each is verified. And what came out of it, as text.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "ir/plan.hpp"
#include "ir/text.hpp"
#include "passes/manager.hpp"

namespace fem::test {

inline ir::Plan run_passes(const std::string& pipeline_text, ir::Plan plan) {
  ir::DiagnosticSink sink;
  const auto pipeline = passes::parse_pipeline(ir::SourceText("pipeline", pipeline_text), sink);
  EXPECT_TRUE(pipeline && passes::run_pipeline(*pipeline, plan, sink)) << sink.text();
  return plan;
}

// The first rank's part of the first program, an action a line.
inline std::string program_text(const ir::Plan& plan) {
  std::string out;
  for (const ir::Action& a : plan.programs[0].ranks[0].actions) out += ir::action_text({&a, 1}) + "\n";
  return out;
}

}  // namespace fem::test

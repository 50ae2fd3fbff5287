// A pipeline of passes on a plan, as femc runs it: each is verified.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "ir/plan.hpp"
#include "passes/manager.hpp"

namespace fem::test {

inline ir::Plan run_passes(const std::string& pipeline_text, ir::Plan plan) {
  ir::DiagnosticSink sink;
  const auto pipeline = passes::parse_pipeline(ir::SourceText("pipeline", pipeline_text), sink);
  EXPECT_TRUE(pipeline && passes::run_pipeline(*pipeline, plan, sink)) << sink.text();
  return plan;
}

}  // namespace fem::test

#include "tests/executor/configured_plan.hpp"

#include <memory>
#include <stdexcept>
#include <utility>

#include "compiler/planner.hpp"
#include "compiler/schedule_files.hpp"
#include "passes/manager.hpp"

namespace fem::exec::test {

ir::Plan configured_plan(const std::string& text, const std::vector<std::string>& set) {
  ir::DiagnosticSink sink;
  const auto fail = [&] { throw std::runtime_error(sink.text()); };
  const auto configuration =
      compiler::read_configuration(std::make_shared<const ir::SourceText>("case.yaml", text), set, sink);
  if (!configuration) fail();
  const auto schedule = compiler::load_schedule(
      configuration->settings().schedule.name, compiler::default_schedule_folders(),
      [&](std::string why) { sink.error({}, why); }, sink);
  if (!schedule) fail();
  auto plan = compiler::make_plan(*configuration, *schedule, sink);
  if (!plan) fail();
  const ir::SourceText names("passes", passes::default_pipeline(plan->settings));
  const auto pipeline = passes::parse_pipeline(names, sink);
  if (!pipeline || !passes::run_pipeline(*pipeline, *plan, sink)) fail();
  return std::move(*plan);
}

}  // namespace fem::exec::test

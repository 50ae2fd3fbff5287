#include "ir/verify.hpp"

#include "ir/verify_checks.hpp"

namespace fem::ir {
namespace {

using namespace verifying;

void verify_program(const Subject& subject, Report& report) {
  const int before = report.errors();
  check_actions(subject, report);
  if (report.errors() > before) return;
  check_coverage(subject, report);
  check_replicas(subject, report);
  const bool covered = report.errors() == before;
  check_dataflow(subject, report);
  const int before_lanes = report.errors();
  check_lanes(subject, report);
  if (report.errors() == before_lanes) check_races(subject, report);
  // An unmatched message is a deadlock, too, but its cause has been said.
  if (!covered) return;
  const int unmatched = report.errors();
  check_matching(subject, report);
  if (report.errors() == unmatched) check_deadlock(subject, report);
}

void verify_plan(const Plan& plan, Report& report) {
  check_settings(plan, report);
  if (report.errors() > 0) return;
  check_stages(plan, report);
  check_programs(plan, report);
  if (report.errors() > 0) return;
  const Layout layout(plan);
  for (std::size_t i = 0; i < plan.programs.size(); ++i) verify_program({plan, layout, i}, report);
}

}  // namespace

bool verify(const Plan& plan, DiagnosticSink& sink, VerifySource source, MemoryLimit limit) {
  Report report(plan, sink, source);
  verify_plan(plan, report);
  report.finish();
  return report.errors() == 0 && (limit == MemoryLimit::Ignored || verify_memory(plan, sink, source));
}

bool verify_memory(const Plan& plan, DiagnosticSink& sink, VerifySource source) {
  if (plan.settings.memory.limit.empty()) return true;
  Report report(plan, sink, source);
  const Layout layout(plan);
  for (std::size_t i = 0; i < plan.programs.size(); ++i) check_memory({plan, layout, i}, report);
  report.finish();
  return report.errors() == 0;
}

}  // namespace fem::ir

// The checks that verify() runs, by theme. Used by the verifier's files only.
#pragma once

#include "ir/verify_layout.hpp"
#include "ir/verify_report.hpp"

namespace fem::ir::verifying {

// V01, V04. What they find makes the rest meaningless.
void check_settings(const Plan& plan, Report& report);
void check_programs(const Plan& plan, Report& report);
// V02, V03, likewise.
void check_stages(const Plan& plan, Report& report);

struct Subject {
  const Plan& plan;
  const Layout& layout;
  std::size_t index;  // of the program in the plan

  const Program& program() const { return plan.programs[index]; }
};

// V05 to V11: all later checks may index by operands.
void check_actions(const Subject& subject, Report& report);
// V12 to V16.
void check_coverage(const Subject& subject, Report& report);
// V26.
void check_replicas(const Subject& subject, Report& report);
// V17 to V20.
void check_dataflow(const Subject& subject, Report& report);
// V21, V22. Presumes that V14 holds.
void check_matching(const Subject& subject, Report& report);
// V23. Presumes V21 and V22.
void check_deadlock(const Subject& subject, Report& report);
// V24.
void check_lanes(const Subject& subject, Report& report);
// V28. Presumes that dataflow is right.
void check_memory(const Subject& subject, Report& report);
// V25. Presumes V24.
void check_races(const Subject& subject, Report& report);

}  // namespace fem::ir::verifying

// A simulated program as one HTML file that needs nothing else: a row for each rank and lane, and a memory curve.
#pragma once

#include <string>
#include <vector>

#include "passes/memory_timeline.hpp"
#include "passes/simulate.hpp"

namespace fem::compiler {

struct TimelinePicture {
  std::string title;
  std::vector<std::string> figures;  // shown below the title
  bool seconds = false;              // the simulation's unit of time; otherwise slots
};

// The page (timeline_page.html) draws on a canvas, only what is in view; once it has drawn, the body carries the number
// of actions in data-done, or the reason in data-error.
std::string timeline_html(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation,
                          const std::vector<passes::RankMemory>& memory, const TimelinePicture& picture);

}  // namespace fem::compiler

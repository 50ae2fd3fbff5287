// The layouts of a search: pipeline and data-parallel ranks, micro-batch and schedule, which decide the order of
// forwards and backwards; and what of a plan the candidates of one layout share.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/fit.hpp"
#include "compiler/order.hpp"
#include "compiler/schedule.hpp"

namespace fem::compiler {

struct FitLayout {
  FitChoice choice;  // recompute, zero and reduce as configured
  std::shared_ptr<const Schedule> schedule;
  ScheduleCase sizes;
  std::vector<std::int64_t> blocks;
  Placement placement;

  enum class State : std::uint8_t { Unplanned, Planned, Twin, Failed } state = State::Unplanned;
  ir::Plan plan;       // at Level::Stage
  std::string reason;  // Twin: the schedule that gives the same plan; Failed: why there is none

  // By recompute and pipeline rank: bytes beside parameters, gradients and optimizer state. ZeRO does not change them,
  // unless lanes run side by side.
  std::map<std::string, std::vector<std::int64_t>> held;
};

// Collects the settings that are not ranked, with the nearest miss of each reason.
class FitMisses {
 public:
  // The miss with the smallest distance is told; of equals the first.
  void add(FitReason reason, const std::string& schedule, std::int64_t count, double distance, std::string text);
  std::vector<FitMissed> report() const;

 private:
  struct Entry {
    FitMissed missed;
    double distance;
  };
  std::map<std::pair<FitReason, std::string>, Entry> entries_;
};

class FitLayouts {
 public:
  FitLayouts(const Configuration& configuration, const FitSpace& space, const ScheduleFolders& folders,
             FitMisses& misses)
      : configuration_(configuration), space_(space), folders_(folders), misses_(misses) {}

  // All layouts whose sizes divide and whose schedule takes the shape; the others are counted. False after a diagnosed
  // error: the configured schedule does not load.
  bool find(ir::DiagnosticSink& sink);
  std::vector<FitLayout>& all() { return layouts_; }

  // Makes the layout's plan, once.
  void plan(FitLayout& layout);

 private:
  std::int64_t per_layout() const;
  bool load(ir::DiagnosticSink& sink);
  void add(const Configuration& configuration, const FitChoice& choice,
           const std::shared_ptr<const Schedule>& schedule);

  const Configuration& configuration_;
  const FitSpace& space_;
  const ScheduleFolders& folders_;
  FitMisses& misses_;
  std::vector<std::shared_ptr<const Schedule>> schedules_;  // of space_.schedules that load
  std::vector<FitLayout> layouts_;
};

}  // namespace fem::compiler

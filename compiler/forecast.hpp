// A program on a machine: times, memory, bytes and throughput, and their words.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/diagnostics.hpp"
#include "passes/cost_model.hpp"
#include "passes/memory_timeline.hpp"
#include "passes/simulate.hpp"
#include "passes/throughput.hpp"
#include "passes/traffic.hpp"

namespace fem::compiler {

// The program of that name; null after an error at --program that names the nearest.
const ir::Program* find_program(const ir::Plan& plan, const std::string& name, ir::DiagnosticSink& sink);

struct Forecast {
  std::unique_ptr<passes::PricedCosts> costs;
  passes::Communication communication;
  passes::Simulation simulation;
  double asynchronous_step = 0;  // the step's time if communication held up no rank
  double serial_step = 0;        // of a plan with lanes: if each rank did one thing after the other
  std::vector<passes::RankMemory> memory;
  passes::Traffic traffic;
  passes::Throughput throughput;
};

// Empty after an error: the plan cannot be priced, or it blocks. The plan must be verified.
std::optional<Forecast> forecast(const ir::Plan& plan, const ir::Program& program, passes::HardwareProfile profile,
                                 passes::Communication communication, ir::DiagnosticSink& sink);

// The rank with the most work, which bounds the step from below: its share of the work of all ranks, and its work over
// the mean of the ranks.
struct HeaviestRank {
  std::size_t rank = 0;
  double share = 0, over_mean = 0;
};
HeaviestRank heaviest_rank(std::span<const double> work);
HeaviestRank heaviest_rank(const passes::Simulation& simulation);  // by time in compute actions

// What `femc simulate` prints, for people and for programs. Keys of the JSON are stable; docs/simulation.md lists them.
std::string forecast_text(const ir::Plan& plan, const ir::Program& program, const Forecast& forecast);
std::string forecast_json(const ir::Plan& plan, const ir::Program& program, const Forecast& forecast);

std::string seconds_text(double seconds);  // "1.23 ms"

}  // namespace fem::compiler

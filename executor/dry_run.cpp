#include "executor/dry_run.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "executor/comm/null_communicator.hpp"
#include "executor/error.hpp"
#include "executor/interpreter.hpp"
#include "executor/meta_operators.hpp"
#include "executor/run_inputs.hpp"
#include "executor/tracking_allocator.hpp"
#include "executor/world.hpp"
#include "ir/bytes.hpp"
#include "ir/replicas.hpp"

namespace fem::exec {
namespace {

DryRank run_rank(const ir::Plan& plan, const Topology& topology, Communicator& comm, int steps) {
  DryRank found;
  found.rank = comm.rank();
  found.at = topology.coordinates(comm.rank());
  CountAllocations allocations;
  allocations.counter().at_new_peak = [&] { found.peak_action = comm.progress().action(ir::Lane::Compute); };
  const ir::Group pieces = ir::piece_group(plan.settings);
  const ReplicaPlace replica{comm.group_rank(pieces), comm.group_size(pieces)};
  Parameters parameters(plan, found.at.pp, replica, c10::kMeta);
  Interpreter interpreter(plan, topology, comm, parameters, comm.progress(), LaneMode::Inline);
  const ir::Program* eval = plan.settings.data.eval.empty() ? nullptr : plan.find("eval");
  for (int step = 1; step <= steps; ++step) {
    StepInput input;
    input.step = input.update = step;
    interpreter.run(*plan.find("train"), input);
    if (eval) interpreter.run(*eval, input);
  }
  found.memory =
      measure(parameters, interpreter.pool(), interpreter.host_pool(), comm, allocations.counter());
  allocations.counter().at_new_peak = nullptr;  // what it refers to goes away
  return found;
}

}  // namespace

void check_dry_run_plan(const ir::Plan& plan, std::optional<int> pp) {
  check_plan(plan);
  const std::int64_t ranks = plan.settings.parallel.pp;
  if (pp && (*pp < 0 || *pp >= ranks))
    throw ExecutionError("the plan has no pipeline rank " + std::to_string(*pp) + "; its ranks: 0 to " +
                         std::to_string(ranks - 1));
}

std::vector<DryRank> dry_run(const ir::Plan& plan, std::optional<int> pp, int steps) {
  check_dry_run_plan(plan, pp);
  const Topology topology(plan);
  const int last = static_cast<int>(plan.settings.parallel.pp) - 1;
  track_allocations(c10::DeviceType::Meta);
  register_meta_operators();
  std::vector<DryRank> found;
  for (int p = pp.value_or(0); p <= pp.value_or(last); ++p) {
    World alone;
    alone.push_back(make_null_communicator(topology, topology.rank({.pp = p})));
    run_ranks(alone, [&](Communicator& comm) { found.push_back(run_rank(plan, topology, comm, steps)); });
  }
  return found;
}

std::string dry_run_table(std::span<const DryRank> ranks) {
  constexpr int kWidth = 13;  // of the longest name
  std::vector<std::string> names{"parameters", "masters", "gradients", "optimizer", "blocks",
                                 "workspace",  "beside",  "peak",      "communication"};
  const bool offloads = std::ranges::any_of(ranks, [](const DryRank& rank) { return rank.memory.host > 0; });
  if (offloads) names.push_back("(host)");
  std::string table = "rank";
  for (const std::string& name : names) table += fmt::format(" {:>{}}", name, kWidth);
  table += "  peak reached at\n";
  for (const DryRank& rank : ranks) {
    const RankMemory& m = rank.memory;
    const std::int64_t buffers = m.parameters + m.masters + m.gradients + m.optimizer + m.blocks + m.workspace;
    const std::int64_t peak = m.allocator_peak - m.host;  // host memory is from the same allocator here
    std::vector<std::int64_t> bytes{m.parameters, m.masters,      m.gradients, m.optimizer, m.blocks,
                                    m.workspace,  peak - buffers, peak,        m.communication};
    if (offloads) bytes.push_back(m.host);
    table += fmt::format("{:>4}", rank.at.pp);
    for (const std::int64_t count : bytes) table += fmt::format(" {:>{}}", ir::bytes_text(count), kWidth);
    table += fmt::format("  {}\n", rank.peak_action.empty() ? "the start" : rank.peak_action);
  }
  return table;
}

}  // namespace fem::exec

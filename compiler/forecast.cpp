#include "compiler/forecast.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/bytes.hpp"
#include "ir/text.hpp"

namespace fem::compiler {
namespace {

std::string bubble_line(std::string_view name, double span, const passes::Bubble& bubble) {
  return fmt::format("{:<11} {}, bubble {}: {:.2f}% over ideal time, {:.2f}% over total time\n", name,
                     seconds_text(span), seconds_text(bubble.time), 100 * bubble.over_ideal, 100 * bubble.over_total);
}

std::string stages_of(const ir::Plan& plan, int rank) {
  std::vector<int> own;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].pp == rank) own.push_back(static_cast<int>(s));
  }
  return fmt::format("{}", fmt::join(own, ","));
}

std::string peak_text(const ir::Program& program, std::size_t rank, const passes::RankMemory& memory) {
  if (memory.peak_action < 0) return "the state alone";
  const std::span<const ir::Action> actions = program.ranks[rank].actions;
  const auto at = static_cast<std::size_t>(memory.peak_action);
  return fmt::format("{} at {}", ir::action_text(actions.subspan(at, ir::batch_size(actions, at))),
                     seconds_text(memory.peak_time));
}

// On lanes: what of a rank's busy time runs beside communication.
bool on_lanes(const ir::Plan& plan, const Forecast& forecast) {
  return plan.level == ir::Level::Lane && forecast.communication == passes::Communication::Rendezvous;
}

std::string rank_table(const ir::Plan& plan, const ir::Program& program, const Forecast& forecast) {
  const bool lanes = on_lanes(plan, forecast);
  const auto overlap = [&](const std::string& text) { return lanes ? fmt::format(" {:>10}", text) : std::string(); };
  std::string text = fmt::format("{:>4} {:>8} {:>10} {:>10}{} {:>9} {:>11} {:>11} {:>11} {:>11}  {}\n", "rank",
                                 "stages", "busy", "waiting", overlap("overlap"), "in flight", "parameters",
                                 "gradients", "optimizer", "peak", "reached at");
  const double capacity = forecast.costs->profile().memory_capacity;
  for (std::size_t r = 0; r < forecast.memory.size(); ++r) {
    const passes::RankTimes& times = forecast.simulation.ranks[r];
    const passes::RankMemory& memory = forecast.memory[r];
    const auto kind = [&](ir::MemoryKind k) { return memory.state[static_cast<std::size_t>(k)]; };
    text += fmt::format("{:>4} {:>8} {:>10} {:>10}{} {:>9} {:>11} {:>11} {:>11} {:>11}  {}\n", r,
                        stages_of(plan, static_cast<int>(r)), seconds_text(times.busy), seconds_text(times.waiting),
                        overlap(seconds_text(times.overlap)),
                        times.peak_in_flight, ir::bytes_text(kind(ir::MemoryKind::Parameters)),
                        ir::bytes_text(kind(ir::MemoryKind::Gradients)),
                        ir::bytes_text(kind(ir::MemoryKind::Masters) + kind(ir::MemoryKind::Optimizer)),
                        ir::bytes_text(memory.peak),
                        peak_text(program, r, memory));
    if (capacity > 0 && static_cast<double>(memory.peak) > capacity) {
      text += fmt::format("     rank {} needs more than the {} that this machine has for a rank\n", r,
                          ir::bytes_text(std::llround(capacity)));
    }
  }
  return text;
}

std::string traffic_text(const Forecast& forecast) {
  const passes::Traffic& traffic = forecast.traffic;
  const auto sent = [](double bytes) { return ir::bytes_text(std::llround(bytes)); };
  std::string text = "traffic of all ranks, bytes sent\n";
  text += fmt::format("  {:<14} {:>12} {:>12}\n", "", "p2p", "collectives");
  text += fmt::format("  {:<14} {:>12} {:>12}\n", "inside nodes", sent(traffic.p2p.in_node),
                      sent(traffic.collectives.in_node));
  text += fmt::format("  {:<14} {:>12} {:>12}\n", "between nodes", sent(traffic.p2p.between_nodes),
                      sent(traffic.collectives.between_nodes));
  if (!traffic.pairs.empty()) text += "messages of one pipeline\n";
  for (const passes::PairTraffic& pair : traffic.pairs) {
    text += fmt::format("  rank {} to {}: {} messages, {}, {}\n", pair.from, pair.to, pair.messages,
                        ir::bytes_text(pair.bytes),
                        pair.link == passes::LinkLevel::InNode ? "inside a node" : "between nodes");
  }
  return text;
}

}  // namespace

const ir::Program* find_program(const ir::Plan& plan, const std::string& name, ir::DiagnosticSink& sink) {
  if (const ir::Program* program = plan.find(name)) return program;
  std::vector<std::string_view> names;
  for (const ir::Program& p : plan.programs) names.push_back(p.name);
  sink.error({"--program", 0, 0},
             fmt::format("the plan has no program '{}'{}", name, ir::did_you_mean(name, names)));
  return nullptr;
}

std::optional<Forecast> forecast(const ir::Plan& plan, const ir::Program& program, passes::HardwareProfile profile,
                                 passes::Communication communication, ir::DiagnosticSink& sink) {
  Forecast result;
  result.communication = communication;
  result.costs = passes::PricedCosts::create(plan, std::move(profile), sink);
  if (!result.costs) return std::nullopt;
  auto simulation = passes::simulate(plan, program, *result.costs, sink, {communication});
  if (!simulation) return std::nullopt;
  result.simulation = std::move(*simulation);
  result.asynchronous_step = result.simulation.step_time;
  if (communication == passes::Communication::Rendezvous) {
    const auto free = passes::simulate(plan, program, *result.costs, sink, {passes::Communication::Asynchronous});
    if (!free) return std::nullopt;
    result.asynchronous_step = free->step_time;
  }
  result.serial_step = result.simulation.step_time;
  if (on_lanes(plan, result)) {
    ir::Plan in_order = plan;
    in_order.level = ir::Level::Unit;
    const auto serial = passes::simulate(in_order, program, *result.costs, sink, {communication});
    if (!serial) return std::nullopt;
    result.serial_step = serial->step_time;
  }
  result.memory = passes::memory_timeline(plan, program, result.simulation);
  result.traffic = passes::traffic(plan, program, *result.costs);
  result.throughput = passes::throughput(plan, program, result.costs->profile(), result.simulation.step_time);
  return result;
}

HeaviestRank heaviest_rank(std::span<const double> work) {
  HeaviestRank result;
  double sum = 0;
  for (std::size_t r = 0; r < work.size(); ++r) {
    sum += work[r];
    if (work[r] > work[result.rank]) result.rank = r;
  }
  if (sum <= 0) return result;
  result.share = work[result.rank] / sum;
  result.over_mean = result.share * static_cast<double>(work.size());
  return result;
}

HeaviestRank heaviest_rank(const passes::Simulation& simulation) {
  std::vector<double> busy;
  for (const passes::RankTimes& rank : simulation.ranks) busy.push_back(rank.busy);
  return heaviest_rank(busy);
}

std::string seconds_text(double seconds) {
  constexpr std::array<std::pair<double, std::string_view>, 4> kUnits = {
      {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}}};
  for (const auto& [size, unit] : kUnits) {
    if (seconds >= size) return fmt::format("{:.4g} {}", seconds / size, unit);
  }
  return fmt::format("{:.4g} s", seconds);
}

std::string forecast_text(const ir::Plan& plan, const ir::Program& program, const Forecast& forecast) {
  const passes::HardwareProfile& profile = forecast.costs->profile();
  const passes::Simulation& simulation = forecast.simulation;
  const auto& parallel = plan.settings.parallel;
  std::string text = fmt::format("program {} on {}: {} pipeline ranks, dp={}, {} microbatches of {} x {} tokens, {}\n",
                                 program.name, profile.name, program.ranks.size(), parallel.dp, program.microbatches,
                                 plan.settings.batch.micro, plan.settings.batch.seq_len,
                                 plan.settings.precision.compute);
  const bool serial = forecast.communication == passes::Communication::Rendezvous;
  const std::string step = seconds_text(simulation.step_time);
  text += on_lanes(plan, forecast)
              ? fmt::format("step time   {} (lanes side by side; {} with one action of a rank after the other)\n", step,
                            seconds_text(forecast.serial_step))
          : serial ? fmt::format("step time   {} (senders and receivers wait for each other; {} if they did not)\n",
                                 step, seconds_text(forecast.asynchronous_step))
                   : fmt::format("step time   {} (communication holds up no rank)\n", step);
  const passes::Throughput& rate = forecast.throughput;
  text += fmt::format("tokens/s    {:.4g}, MFU {:.2f}% ({:.4g} operations a token, peak {:.4g} a second and rank)\n",
                      rate.tokens_per_second, 100 * rate.mfu, rate.operations_per_token,
                      profile.matmul_peak(passes::number_format(plan.settings)));
  const HeaviestRank heaviest = heaviest_rank(simulation);
  text += fmt::format("ideal       {} (the work of rank {}, the busiest: {:.3f} times the mean)\n",
                      seconds_text(simulation.ideal), heaviest.rank, heaviest.over_mean);
  text += bubble_line("makespan", simulation.makespan, simulation.makespan_bubble());
  text += bubble_line("stage span", simulation.stage_span, simulation.stage_span_bubble());
  return text + rank_table(plan, program, forecast) + traffic_text(forecast);
}

}  // namespace fem::compiler

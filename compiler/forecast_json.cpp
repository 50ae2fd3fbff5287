#include <nlohmann/json.hpp>

#include "compiler/forecast.hpp"
#include "ir/text.hpp"

namespace fem::compiler {
namespace {

using Json = nlohmann::ordered_json;

Json span(double seconds, const passes::Bubble& bubble) {
  return {{"seconds", seconds},
          {"bubble_seconds", bubble.time},
          {"bubble_over_ideal", bubble.over_ideal},
          {"bubble_over_total", bubble.over_total}};
}

Json rank_memory(const ir::Program& program, std::size_t rank, const passes::RankMemory& memory) {
  const auto kind = [&](ir::MemoryKind k) { return memory.state[static_cast<std::size_t>(k)]; };
  Json json = {{"parameters_bytes", kind(ir::MemoryKind::Parameters)},
               {"gradients_bytes", kind(ir::MemoryKind::Gradients)},
               {"optimizer_bytes", kind(ir::MemoryKind::Masters) + kind(ir::MemoryKind::Optimizer)},
               {"workspace_bytes", kind(ir::MemoryKind::Workspace)},
               {"communication_bytes", kind(ir::MemoryKind::Communication)},
               {"peak_bytes", memory.peak},
               {"peak_seconds", memory.peak_time},
               {"peak_action", nullptr}};
  if (memory.peak_action >= 0) {
    const std::span<const ir::Action> actions = program.ranks[rank].actions;
    const auto at = static_cast<std::size_t>(memory.peak_action);
    json["peak_action"] = ir::action_text(actions.subspan(at, ir::batch_size(actions, at)));
  }
  return json;
}

Json ranks(const ir::Plan& plan, const ir::Program& program, const Forecast& forecast) {
  Json list = Json::array();
  for (std::size_t r = 0; r < forecast.memory.size(); ++r) {
    const passes::RankTimes& times = forecast.simulation.ranks[r];
    Json stages = Json::array();
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      if (plan.stages[s].pp == static_cast<int>(r)) stages.push_back(s);
    }
    list.push_back({{"rank", r},
                    {"stages", stages},
                    {"first_start_seconds", times.first_start},
                    {"last_end_seconds", times.last_end},
                    {"busy_seconds", times.busy},
                    {"waiting_seconds", times.waiting},
                    {"overlap_seconds", times.overlap},
                    {"peak_in_flight", times.peak_in_flight},
                    {"memory", rank_memory(program, r, forecast.memory[r])}});
  }
  return list;
}

Json link_bytes(const passes::LinkBytes& bytes) {
  return {{"in_node_bytes", bytes.in_node}, {"between_nodes_bytes", bytes.between_nodes}};
}

Json traffic(const passes::Traffic& traffic) {
  Json pairs = Json::array();
  for (const passes::PairTraffic& pair : traffic.pairs) {
    pairs.push_back({{"from", pair.from},
                     {"to", pair.to},
                     {"messages", pair.messages},
                     {"bytes", pair.bytes},
                     {"link", passes::name(pair.link)}});
  }
  return {{"p2p", link_bytes(traffic.p2p)}, {"collectives", link_bytes(traffic.collectives)}, {"pairs", pairs}};
}

}  // namespace

std::string forecast_json(const ir::Plan& plan, const ir::Program& program, const Forecast& forecast) {
  const passes::Simulation& simulation = forecast.simulation;
  const passes::Throughput& rate = forecast.throughput;
  const bool serial = forecast.communication == passes::Communication::Rendezvous;
  const HeaviestRank heaviest = heaviest_rank(simulation);
  const Json json = {{"program", program.name},
                     {"profile", forecast.costs->profile().name},
                     {"communication", serial ? "rendezvous" : "asynchronous"},
                     {"level", ir::name(plan.level)},
                     {"precision", plan.settings.precision.compute},
                     {"pipeline_ranks", program.ranks.size()},
                     {"world_size", forecast.costs->layout().world()},
                     {"microbatches", program.microbatches},
                     {"tokens", rate.tokens},
                     {"step_seconds", simulation.step_time},
                     {"asynchronous_step_seconds", forecast.asynchronous_step},
                     {"serial_step_seconds", forecast.serial_step},
                     {"tokens_per_second", rate.tokens_per_second},
                     {"operations_per_token", rate.operations_per_token},
                     {"mfu", rate.mfu},
                     {"ideal_seconds", simulation.ideal},
                     {"heaviest_rank",
                      {{"rank", heaviest.rank}, {"share", heaviest.share}, {"over_mean", heaviest.over_mean}}},
                     {"makespan", span(simulation.makespan, simulation.makespan_bubble())},
                     {"stage_span", span(simulation.stage_span, simulation.stage_span_bubble())},
                     {"ranks", ranks(plan, program, forecast)},
                     {"traffic", traffic(forecast.traffic)}};
  return json.dump(2) + "\n";
}

}  // namespace fem::compiler

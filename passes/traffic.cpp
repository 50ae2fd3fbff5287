#include "passes/traffic.hpp"

#include <algorithm>
#include <cstddef>

#include "ir/replicas.hpp"

namespace fem::passes {
namespace {

// Groups of the mesh that one action of one pipeline rank's program stands for. A group that spans pipeline ranks is
// met in the program of each: it counts at the first alone.
double groups_of(const ir::Settings& settings, ir::Group group, bool first, std::int64_t replicas) {
  const auto& parallel = settings.parallel;
  switch (group) {
    case ir::Group::world: return first ? 1 : 0;
    case ir::Group::pp:
    case ir::Group::tied:
    case ir::Group::replica: return first ? static_cast<double>(replicas) : 0;
    case ir::Group::dp: return static_cast<double>(parallel.cp * parallel.tp);
    case ir::Group::cp: return static_cast<double>(parallel.dp * parallel.tp);
    case ir::Group::tp: return static_cast<double>(parallel.dp * parallel.cp);
    case ir::Group::ep: return static_cast<double>(replicas / parallel.ep);
    case ir::Group::dp_cp: return static_cast<double>(parallel.tp);
    case ir::Group::shard: return static_cast<double>(parallel.tp * ir::replicas(settings) / ir::pieces(settings));
    case ir::Group::replicate: return static_cast<double>(parallel.tp * ir::pieces(settings));
    case ir::Group::none: return 0;
  }
  return 0;
}

void add_collective(const ir::Plan& plan, int rank, const ir::Action& action, const PricedCosts& costs,
                    LinkBytes& total) {
  LinkBytes bytes = all_reduce_bytes(costs.shape(action.group, rank), costs.payload(action));
  // A gather and a reduce-scatter are each half of an all-reduce.
  const bool half = action.kind == ir::ActionKind::Unshard || action.kind == ir::ActionKind::ReduceScatter;
  const bool first = costs.groups().members(action.group, rank).front() == rank;
  const double groups =
      groups_of(plan.settings, action.group, first, costs.layout().per_pipeline_rank()) * (half ? 0.5 : 1);
  total.in_node += groups * bytes.in_node;
  total.between_nodes += groups * bytes.between_nodes;
}

}  // namespace

Traffic traffic(const ir::Plan& plan, const ir::Program& program, const PricedCosts& costs) {
  Traffic result;
  const std::size_t ranks = program.ranks.size();
  std::vector<PairTraffic> table(ranks * ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (const ir::Action& a : program.ranks[r].actions) {
      if (ir::is_send(a.kind)) {
        PairTraffic& pair = table[r * ranks + static_cast<std::size_t>(a.peer)];
        ++pair.messages;
        pair.bytes += costs.sizes().stage(a.stage).activation;
      } else if (a.group != ir::Group::none) {
        add_collective(plan, static_cast<int>(r), a, costs, result.collectives);
      }
    }
  }
  const ProcessLayout& layout = costs.layout();
  for (std::size_t i = 0; i < table.size(); ++i) {
    PairTraffic& pair = table[i];
    if (pair.messages == 0) continue;
    pair.from = static_cast<int>(i / ranks);
    pair.to = static_cast<int>(i % ranks);
    pair.link = costs.link(pair.from, pair.to);
    const std::int64_t crossing = layout.pairs_between_nodes(pair.from, pair.to);
    result.p2p.between_nodes += static_cast<double>(crossing) * static_cast<double>(pair.bytes);
    result.p2p.in_node +=
        static_cast<double>(layout.per_pipeline_rank() - crossing) * static_cast<double>(pair.bytes);
    result.pairs.push_back(pair);
  }
  return result;
}

}  // namespace fem::passes

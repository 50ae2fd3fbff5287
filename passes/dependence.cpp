#include "passes/dependence.hpp"

#include <array>
#include <boost/graph/topological_sort.hpp>
#include <iterator>
#include <span>
#include <utility>

#include "ir/rank_groups.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;
using ir::ResourceKind;

constexpr std::uint32_t kNone = 0xffffffffu;

constexpr auto kKinds = [] {
  std::array<ResourceKind, ir::kResourceKinds> kinds{};
  for (int i = 0; i < ir::kResourceKinds; ++i) kinds[static_cast<std::size_t>(i)] = static_cast<ResourceKind>(i);
  return kinds;
}();

// The name under which a resource's state is kept: what enters a stage is what left its neighbour.
ResourceKind kept_as(ResourceKind kind) {
  if (kind == ResourceKind::Input) return ResourceKind::Output;
  return kind == ResourceKind::GradInput ? ResourceKind::GradOutput : kind;
}

class Builder {
 public:
  Builder(const ir::Plan& plan, const ir::Program& program, const CostModel& costs, RankOrder order)
      : plan_(plan),
        program_(program),
        costs_(costs),
        order_(order),
        groups_(plan.stages, static_cast<int>(program.ranks.size())),
        per_kind_(plan.stages.size() * static_cast<std::size_t>(program.microbatches)) {
    const std::size_t slots = 2 * per_kind_ * ir::kResourceKinds;
    writer_.assign(slots, kNone);
    readers_.assign(slots, kNone);
    halves_.assign(2 * per_kind_, kNone);
  }

  Dependences build() {
    number();
    if (before_communication()) find_makers();
    for (int r = 0; r < ranks(); ++r) scan(r);
    result_.graph = DependenceGraph(boost::edges_are_unsorted_multi_pass, ends_.begin(), ends_.end(), edges_.begin(),
                                    result_.action.size());
    return std::move(result_);
  }

 private:
  struct Use {
    std::uint32_t vertex, next;
  };

  const std::vector<Action>& actions(int r) const { return program_.ranks[static_cast<std::size_t>(r)].actions; }
  const ir::Stage& stage(int s) const { return plan_.stages[static_cast<std::size_t>(s)]; }
  std::uint32_t vertex(int r, std::size_t i) const { return result_.vertex[static_cast<std::size_t>(r)][i]; }

  void edge(std::uint32_t from, std::uint32_t to, double transfer = 0) {
    if (from == to) return;
    ends_.push_back({from, to});
    edges_.push_back({transfer});
  }

  int ranks() const { return static_cast<int>(program_.ranks.size()); }
  bool before_communication() const { return plan_.level == ir::Level::Stage; }

  void number();
  std::uint32_t slot(int r, ResourceKind kind, int s, int microbatch) const;
  template <class F>
  void each_slot(int r, ResourceKind kind, const Action& action, F f) const;
  void find_makers();
  void scan(int r);
  void use(int r, ResourceKind kind, const Action& action, std::uint32_t at);
  void define(int r, ResourceKind kind, const Action& action, std::uint32_t at, bool writes);
  double crossing_time(int r, std::uint32_t from, const Action& action) const;
  void join_message(int r, const Action& half, std::uint32_t at);

  const ir::Plan& plan_;
  const ir::Program& program_;
  const CostModel& costs_;
  RankOrder order_;
  ir::RankGroups groups_;
  std::size_t per_kind_;
  std::vector<std::uint32_t> writer_;   // by slot: the vertex that defined the resource last
  std::vector<std::uint32_t> readers_;  // by slot: head of the list of its uses since
  std::vector<Use> uses_;
  std::vector<std::uint32_t> halves_;  // by message: the half that was seen first
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ends_;
  std::vector<DependenceEdge> edges_;
  Dependences result_;
};

void Builder::number() {
  // Vertices of the collectives over pipeline ranks, in order, by group and its first member.
  std::vector<std::vector<std::uint32_t>> meetings(ir::kGroups * program_.ranks.size());
  for (int r = 0; r < ranks(); ++r) {
    std::array<std::size_t, ir::kGroups> met{};
    std::vector<std::uint32_t>& numbers = result_.vertex.emplace_back();
    for (std::size_t i = 0; i < actions(r).size(); ++i) {
      const Action& a = actions(r)[i];
      if (i > 0 && actions(r)[i - 1].joined() && !ir::is_p2p(a.kind)) {
        numbers.push_back(numbers.back());
        continue;
      }
      const std::span<const int> members = groups_.members(a.group, r);
      if (members.size() > 1) {
        std::vector<std::uint32_t>& shared = meetings[static_cast<std::size_t>(a.group) * program_.ranks.size() +
                                                      static_cast<std::size_t>(members.front())];
        const std::size_t k = met[static_cast<std::size_t>(a.group)]++;
        if (k < shared.size()) {
          numbers.push_back(shared[k]);
          continue;
        }
        shared.push_back(static_cast<std::uint32_t>(result_.action.size()));
      }
      numbers.push_back(static_cast<std::uint32_t>(result_.action.size()));
      result_.action.push_back({r, static_cast<std::int32_t>(i)});
    }
  }
  constexpr std::size_t kEdges = 4;  // about as many for each action
  ends_.reserve(kEdges * result_.action.size());
  edges_.reserve(kEdges * result_.action.size());
}

bool crosses(ResourceKind kind) { return kind == ResourceKind::Output || kind == ResourceKind::GradOutput; }

// Where the state of one resource is kept; kNone where it does not exist. `s` is the stage, or -1 for what a rank has
// once.
std::uint32_t Builder::slot(int r, ResourceKind kind, int s, int microbatch) const {
  bool per_microbatch = true;
  switch (kind) {
    case ResourceKind::Input:
      s = stage(s).prev;
      kind = ResourceKind::Output;
      break;
    case ResourceKind::GradInput:
      s = stage(s).prev;
      kind = ResourceKind::GradOutput;
      break;
    case ResourceKind::Output:
    case ResourceKind::GradOutput:
      if (stage(s).next < 0) s = -1;
      break;
    case ResourceKind::SavedRest:
      kind = ResourceKind::Saved;
      [[fallthrough]];
    case ResourceKind::Saved:
    case ResourceKind::SavedInput:
      if (program_.forward_only) s = -1;
      break;
    case ResourceKind::WeightWork:
    case ResourceKind::HostCopy:
      break;
    case ResourceKind::Shard:
      if (plan_.settings.parallel.zero == 0) kind = ResourceKind::Params;  // a whole copy is its own shard
      [[fallthrough]];
    case ResourceKind::Params:
    case ResourceKind::Grads:
    case ResourceKind::ReducedGrads:
    case ResourceKind::Optimizer:
    case ResourceKind::HostOptimizer:
      per_microbatch = false;
      break;
    case ResourceKind::Loss:
      // What the first stage notes of a microbatch is there before the last stage's part, which follows from it.
      if (s >= 0 && stage(s).next >= 0) return kNone;
      [[fallthrough]];
    case ResourceKind::Metrics:
    case ResourceKind::Norm:
      s = r;  // one a rank; there are at least as many stages as ranks
      per_microbatch = false;
      break;
  }
  if (s < 0) return kNone;
  // What crosses ranks has two copies once there is communication: one where it is made, one where it arrives.
  const int home = kind == ResourceKind::GradOutput ? stage(stage(s).next).pp : stage(s).pp;
  const bool away = crosses(kind) && !before_communication() && home != r;
  const std::size_t index = static_cast<std::size_t>(s) * static_cast<std::size_t>(program_.microbatches) +
                            static_cast<std::size_t>(per_microbatch ? microbatch : 0);
  return static_cast<std::uint32_t>((static_cast<std::size_t>(kind) * 2 + away) * per_kind_ + index);
}

// Without sends, who makes what another rank uses must be known before the ranks are scanned one by one.
void Builder::find_makers() {
  for (int r = 0; r < ranks(); ++r)
    for (std::size_t i = 0; i < actions(r).size(); ++i)
      for (ResourceKind kind : {ResourceKind::Output, ResourceKind::GradInput}) {
        const Action& a = actions(r)[i];
        if (!ir::info(a.kind).writes.has(kind)) continue;
        if (const std::uint32_t at = slot(r, kind, a.stage, a.microbatch); at != kNone) writer_[at] = vertex(r, i);
      }
}

void Builder::scan(int r) {
  std::uint32_t before = kNone;
  for (std::size_t i = 0; i < actions(r).size(); ++i) {
    const Action& a = actions(r)[i];
    const std::uint32_t at = vertex(r, i);
    const ir::ActionInfo& row = ir::info(a.kind);
    for (ResourceKind kind : kKinds) {
      if (row.reads.has(kind)) use(r, kind, a, at);
      if (row.writes.has(kind) || row.kills.has(kind)) define(r, kind, a, at, row.writes.has(kind));
    }
    if (ir::is_p2p(a.kind)) {
      join_message(r, a, at);
    } else {
      if (order_ == RankOrder::Kept && before != kNone) edge(before, at);
      before = at;
    }
  }
}

// Calls f with the slot of each resource that the operands name: an action without a stage names all of its rank's, a
// reduction of copies both where they lie on this rank.
template <class F>
void Builder::each_slot(int r, ResourceKind kind, const Action& action, F f) const {
  const int stages = static_cast<int>(plan_.stages.size());
  const bool per_rank = kind == ResourceKind::Loss || kind == ResourceKind::Metrics || kind == ResourceKind::Norm;
  if (action.group == ir::Group::tied || action.group == ir::Group::replica) {
    for (int s = 0; s < stages; ++s) {
      if (stage(s).pp == r && groups_.reduces_together(action.group, action.stage, s)) f(slot(r, kind, s, -1));
    }
    return;
  }
  for (int s = action.stage; s < stages; ++s) {
    if (s < 0 && !per_rank) continue;
    if (action.stage < 0 && s >= 0 && stage(s).pp != r) continue;
    if (const std::uint32_t at = slot(r, kind, s, action.microbatch); at != kNone) f(at);
    if (per_rank || action.stage >= 0) return;
  }
}

void Builder::use(int r, ResourceKind kind, const Action& action, std::uint32_t at) {
  const bool from_elsewhere = before_communication() && crosses(kept_as(kind));
  each_slot(r, kind, action, [&](std::uint32_t resource) {
    if (const std::uint32_t from = writer_[resource]; from != kNone)
      edge(from, at, from_elsewhere ? crossing_time(r, from, action) : 0);
    if (from_elsewhere) return;
    uses_.push_back({at, readers_[resource]});
    readers_[resource] = static_cast<std::uint32_t>(uses_.size() - 1);
  });
}

void Builder::define(int r, ResourceKind kind, const Action& action, std::uint32_t at, bool writes) {
  if (before_communication() && crosses(kept_as(kind))) return;  // made once and used once: find_makers has it
  each_slot(r, kind, action, [&](std::uint32_t resource) {
    for (std::uint32_t u = readers_[resource]; u != kNone; u = uses_[u].next) edge(uses_[u].vertex, at);
    readers_[resource] = kNone;
    if (writer_[resource] != kNone) edge(writer_[resource], at);
    if (writes) writer_[resource] = at;
  });
}

// At stage level: the time that the value takes to come from the rank that made it.
double Builder::crossing_time(int r, std::uint32_t from, const Action& action) const {
  const int maker = result_.action[from].rank;
  if (maker == r) return 0;
  Action half = action;
  half.kind = action.kind == ActionKind::Forward ? ActionKind::RecvForward : ActionKind::RecvBackward;
  return costs_.transfer(plan_, maker, r, half);
}

// The edge from a send to its receive, once both have been seen.
void Builder::join_message(int r, const Action& half, std::uint32_t at) {
  const bool send = ir::is_send(half.kind);
  std::uint32_t& other = halves_[ir::message_index(plan_.stages, program_.microbatches, half)];
  if (other == kNone) {
    other = at;
    return;
  }
  const double transfer = costs_.transfer(plan_, send ? r : half.peer, send ? half.peer : r, half);
  edge(send ? at : other, send ? other : at, transfer);
}

// Vertex times: a pair costs what it costs together, communication costs the edge from send to receive.
double vertex_time(const ir::Plan& plan, const ir::Program& program, const CostModel& costs, ActionIndex at) {
  const std::vector<Action>& actions = program.ranks[static_cast<std::size_t>(at.rank)].actions;
  const Action& action = actions[static_cast<std::size_t>(at.action)];
  if (ir::is_p2p(action.kind)) return 0;
  return costs.action(plan, at.rank, action, action.joined() ? &action + 1 : nullptr);
}

}  // namespace

Dependences dependences(const ir::Plan& plan, const ir::Program& program, const CostModel& costs, RankOrder order) {
  return Builder(plan, program, costs, order).build();
}

std::optional<CriticalPath> critical_path(const ir::Plan& plan, const ir::Program& program, const CostModel& costs,
                                          RankOrder order, ir::DiagnosticSink& sink) {
  const Dependences all = dependences(plan, program, costs, order);
  std::vector<std::uint32_t> sorted;  // consumers first
  sorted.reserve(all.action.size());
  try {
    boost::topological_sort(all.graph, std::back_inserter(sorted));
  } catch (const boost::not_a_dag&) {
    sink.error({}, "program " + program.name + ": actions depend on each other in a cycle");
    return std::nullopt;
  }
  // The longest time from a vertex's start to the end of everything, and the next vertex on the way.
  std::vector<double> tail(all.action.size(), 0);
  std::vector<std::uint32_t> next(all.action.size(), kNone);
  std::uint32_t first = kNone;
  for (const std::size_t v : sorted) {
    for (auto [e, end] = boost::out_edges(v, all.graph); e != end; ++e) {
      const double through = all.graph[*e].transfer + tail[boost::target(*e, all.graph)];
      if (next[v] != kNone && through <= tail[v]) continue;
      tail[v] = through;
      next[v] = static_cast<std::uint32_t>(boost::target(*e, all.graph));
    }
    tail[v] += vertex_time(plan, program, costs, all.action[v]);
    if (first == kNone || tail[v] > tail[first]) first = static_cast<std::uint32_t>(v);
  }
  CriticalPath path;
  if (first != kNone) path.length = tail[first];
  for (std::uint32_t v = first; v != kNone; v = next[v]) path.actions.push_back(all.action[v]);
  return path;
}

}  // namespace fem::passes

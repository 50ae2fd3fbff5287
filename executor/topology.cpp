#include "executor/topology.hpp"

#include <limits>
#include <string_view>

#include "executor/error.hpp"
#include "ir/replicas.hpp"

namespace fem::exec {
namespace {

int checked_size(std::int64_t size, std::string_view axis) {
  FEM_CHECK(size >= 1 && size <= std::numeric_limits<int>::max(),
            "parallel." + std::string(axis) + " is " + std::to_string(size) + ", it must be at least 1");
  return static_cast<int>(size);
}

// No plan has more stages than 16 bits count.
std::vector<ir::Stage> one_stage_a_rank(int pp) {
  if (pp > std::numeric_limits<std::int16_t>::max()) return {};
  std::vector<ir::Stage> stages(static_cast<std::size_t>(pp));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    stages[s].pp = static_cast<std::int16_t>(s);
    stages[s].prev = static_cast<std::int16_t>(static_cast<int>(s) - 1);
    stages[s].next = static_cast<std::int16_t>(s + 1 < stages.size() ? static_cast<int>(s) + 1 : -1);
  }
  return stages;
}

}  // namespace

Topology::Topology(const ir::Plan& plan) : Topology(plan.settings, plan.stages) {}

Topology::Topology(const ir::Settings& settings)
    : Topology(settings, one_stage_a_rank(checked_size(settings.parallel.pp, "pp"))) {}

Topology::Topology(const ir::Settings& settings, std::span<const ir::Stage> stages)
    : pp_(checked_size(settings.parallel.pp, "pp")),
      dp_(checked_size(settings.parallel.dp, "dp")),
      cp_(checked_size(settings.parallel.cp, "cp")),
      tp_(checked_size(settings.parallel.tp, "tp")),
      ep_(checked_size(settings.parallel.ep, "ep")),
      shard_(ir::has_shard_groups(settings) ? ir::pieces(settings) : 0),
      groups_(stages, pp_) {
  std::int64_t size = 1;
  for (int axis : {pp_, dp_, cp_, tp_}) {
    size *= axis;
    FEM_CHECK(size <= std::numeric_limits<int>::max(), "the mesh has more ranks than an int can count");
  }
  size_ = static_cast<int>(size);
  FEM_CHECK(dp_ % ep_ == 0, "parallel.ep = " + std::to_string(ep_) + " does not divide parallel.dp = " +
                                std::to_string(dp_));
  FEM_CHECK(shard_ == 0 || dp_ * cp_ % shard_ == 0, "parallel.shard = " + std::to_string(shard_) +
                                                        " does not divide parallel.dp * parallel.cp = " +
                                                        std::to_string(dp_ * cp_));
}

Coordinates Topology::coordinates(int rank) const {
  FEM_CHECK(rank >= 0 && rank < size_,
            "rank " + std::to_string(rank) + " is outside a world of " + std::to_string(size_));
  Coordinates at;
  at.tp = rank % tp_;
  rank /= tp_;
  at.cp = rank % cp_;
  rank /= cp_;
  at.dp = rank % dp_;
  at.pp = rank / dp_;
  return at;
}

int Topology::rank(Coordinates at) const {
  FEM_CHECK(at.pp >= 0 && at.pp < pp_ && at.dp >= 0 && at.dp < dp_ && at.cp >= 0 && at.cp < cp_ && at.tp >= 0 &&
                at.tp < tp_,
            "coordinates pp " + std::to_string(at.pp) + " dp " + std::to_string(at.dp) + " cp " +
                std::to_string(at.cp) + " tp " + std::to_string(at.tp) + " are outside the mesh");
  return ((at.pp * dp_ + at.dp) * cp_ + at.cp) * tp_ + at.tp;
}

std::vector<int> Topology::members(ir::Group group, int rank) const {
  const Coordinates own = coordinates(rank);
  if (group == ir::Group::tied || group == ir::Group::replica) {
    std::vector<int> ranks;
    for (const int pp : groups_.members(group, own.pp)) ranks.push_back(this->rank({pp, own.dp, own.cp, own.tp}));
    return ranks;
  }

  const auto replicas = [&](Coordinates at) { return at.pp == own.pp && at.tp == own.tp; };
  const auto replica = [&](Coordinates at) { return at.dp * cp_ + at.cp; };
  const auto belongs = [&](Coordinates at) {
    switch (group) {
      case ir::Group::world: return true;
      case ir::Group::pp: return at.dp == own.dp && at.cp == own.cp && at.tp == own.tp;
      case ir::Group::dp: return at.pp == own.pp && at.cp == own.cp && at.tp == own.tp;
      case ir::Group::cp: return at.pp == own.pp && at.dp == own.dp && at.tp == own.tp;
      case ir::Group::tp: return at.pp == own.pp && at.dp == own.dp && at.cp == own.cp;
      case ir::Group::ep:
        return at.pp == own.pp && at.cp == own.cp && at.tp == own.tp && at.dp / ep_ == own.dp / ep_;
      case ir::Group::dp_cp: return replicas(at);
      case ir::Group::shard:
        return at == own || (shard_ > 0 && replicas(at) && replica(at) / shard_ == replica(own) / shard_);
      case ir::Group::replicate:
        return at == own || (shard_ > 0 && replicas(at) && replica(at) % shard_ == replica(own) % shard_);
      case ir::Group::tied:
      case ir::Group::replica:
      case ir::Group::none: return at == own;
    }
    return false;
  };
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r)
    if (belongs(coordinates(r))) ranks.push_back(r);
  return ranks;
}

std::string Topology::place(int rank) const {
  const Coordinates at = coordinates(rank);
  std::string text = "pp " + std::to_string(at.pp) + " dp " + std::to_string(at.dp);
  if (cp_ > 1) text += " cp " + std::to_string(at.cp);
  if (tp_ > 1) text += " tp " + std::to_string(at.tp);
  return text;
}

}  // namespace fem::exec

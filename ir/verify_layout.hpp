// What the checks ask about the stages again and again. Valid only for stages that passed V02 and V03.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/plan.hpp"
#include "ir/rank_groups.hpp"

namespace fem::ir::verifying {

class Layout {
 public:
  explicit Layout(const Plan& plan);

  std::size_t stages() const { return stages_.size(); }
  std::size_t chains() const { return chains_; }
  std::size_t chain_length() const { return stages_.size() / chains_; }
  const Stage& stage(int s) const { return stages_[static_cast<std::size_t>(s)]; }
  std::size_t chain(int s) const { return chain_[static_cast<std::size_t>(s)]; }          // direction of a stage
  std::size_t local_index(int s) const { return local_[static_cast<std::size_t>(s)]; }   // among its rank's stages
  const std::vector<int>& stages_of(std::size_t rank) const { return of_rank_[rank]; }

  bool is_remote(int s, int neighbour) const { return neighbour >= 0 && stage(neighbour).pp != stage(s).pp; }
  bool receives_input(int s) const { return is_remote(s, stage(s).prev); }
  bool sends_output(int s) const { return is_remote(s, stage(s).next); }

  // Stages with a copy of the embedding matrix: the first and the last of each chain.
  int tied_copies(int s) const { return (stage(s).prev < 0) + (stage(s).next < 0); }

  const RankGroups& groups() const { return groups_; }

 private:
  const std::vector<Stage>& stages_;
  std::size_t chains_ = 0;
  std::vector<std::size_t> chain_, local_;
  std::vector<std::vector<int>> of_rank_;
  RankGroups groups_;
};

}  // namespace fem::ir::verifying

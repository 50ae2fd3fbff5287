#include "ir/verify_layout.hpp"

namespace fem::ir::verifying {

Layout::Layout(const Plan& plan)
    : stages_(plan.stages),
      chain_(plan.stages.size()),
      local_(plan.stages.size()),
      of_rank_(static_cast<std::size_t>(plan.settings.parallel.pp)),
      groups_(plan.stages, static_cast<int>(plan.settings.parallel.pp)) {
  for (std::size_t first = 0; first < stages_.size(); ++first) {
    if (stages_[first].prev >= 0) continue;
    for (int s = static_cast<int>(first); s >= 0; s = stage(s).next) chain_[static_cast<std::size_t>(s)] = chains_;
    ++chains_;
  }
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    std::vector<int>& mine = of_rank_[static_cast<std::size_t>(stages_[s].pp)];
    local_[s] = mine.size();
    mine.push_back(static_cast<int>(s));
  }
}

}  // namespace fem::ir::verifying

// Tells ThreadSanitizer what a batch of actions touches: LibTorch and MPI are not instrumented, so that without this a
// missing wait would go unseen. In other builds (no_announce.cpp) it does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/lane_uses.hpp"

namespace fem::exec {

class Announcer {
 public:
  // Of one program and rank of a plan of level lane.
  Announcer(const ir::Plan& plan, std::size_t program, std::size_t rank);

  // On the thread that executes the batch, before it does: batches are counted in program order.
  void announce(std::size_t batch) const;

 private:
  ir::LaneUses uses_;
  std::vector<ir::ArenaOffset> offsets_;
  std::unique_ptr<std::uint64_t[]> resources_;  // one word for each
  std::unique_ptr<std::uint64_t[]> arena_;      // one word for each 64 bytes of the arena
};

}  // namespace fem::exec

// Checks of a call's operands, and their text in messages: the same for every backend.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "executor/comm/communicator.hpp"

namespace fem::exec {

// ExecutionError where a peer is the caller or outside the world.
void check_peers(const Communicator& comm, std::span<const P2pHalf> halves);
// The same, and where a half with bytes has no data.
void check_halves(const Communicator& comm, std::span<const P2pHalf> halves);
// ExecutionError where the root is outside the group.
void check_root(const Communicator& comm, ir::Group group, int root);
// ExecutionError where the elements of a reduce_scatter_sum are not group_size equal blocks.
void check_equal_blocks(const Communicator& comm, ir::Group group, std::size_t elements);

std::string text(const P2pHalf& half);             // "send tag 3 of 16384 bytes to rank 1"
std::string text(std::span<const P2pHalf> halves);  // the same of each, with "; " between
std::string text(std::chrono::milliseconds time);  // "60 s", "250 ms"
std::string text(std::span<const int> ranks);      // "{0, 2, 4}"

}  // namespace fem::exec

#include "executor/comm/checks.hpp"

#include "executor/error.hpp"

namespace fem::exec {

void check_peers(const Communicator& comm, std::span<const P2pHalf> halves) {
  for (const P2pHalf& half : halves) {
    FEM_CHECK(half.peer >= 0 && half.peer < comm.size(),
              "rank " + std::to_string(comm.rank()) + " cannot " + text(half) + ": the world has " +
                  std::to_string(comm.size()) + " ranks");
    FEM_CHECK(half.peer != comm.rank(),
              "rank " + std::to_string(comm.rank()) + " cannot " + text(half) + ": that is itself");
  }
}

void check_halves(const Communicator& comm, std::span<const P2pHalf> halves) {
  check_peers(comm, halves);
  for (const P2pHalf& half : halves)
    FEM_CHECK(half.data != nullptr || half.bytes == 0,
              "rank " + std::to_string(comm.rank()) + " cannot " + text(half) + ": no buffer");
}

void check_root(const Communicator& comm, ir::Group group, int root) {
  FEM_CHECK(root >= 0 && root < comm.group_size(group),
            "broadcast over " + std::string(ir::name(group)) + ": root " + std::to_string(root) +
                " is outside a group of " + std::to_string(comm.group_size(group)));
}

void check_equal_blocks(const Communicator& comm, ir::Group group, std::size_t elements) {
  FEM_CHECK(elements % static_cast<std::size_t>(comm.group_size(group)) == 0,
            "reduce_scatter_sum over " + std::string(ir::name(group)) + ": " + std::to_string(elements) +
                " elements are not " + std::to_string(comm.group_size(group)) + " equal blocks");
}

std::string text(const P2pHalf& half) {
  return std::string(half.send ? "send" : "receive") + " tag " + std::to_string(half.tag) + " of " +
         std::to_string(half.bytes) + " bytes " + (half.send ? "to" : "from") + " rank " + std::to_string(half.peer);
}

std::string text(std::span<const P2pHalf> halves) {
  std::string all;
  for (const P2pHalf& half : halves) all += (all.empty() ? "" : "; ") + text(half);
  return all;
}

std::string text(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

std::string text(std::span<const int> ranks) {
  std::string list;
  for (int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return "{" + list + "}";
}

}  // namespace fem::exec

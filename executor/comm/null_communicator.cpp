#include "executor/comm/null_communicator.hpp"

#include <algorithm>
#include <array>
#include <atomic>

#include "executor/comm/checks.hpp"
#include "executor/error.hpp"
#include "ir/reduction_scratch.hpp"

namespace fem::exec {
namespace {

class NullCommunicator final : public Communicator {
 public:
  NullCommunicator(const Topology& topology, int rank) : rank_(rank), size_(topology.size()) {
    for (int g = 0; g < ir::kGroups; ++g) {
      const std::vector<int> members = topology.members(static_cast<ir::Group>(g), rank);
      group_size_[static_cast<std::size_t>(g)] = static_cast<int>(members.size());
      group_rank_[static_cast<std::size_t>(g)] =
          static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int group_size(ir::Group group) const override { return group_size_[index(group)]; }
  int group_rank(ir::Group group) const override { return group_rank_[index(group)]; }

  void exchange(std::span<const P2pHalf> halves, ir::Lane) override {
    alive();
    check_peers(*this, halves);
  }
  void all_gather(ir::Group group, const void*, void*, std::size_t, ir::Lane) override { alive(group); }
  void all_to_all(ir::Group group, const void*, void*, std::size_t, ir::Lane) override { alive(group); }
  void broadcast(ir::Group group, int root, void*, std::size_t, ir::Lane) override {
    alive(group);
    check_root(*this, group, root);
  }
  void barrier(ir::Group group) override { alive(group); }
  // A sum with nobody else: the data stay, and may be absent, so the sums of the base must not read them.
  void all_reduce_sum(ir::Group group, std::span<float> data, Payload, ir::Lane) override {
    alive(group);
    grow(ir::all_reduce_scratch(group_size(group), static_cast<std::int64_t>(data.size())));
  }
  void reduce_scatter_sum(ir::Group group, std::span<float> data, Payload, ir::Lane) override {
    alive(group);
    check_equal_blocks(*this, group, data.size());
    grow(ir::reduce_scatter_scratch(group_size(group), static_cast<std::int64_t>(data.size())));
  }
  std::size_t scratch_bytes() const override { return scratch_ * sizeof(float); }

  void fail(const std::string&) noexcept override { failed_.store(true); }

 private:
  static std::size_t index(ir::Group group) {
    FEM_CHECK(group != ir::Group::none, "a collective needs a group");
    return static_cast<std::size_t>(group);
  }
  void grow(std::int64_t elements) { scratch_ = std::max(scratch_, static_cast<std::size_t>(elements)); }
  void alive() const {
    if (failed_.load()) throw ExecutionError("stopped because this rank failed", rank_);
  }
  void alive(ir::Group group) const {
    index(group);
    alive();
  }

  int rank_, size_;
  std::size_t scratch_ = 0;  // elements that the sums of local and mpi would take: all are on one lane
  std::array<int, ir::kGroups> group_size_{}, group_rank_{};
  std::atomic<bool> failed_{false};
};

}  // namespace

std::unique_ptr<Communicator> make_null_communicator(const Topology& topology, int rank) {
  return std::make_unique<NullCommunicator>(topology, rank);
}

}  // namespace fem::exec

#include "nccl_world_for_test.hpp"

#include <gmock/gmock.h>

#include <barrier>
#include <exception>
#include <thread>

#include "executor/comm/nccl_entry.hpp"
#include "tests/comm/fake_nccl/control.hpp"
#include "tests/comm/free_port.hpp"

namespace fem::exec::test {
namespace {

class Blocking final : public Communicator {
 public:
  explicit Blocking(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int group_size(ir::Group group) const override { return inner_.group_size(group); }
  int group_rank(ir::Group group) const override { return inner_.group_rank(group); }
  Progress& progress() override { return inner_.progress(); }

  void exchange(std::span<const P2pHalf> halves, ir::Lane lane) override {
    inner_.exchange(halves, lane);
    fake::finish();
  }
  void all_gather(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override {
    inner_.all_gather(group, send, recv, bytes, lane);
    fake::finish();
  }
  void all_to_all(ir::Group group, const void* send, void* recv, std::size_t bytes, ir::Lane lane) override {
    inner_.all_to_all(group, send, recv, bytes, lane);
    fake::finish();
  }
  void broadcast(ir::Group group, int root, void* data, std::size_t bytes, ir::Lane lane) override {
    inner_.broadcast(group, root, data, bytes, lane);
    fake::finish();
  }
  void barrier(ir::Group group) override { inner_.barrier(group); }
  void all_reduce_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) override {
    inner_.all_reduce_sum(group, data, payload, lane);
    fake::finish();
  }
  void reduce_scatter_sum(ir::Group group, std::span<float> data, Payload payload, ir::Lane lane) override {
    inner_.reduce_scatter_sum(group, data, payload, lane);
    fake::finish();
  }
  void fail(const std::string& reason) noexcept override { inner_.fail(reason); }

 private:
  Communicator& inner_;
};

}  // namespace

std::unique_ptr<Communicator> blocking(Communicator& comm) { return std::make_unique<Blocking>(comm); }

std::vector<std::string> run_nccl(const Mesh& mesh, const CommOptions& options, const std::function<void()>& before,
                                  const std::function<void(Communicator&)>& rank_main) {
  fake::reset(mesh.size());
  before();
  const Topology topology(settings(mesh));
  std::vector<std::string> errors(static_cast<std::size_t>(mesh.size()));
  std::barrier all(mesh.size());  // rank 0 hosts the store to the end
  LaunchEnvironment launch;
  launch.launcher = Launcher::torchrun;
  launch.world_size = launch.local_world_size = mesh.size();
  launch.master_address = "127.0.0.1";
  launch.master_port = free_port();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < mesh.size(); ++rank)
    threads.emplace_back([&, rank, launch]() mutable {
      launch.rank = launch.local_rank = rank;
      std::unique_ptr<Communicator> comm;
      try {
        comm.reset(fem_nccl_communicator(topology, launch, options));
        rank_main(*comm);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
        if (comm) comm->fail(error.what());
      }
      all.arrive_and_wait();
    });
  threads.clear();
  EXPECT_THAT(fake::violations(), testing::IsEmpty());
  EXPECT_THAT(fake::leaks(), testing::IsEmpty());
  return errors;
}

std::vector<std::string> run_nccl(const Mesh& mesh, const CommOptions& options,
                                  const std::function<void(Communicator&)>& rank_main) {
  return run_nccl(mesh, options, [] {}, rank_main);
}

}  // namespace fem::exec::test

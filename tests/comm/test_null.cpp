#include <gtest/gtest.h>

#include "executor/comm/null_communicator.hpp"
#include "executor/error.hpp"

namespace fem::exec {
namespace {

using ir::Group;

Topology mesh() {
  ir::Settings settings;
  settings.parallel.pp = 2;
  settings.parallel.dp = 4;
  return Topology(settings);
}

TEST(NullCommunicator, StandsInTheMesh) {
  const auto comm = make_null_communicator(mesh(), 6);
  EXPECT_EQ(comm->rank(), 6);
  EXPECT_EQ(comm->size(), 8);
  EXPECT_EQ(comm->group_size(Group::dp), 4);
  EXPECT_EQ(comm->group_rank(Group::dp), 2);
  EXPECT_EQ(comm->group_rank(Group::pp), 1);
}

TEST(NullCommunicator, MovesNothingAndNeedsNoBuffers) {
  const auto comm = make_null_communicator(mesh(), 6);
  comm->exchange(std::vector<P2pHalf>{{true, 2, 1, nullptr, 100}, {false, 2, 2, nullptr, 100}});
  comm->all_gather(Group::dp, nullptr, nullptr, 64);
  comm->all_to_all(Group::dp, nullptr, nullptr, 64);
  comm->broadcast(Group::world, 7, nullptr, 64);
  comm->barrier(Group::world);
  comm->all_reduce_sum(Group::dp, std::span<float>(static_cast<float*>(nullptr), 1000));
  comm->reduce_scatter_sum(Group::dp, std::span<float>(static_cast<float*>(nullptr), 1000));
  comm->all_reduce_sum(Group::dp, std::span<float>(static_cast<float*>(nullptr), 1000), Payload::Bf16);
  comm->reduce_scatter_sum(Group::dp, std::span<float>(static_cast<float*>(nullptr), 1000), Payload::Bf16);
  std::vector<float> data{1, 2, 3};
  comm->all_reduce_sum(Group::world, data);
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3}));
}

TEST(NullCommunicator, ChecksWhatOthersWouldRefuse) {
  const auto comm = make_null_communicator(mesh(), 6);
  EXPECT_THROW(comm->exchange(std::vector<P2pHalf>{{true, 6, 1, nullptr, 1}}), ExecutionError) << "to itself";
  EXPECT_THROW(comm->exchange(std::vector<P2pHalf>{{true, 8, 1, nullptr, 1}}), ExecutionError);
  EXPECT_THROW(comm->broadcast(Group::dp, 4, nullptr, 1), ExecutionError);
  EXPECT_THROW(comm->all_gather(Group::none, nullptr, nullptr, 1), ExecutionError);
  std::vector<float> uneven(10);
  EXPECT_THROW(comm->reduce_scatter_sum(Group::dp, uneven), ExecutionError);
  comm->fail("broken");
  EXPECT_THROW(comm->barrier(Group::world), ExecutionError);
}

}  // namespace
}  // namespace fem::exec

// A world of NCCL communicators on the fake NCCL: ranks are threads, each with a device of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/comm/communicator.hpp"
#include "tests/comm/world_for_test.hpp"

namespace fem::exec::test {

// As run_local. Afterwards no rule of NCCL may be broken and nothing may be left: checked with EXPECT.
std::vector<std::string> run_nccl(const Mesh& mesh, const CommOptions& options,
                                  const std::function<void(Communicator&)>& rank_main);

// The same with `before` between the world's beginning and the communicators' creation, for what shall fail in it.
std::vector<std::string> run_nccl(const Mesh& mesh, const CommOptions& options, const std::function<void()>& before,
                                  const std::function<void(Communicator&)>& rank_main);

// A communicator whose calls block until the lane's stream is done, as the rules expect it.
std::unique_ptr<Communicator> blocking(Communicator& comm);

}  // namespace fem::exec::test

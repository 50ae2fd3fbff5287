// How the ranks of a GPU run find each other: the key-value store that torchrun brings, or one that rank 0 hosts.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "executor/comm/launch.hpp"

namespace fem::exec {

// c10d's TCPStore at the launch's master address. Any thread may call.
class Rendezvous {
 public:
  // Collective: comes back when all ranks are here. ExecutionError that names the missing ranks after `timeout`, or the
  // address where the store cannot be reached.
  Rendezvous(const LaunchEnvironment& launch, std::chrono::milliseconds timeout);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Gives every rank the value of rank 0.
  std::string share(const std::string& key, const std::string& value_of_rank_0);
  void announce_failure(const std::string& text) noexcept;  // the first one stays
  std::string failure() noexcept;                           // "": none was announced

 private:
  struct Store;
  void meet(const LaunchEnvironment& launch, std::chrono::milliseconds timeout);
  std::string key(const std::string& name) const;

  std::unique_ptr<Store> store_;
  std::string prefix_;
  int rank_;
};

}  // namespace fem::exec

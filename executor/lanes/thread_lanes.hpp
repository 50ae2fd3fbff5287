// The lanes of a rank on a CPU: one thread each. The waits of the plan are all that orders them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ir/plan.hpp"

namespace fem::exec {

// The batches of one rank's program, ready to be run: by index in program order, and by lane.
struct LaneTable {
  struct Batch {
    std::uint32_t action, size;                    // first action and number of actions
    std::uint32_t first_wait = 0, waits = 0;       // of RankProgram::waits
    std::uint32_t first_offset = 0, offsets = 0;   // of RankProgram::offsets
    ir::Lane lane = ir::Lane::Compute;
  };
  explicit LaneTable(const ir::RankProgram& program);

  const ir::RankProgram* program;
  std::vector<Batch> batches;
  std::array<std::vector<std::uint32_t>, ir::kLanes> by_lane;  // indices of batches
};

class ThreadLanes {
 public:
  static constexpr std::array kBeside{ir::Lane::P2p, ir::Lane::Collective, ir::Lane::Copy};  // beside compute
  // Those that have batches in one of the tables.
  static std::vector<ir::Lane> beside(std::span<const LaneTable> tables);

  // Each lane's thread calls around(body) once, which must call body: what a thread needs while it works. `beside`: the
  // lanes that have a thread; tables that run() gets have no others.
  using Around = std::function<void(const std::function<void()>& body)>;
  explicit ThreadLanes(Around around, std::span<const ir::Lane> beside = kBeside);
  ~ThreadLanes();
  ThreadLanes(const ThreadLanes&) = delete;
  ThreadLanes& operator=(const ThreadLanes&) = delete;

  // Executes every batch once, each lane's in order, each after what it waits for; the caller's thread is lane compute.
  // Returns when all lanes have ended. Where a batch throws, no lane begins another one, `failed` is called at once
  // with the first error (on the thread that it comes from, to wake lanes that are blocked outside), and that error is
  // thrown here.
  using Execute = std::function<void(const LaneTable::Batch&)>;
  using Failed = std::function<void(const std::exception_ptr&)>;
  void run(const LaneTable& table, const Execute& execute, const Failed& failed);

 private:
  // Own cache lines: each is written by one lane all the time.
  struct alignas(64) Counter {
    std::atomic<std::uint32_t> value{0};
  };

  void serve(ir::Lane lane);         // a thread's life
  void run_lane(ir::Lane lane);      // its part of one run
  bool await(ir::Lane lane, std::uint32_t count);  // false: the run has failed
  void fail(std::exception_ptr error);

  Around around_;
  const LaneTable* table_ = nullptr;  // of the current run
  const Execute* execute_ = nullptr;
  const Failed* failed_call_ = nullptr;

  std::array<Counter, ir::kLanes> finished_;  // batches of this run
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // of error_
  std::exception_ptr error_;

  Counter started_, ended_;  // runs that were begun; threads that are through with the current one
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> threads_;
};

}  // namespace fem::exec

// A phase of a unit, recorded once as calls on fixed views and run many times. Scratch is laid out while recording.
#pragma once

#include <functional>
#include <vector>

#include "executor/units/window.hpp"

namespace fem::exec {

class Sequence {
 public:
  // Scratch comes from the first `limit` bytes of the workspace; more is an error.
  Sequence(Window workspace, std::int64_t limit) : workspace_(std::move(workspace)), limit_(limit) {}

  void add(std::function<void()> call) { calls_.push_back(std::move(call)); }
  void run() const {
    for (const auto& call : calls_) call();
  }

  // A scratch tensor. It is free again, for what is recorded later, when the frame around it ends.
  at::Tensor scratch(at::IntArrayRef sizes, at::ScalarType type);

  class Frame {
   public:
    explicit Frame(Sequence& sequence) : sequence_(sequence), top_(sequence.top_) {}
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;
    ~Frame() { sequence_.top_ = top_; }

   private:
    Sequence& sequence_;
    std::int64_t top_;
  };
  [[nodiscard]] Frame frame() { return Frame(*this); }

  // Bytes of scratch in use at the fullest point.
  std::int64_t high_water() const { return high_water_; }

 private:
  Window workspace_;
  std::int64_t limit_, top_ = 0, high_water_ = 0;
  std::vector<std::function<void()>> calls_;
};

}  // namespace fem::exec

#include "compiler/timeline_trace.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "ir/text.hpp"

namespace fem::compiler {
namespace {

// Names and texts of actions hold no character that JSON escapes.
class TraceWriter {
 public:
  TraceWriter(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation,
              double microseconds)
      : plan_(plan), program_(program), simulation_(simulation), scale_(microseconds) {}

  std::string write(const std::vector<passes::RankMemory>& memory) {
    text_ = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
    find_sends();
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      names(r);
      actions(r);
      for (const passes::MemoryPoint& point : memory[r].points) {
        event(R"({{"ph": "C", "name": "memory", "pid": {}, "ts": {:.3f}, "args": {{"bytes": {}}}}})", r,
              point.time * scale_, point.bytes);
      }
    }
    text_ += "\n]}\n";
    return std::move(text_);
  }

 private:
  struct Send {
    passes::ActionTime time{-1, -1};
    std::size_t rank = 0;
  };

  template <class... T>
  void event(fmt::format_string<T...> format, T&&... values) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<T>(values)...);
  }

  std::size_t message(const ir::Action& half) const {
    return ir::message_index(plan_.stages, program_.microbatches, half);
  }

  void find_sends() {
    sends_.resize(2 * plan_.stages.size() * static_cast<std::size_t>(program_.microbatches));
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      const std::vector<ir::Action>& actions = program_.ranks[r].actions;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        if (ir::is_send(actions[i].kind)) sends_[message(actions[i])] = {simulation_.actions[r][i], r};
      }
    }
  }

  void names(std::size_t r) {
    event(R"({{"ph": "M", "name": "process_name", "pid": {}, "args": {{"name": "rank {}"}}}})", r, r);
    event(R"({{"ph": "M", "name": "process_sort_index", "pid": {}, "args": {{"sort_index": {}}}}})", r, r);
    for (int l = 0; l < ir::kLanes; ++l) {
      event(R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": "{}"}}}})", r, l,
            ir::name(static_cast<ir::Lane>(l)));
    }
  }

  void actions(std::size_t r) {
    const std::span<const ir::Action> actions = program_.ranks[r].actions;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t size = ir::batch_size(actions, i);
      const std::span<const ir::Action> batch = actions.subspan(i, size);
      const passes::ActionTime& time = simulation_.actions[r][i];
      const std::string action = ir::action_text(batch);
      event(
          R"({{"ph": "X", "name": "{}", "cat": "{}", "pid": {}, "tid": {}, "ts": {:.3f}, "dur": {:.3f}, )"
          R"("args": {{"action": "{}", "stage": {}, "microbatch": {}}}}})",
          std::string_view(action).substr(0, action.find(' ')), ir::name(batch[0].lane), r,
          static_cast<int>(batch[0].lane), time.start * scale_, (time.end - time.start) * scale_, action,
          batch[0].stage, batch[0].microbatch);
      for (const ir::Action& half : batch) {
        if (ir::is_p2p(half.kind) && !ir::is_send(half.kind)) flow(r, half, time);
      }
      i += size;
    }
  }

  void flow(std::size_t r, const ir::Action& receive, const passes::ActionTime& time) {
    const std::size_t id = message(receive);
    const Send& send = sends_[id];
    const double at = std::max(send.time.start, time.start);
    if (send.time.start < 0 || at > std::min(send.time.end, time.end)) return;
    constexpr int kLane = static_cast<int>(ir::Lane::P2p);
    event(R"({{"ph": "s", "name": "message", "cat": "p2p", "id": {}, "pid": {}, "tid": {}, "ts": {:.3f}}})", id,
          send.rank, kLane, at * scale_);
    event(R"({{"ph": "f", "bp": "e", "name": "message", "cat": "p2p", "id": {}, "pid": {}, "tid": {}, "ts": {:.3f}}})",
          id, r, kLane, at * scale_);
  }

  const ir::Plan& plan_;
  const ir::Program& program_;
  const passes::Simulation& simulation_;
  double scale_;
  std::vector<Send> sends_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

std::string timeline_trace(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation,
                           const std::vector<passes::RankMemory>& memory, double microseconds) {
  return TraceWriter(plan, program, simulation, microseconds).write(memory);
}

}  // namespace fem::compiler

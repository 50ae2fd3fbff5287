#include "passes/memory_timeline.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;
using ir::ResourceKind;

// What lives per stage and microbatch. A neighbour on the same rank has no input of its own: see input_of().
enum Buffer : std::size_t { kInput, kOutput, kGradInput, kGradOutput, kSaved, kWork, kBuffers };

class RankTracker {
 public:
  RankTracker(const ir::Plan& plan, const ir::Program& program, const BufferSizes& sizes)
      : plan_(plan),
        program_(program),
        sizes_(sizes),
        local_(plan.stages.size()),
        gathered_(plan.stages.size()) {}

  RankMemory run(int rank, std::span<const ActionTime> times);

 private:
  const ir::Stage& stage(int s) const { return plan_.stages[static_cast<std::size_t>(s)]; }
  std::int64_t& live(Buffer buffer, int stage, int microbatch) {
    return live_[(local_[static_cast<std::size_t>(stage)] * kBuffers + static_cast<std::size_t>(buffer)) *
                     static_cast<std::size_t>(program_.microbatches) +
                 static_cast<std::size_t>(microbatch)];
  }
  // What enters a stage, and its gradient: the same thing as what leaves the stage before, where that is on this rank.
  std::int64_t& input_of(int s, int microbatch) {
    const int prev = stage(s).prev;
    return stage(prev).pp == stage(s).pp ? live(kOutput, prev, microbatch) : live(kInput, s, microbatch);
  }
  std::int64_t& grad_input_of(int s, int microbatch) {
    const int prev = stage(s).prev;
    return stage(prev).pp == stage(s).pp ? live(kGradOutput, prev, microbatch) : live(kGradInput, s, microbatch);
  }
  void begin(int rank);
  void write(const Action& action);
  void kill(const Action& action, bool at_start);
  void set(std::int64_t& live, std::int64_t bytes) {
    now_ += bytes - live;
    live = bytes;
  }
  // A whole stage is written whole; a unit or slot joins what is there.
  void add(const Action& action, Buffer buffer, std::int64_t part, std::int64_t whole) {
    std::int64_t& bytes = live(buffer, action.stage, action.microbatch);
    set(bytes, std::min(whole, action.unit < 0 ? part : bytes + part));
  }
  void remove(const Action& action, Buffer buffer, std::int64_t part) {
    std::int64_t& bytes = live(buffer, action.stage, action.microbatch);
    set(bytes, action.unit < 0 && action.slot < 0 ? 0 : std::max<std::int64_t>(0, bytes - part));
  }
  void record(double time) {
    if (result_.points.back().bytes == now_) return;
    if (result_.points.back().time == time) {
      result_.points.back().bytes = now_;
    } else {
      result_.points.push_back({time, now_});
    }
  }

  const ir::Plan& plan_;
  const ir::Program& program_;
  const BufferSizes& sizes_;
  std::vector<std::size_t> local_;      // index of a stage among its rank's
  std::vector<std::int64_t> live_;      // bytes, [local stage][buffer][microbatch]
  std::vector<std::int64_t> gathered_;  // bytes of parameters that Unshard has made, by stage
  std::int64_t now_ = 0;
  RankMemory result_;
};

void RankTracker::begin(int rank) {
  result_ = {};
  std::ranges::fill(gathered_, -1);  // -1: always there
  for (const Action& a : program_.ranks[static_cast<std::size_t>(rank)].actions) {
    if (a.kind == ActionKind::Unshard) gathered_[static_cast<std::size_t>(a.stage)] = 0;
  }
  std::size_t own = 0;
  for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
    if (plan_.stages[s].pp != rank) continue;
    local_[s] = own++;
    StateBytes state = sizes_.stage(static_cast<int>(s)).state;
    if (gathered_[s] == 0) state.parameters = 0;
    result_.state += state;
  }
  live_.assign(own * kBuffers * static_cast<std::size_t>(program_.microbatches), 0);
  now_ = result_.state.total();
  result_.points.push_back({0, now_});
  result_.peak = now_;
}

void RankTracker::write(const Action& action) {
  const ir::ActionInfo& row = ir::info(action.kind);
  if (action.stage < 0) return;
  const StageBytes& bytes = sizes_.stage(action.stage);
  const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(action.stage)];
  if (row.writes.has(ResourceKind::Params) && gathered_[static_cast<std::size_t>(action.stage)] >= 0 &&
      action.kind == ActionKind::Unshard) {
    std::int64_t& gathered = gathered_[static_cast<std::size_t>(action.stage)];
    const std::int64_t part = sizes_.parameters(action) * format_bytes(plan_.settings, ir::Format::Compute);
    set(gathered, std::min(bytes.state.parameters, action.unit < 0 ? part : gathered + part));
  }
  if (action.microbatch < 0) return;
  const int m = action.microbatch;
  const bool last_unit = action.unit < 0 || action.unit == stage.first_unit + stage.units - 1;
  if (row.writes.has(ResourceKind::Input) && stage.prev >= 0) set(input_of(action.stage, m), bytes.activation);
  if (row.writes.has(ResourceKind::Output) && stage.next >= 0 && last_unit) {
    set(live(kOutput, action.stage, m), bytes.activation);
  }
  if (row.writes.has(ResourceKind::GradOutput)) set(live(kGradOutput, action.stage, m), bytes.activation);
  if (row.writes.has(ResourceKind::GradInput) && stage.prev >= 0) {
    set(grad_input_of(action.stage, m), bytes.activation);
  }
  if (row.writes.has(ResourceKind::Saved) && !program_.forward_only) {
    add(action, kSaved, sizes_.saved(action), bytes.saved);
  }
  if (row.writes.has(ResourceKind::WeightWork)) add(action, kWork, sizes_.work(action), bytes.work);
}

// `at_start`: what an action takes over into something that it writes; otherwise what it only reads.
void RankTracker::kill(const Action& action, bool at_start) {
  const ir::ActionInfo& row = ir::info(action.kind);
  if (row.kills.empty() || action.stage < 0) return;
  const StageBytes& bytes = sizes_.stage(action.stage);
  const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(action.stage)];
  const int m = action.microbatch;
  const bool input_taken = bytes.saved_holds_input && !program_.forward_only;
  const bool grad_taken = bytes.work_holds_grad_output && row.writes.has(ResourceKind::WeightWork);
  const bool first_unit = action.unit < 0 || action.unit == stage.first_unit;
  const bool last_unit = action.unit < 0 || action.unit == stage.first_unit + stage.units - 1;
  if (row.kills.has(ResourceKind::Input) && stage.prev >= 0 && first_unit && at_start == input_taken) {
    set(input_of(action.stage, m), 0);
  }
  if (row.kills.has(ResourceKind::GradOutput) && last_unit && at_start == grad_taken) {
    set(live(kGradOutput, action.stage, m), 0);
  }
  if (at_start) return;
  if (row.kills.has(ResourceKind::Output)) set(live(kOutput, action.stage, m), 0);
  if (row.kills.has(ResourceKind::GradInput) && stage.prev >= 0) set(grad_input_of(action.stage, m), 0);
  if (row.kills.has(ResourceKind::Saved)) remove(action, kSaved, sizes_.saved(action));
  if (row.kills.has(ResourceKind::WeightWork)) remove(action, kWork, sizes_.work(action));
  if (row.kills.has(ResourceKind::Params) && gathered_[static_cast<std::size_t>(action.stage)] > 0) {
    std::int64_t& gathered = gathered_[static_cast<std::size_t>(action.stage)];
    const std::int64_t part = sizes_.parameters(action) * format_bytes(plan_.settings, ir::Format::Compute);
    set(gathered, action.unit < 0 ? 0 : std::max<std::int64_t>(0, gathered - part));
  }
}

RankMemory RankTracker::run(int rank, std::span<const ActionTime> times) {
  begin(rank);
  const std::span<const Action> actions = program_.ranks[static_cast<std::size_t>(rank)].actions;
  result_.points.reserve(2 * actions.size() + 1);
  for (std::size_t i = 0; i < actions.size();) {
    const std::size_t size = ir::batch_size(actions, i);
    const std::span<const Action> batch = actions.subspan(i, size);
    for (const Action& a : batch) kill(a, true);
    for (const Action& a : batch) write(a);
    record(times[i].start);
    if (now_ > result_.peak) {
      result_.peak = now_;
      result_.peak_time = times[i].start;
      result_.peak_action = static_cast<std::int32_t>(i);
    }
    for (const Action& a : batch) kill(a, false);
    record(times[i].end);
    i += size;
  }
  result_.points.shrink_to_fit();
  return std::move(result_);
}

}  // namespace

std::vector<RankMemory> memory_timeline(const ir::Plan& plan, const ir::Program& program, const Simulation& simulation,
                                        const BufferSizes& sizes) {
  std::vector<RankMemory> ranks;
  ranks.reserve(program.ranks.size());
  RankTracker tracker(plan, program, sizes);
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    ranks.push_back(tracker.run(static_cast<int>(r), simulation.actions[r]));
  }
  return ranks;
}

}  // namespace fem::passes

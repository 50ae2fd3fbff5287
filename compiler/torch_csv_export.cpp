#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/torch_csv_plan.hpp"
#include "ir/text.hpp"

namespace fem::compiler {
namespace {

using ir::Action;
using ir::ActionKind;

// Actions that have cells; the others say nothing about the order of a schedule.
constexpr std::array<std::pair<ActionKind, CellKind>, 12> kCells = {{
    {ActionKind::Forward, CellKind::F},
    {ActionKind::Backward, CellKind::B},
    {ActionKind::BackwardInput, CellKind::I},
    {ActionKind::BackwardWeight, CellKind::W},
    {ActionKind::SendForward, CellKind::SendF},
    {ActionKind::RecvForward, CellKind::RecvF},
    {ActionKind::SendBackward, CellKind::SendB},
    {ActionKind::RecvBackward, CellKind::RecvB},
    {ActionKind::Unshard, CellKind::Unshard},
    {ActionKind::Reshard, CellKind::Reshard},
    {ActionKind::AllReduce, CellKind::ReduceGrad},
    {ActionKind::ReduceScatter, CellKind::ReduceGrad},
}};

std::optional<CellKind> cell_kind(ActionKind kind) {
  const auto found = std::ranges::find(kCells, kind, &std::pair<ActionKind, CellKind>::first);
  return found == kCells.end() ? std::nullopt : std::optional(found->second);
}

// Runs a verified program whose sends wait for their receives, and numbers the messages in the order in which they are
// exchanged. Halves of a batch written in that order cannot block each other: the run itself is an execution of the
// result, one message at a time.
class Exchange {
 public:
  Exchange(const ir::Plan& plan, const ir::Program& program)
      : plan_(plan), program_(program), ranks_(program.ranks.size()) {
    number_.assign(2 * plan.stages.size() * static_cast<std::size_t>(program.microbatches), kUnknown);
    for (std::size_t r = 0; r < ranks_.size(); ++r) runnable_.push_back(r);
  }

  // False where the program blocks, which no verified one does.
  bool run() {
    while (!runnable_.empty()) {
      const std::size_t r = runnable_.back();
      runnable_.pop_back();
      while (ranks_[r].open == 0 && enter(r)) {
      }
    }
    return std::ranges::all_of(ranks_, [](const State& rank) { return rank.open == 0 && rank.ended; });
  }

  std::int64_t number(const Action& half) const { return number_[slot(half)]; }

 private:
  static constexpr std::int64_t kUnknown = -1, kPosted = -2;  // nobody, one side is there

  struct State {
    std::size_t at = 0;  // the next batch
    int open = 0;        // halves of the last one that have not met their other side
    bool ended = false;
  };

  // By direction, receiving stage and microbatch.
  std::size_t slot(const Action& half) const {
    const bool forward = half.kind == ActionKind::SendForward || half.kind == ActionKind::RecvForward;
    const ir::Stage& stage = plan_.stages[static_cast<std::size_t>(half.stage)];
    const int receiver = !ir::is_send(half.kind) ? half.stage : forward ? stage.next : stage.prev;
    return ((forward ? 0 : plan_.stages.size()) + static_cast<std::size_t>(receiver)) *
               static_cast<std::size_t>(program_.microbatches) +
           static_cast<std::size_t>(half.microbatch);
  }

  // Goes on to the next batch of halves and posts them.
  bool enter(std::size_t r) {
    State& rank = ranks_[r];
    const std::vector<Action>& actions = program_.ranks[r].actions;
    while (rank.at < actions.size() && !ir::is_p2p(actions[rank.at].kind)) ++rank.at;
    if (rank.at == actions.size()) {
      rank.ended = true;
      return false;
    }
    const std::size_t size = ir::batch_size(actions, rank.at);
    const std::size_t begin = rank.at;
    rank.at += size;
    rank.open = static_cast<int>(size);
    for (std::size_t i = begin; i < begin + size; ++i) post(r, actions[i]);
    return true;
  }

  void post(std::size_t r, const Action& half) {
    std::int64_t& number = number_[slot(half)];
    if (number == kUnknown) {
      number = kPosted;
      return;
    }
    number = count_++;
    const auto peer = static_cast<std::size_t>(half.peer);
    --ranks_[r].open;
    if (--ranks_[peer].open == 0 && peer != r) runnable_.push_back(peer);
  }

  const ir::Plan& plan_;
  const ir::Program& program_;
  std::vector<State> ranks_;
  std::vector<std::size_t> runnable_;
  std::vector<std::int64_t> number_;
  std::int64_t count_ = 0;
};

class Writer {
 public:
  Writer(const ir::Plan& plan, const ir::Program& program, bool compute_only)
      : program_(program), compute_only_(compute_only), exchange_(plan, program) {}

  bool prepare() { return compute_only_ || exchange_.run(); }

  std::string write() {
    std::string text;
    for (const ir::RankProgram& rank : program_.ranks) {
      std::vector<std::string> cells;
      for (std::size_t i = 0; i < rank.actions.size();) {
        const std::size_t size = ir::batch_size(rank.actions, i);
        add(std::span(rank.actions).subspan(i, size), cells);
        i += size;
      }
      text += fmt::format("{}\n", fmt::join(cells, ","));
    }
    return text;
  }

 private:
  static std::string cell(const Action& action, CellKind kind) {
    std::string text = fmt::format("{}{}", action.stage, name(kind));
    if (is_pass(kind) || is_message(kind)) text += fmt::format("{}", action.microbatch);
    return text;
  }

  void add(std::span<const Action> batch, std::vector<std::string>& cells) {
    const auto kind = cell_kind(batch[0].kind);
    if (!kind || (compute_only_ && !is_pass(*kind))) return;
    const bool single_unit = batch[0].unit >= 0;
    if (single_unit && !is_message(*kind)) return;  // verified programs name units only where a stage is gathered
    if (batch.size() == 1) {
      cells.push_back(cell(batch[0], *kind));
    } else if (is_pass(*kind)) {
      cells.push_back(
          fmt::format("({};{})OVERLAP_F_B", cell(batch[0], *kind), cell(batch[1], *cell_kind(batch[1].kind))));
    } else {
      std::vector<Action> halves(batch.begin(), batch.end());
      std::ranges::sort(halves, {}, [&](const Action& half) { return exchange_.number(half); });
      for (const Action& half : halves) cells.push_back(cell(half, *cell_kind(half.kind)));
    }
  }

  const ir::Program& program_;
  bool compute_only_;
  Exchange exchange_;
};

}  // namespace

std::optional<std::string> torch_csv_of_plan(const ir::Plan& plan, ExportOptions options, ir::DiagnosticSink& sink) {
  const auto fail = [&](std::string message) {
    sink.error({}, std::move(message));
    return std::nullopt;
  };
  const ir::Program* program = plan.find("train");
  if (!program) return fail("the plan has no program 'train'");
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const ir::Stage& stage = plan.stages[s];
    const int number = static_cast<int>(s);
    if (stage.replica_of >= 0) {
      return fail(fmt::format("stage {} is a replica of stage {}: the format knows no schedules of two directions", s,
                              stage.replica_of));
    }
    if ((stage.prev >= 0 && stage.prev != number - 1) || (stage.next >= 0 && stage.next != number + 1)) {
      return fail(
          fmt::format("stage {} lies between stages {} and {}: the format counts stages in the order of the "
                      "model",
                      s, stage.prev, stage.next));
    }
  }
  if (plan.level == ir::Level::Stage && !options.compute_only && program->ranks.size() > 1) {
    return fail("the plan is at level stage, without sends and receives: export it with --compute-only");
  }
  Writer writer(plan, *program, options.compute_only);
  if (!writer.prepare()) return fail("the ranks of the plan wait for each other: check it with 'femc check'");
  return writer.write();
}

}  // namespace fem::compiler

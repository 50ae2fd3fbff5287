// Frees what the forward of a block saved at once and runs the forward again before the backward.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/units.hpp"
#include "passes/overlap_rank.hpp"
#include "passes/pass.hpp"
#include "passes/recomputed_blocks.hpp"

namespace fem::passes {
namespace {

using ir::Action;
using ir::ActionKind;

// What the backward computes again of a block of the model.
enum class Again : std::uint8_t { Nothing, Cheap, Everything };

std::int16_t slot_of(Again again) { return again == Again::Cheap ? 1 : -1; }  // saved block 1 of units.hpp, or all

// `again` by block of the model.
std::vector<Action> rewrite(std::span<const Action> actions, const ir::Settings& settings,
                            std::span<const Again> again) {
  std::vector<Action> out;
  out.reserve(actions.size() + actions.size() / 2);
  for (const Action& a : actions) {
    Again what = Again::Nothing;
    if (a.unit >= 0 && (a.kind == ActionKind::Forward || ir::is_input_backward(a.kind)) &&
        ir::unit_kind(settings, a.unit) == ir::UnitKind::block) {
      what = again[static_cast<std::size_t>(ir::unit_layer(a.unit))];
    }
    Action other = a;
    other.slot = slot_of(what);
    if (what != Again::Nothing && ir::is_input_backward(a.kind)) {
      other.kind = ActionKind::Recompute;
      out.push_back(other);
    }
    out.push_back(a);
    if (what != Again::Nothing && a.kind == ActionKind::Forward) {
      other.kind = ActionKind::Free;
      out.push_back(other);
    }
  }
  return out;
}

std::vector<std::int64_t> blocks_of(const ir::Plan& plan, std::size_t rank) {
  std::vector<std::int64_t> blocks;
  ir::each_unit_of_rank(plan.stages, rank, [&](int unit) {
    if (ir::unit_kind(plan.settings, unit) == ir::UnitKind::block) blocks.push_back(ir::unit_layer(unit));
  });
  return blocks;
}

// A rank's choice with as little recomputing as its memory allows: block after block computes the cheap tensors again,
// then block after block everything. The peak falls with each step, so the first step that fits is found by halving.
class Fit {
 public:
  // `text`: what the user said, for messages.
  Fit(ir::Plan& plan, ir::Program& program, std::size_t rank, std::string_view text, std::int64_t limit)
      : plan_(plan), program_(program), rank_(rank), text_(text), limit_(limit), blocks_(blocks_of(plan, rank)),
        original_(program.ranks[rank].actions) {}

  bool run(ir::DiagnosticSink& sink) {
    std::size_t low = 0, high = 2 * blocks_.size();
    if (peak(high) > limit_) {
      sink.error({}, "recompute: rank " + std::to_string(rank_) + " holds " + ir::bytes_text(peak(high)) +
                         " even if every block is computed again, more than the limit of " + std::string(text_));
      return false;
    }
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (peak(middle) <= limit_) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    peak(low);
    return true;
  }

 private:
  // Leaves the program as it is after so many steps.
  std::int64_t peak(std::size_t steps) {
    std::vector<Again> again(static_cast<std::size_t>(plan_.settings.model.layers), Again::Nothing);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto block = static_cast<std::size_t>(blocks_[i]);
      if (i < steps) again[block] = Again::Cheap;
      if (i + blocks_.size() < steps) again[block] = Again::Everything;
    }
    program_.ranks[rank_].actions = rewrite(original_, plan_.settings, again);
    // With lanes an arena comes later, in which gathers and receives run ahead.
    return plan_.settings.overlap.lanes ? overlapped_bytes(plan_, program_, rank_)
                                        : ir::memory_peak(plan_, program_, rank_).bytes();
  }

  ir::Plan& plan_;
  ir::Program& program_;
  std::size_t rank_;
  std::string_view text_;
  std::int64_t limit_;
  std::vector<std::int64_t> blocks_;
  std::vector<Action> original_;
};

bool fit(ir::Plan& plan, const std::string& bytes, ir::DiagnosticSink& sink) {
  const std::string& text = bytes.empty() ? plan.settings.memory.limit : bytes;
  const std::optional<std::int64_t> limit = ir::parse_bytes(text);
  if (!limit || *limit == 0) {
    sink.error({}, text.empty() ? "recompute{mode=fit} needs a memory.limit, or the option bytes, to fit into"
                                : "recompute: '" + text + "' is not a number of bytes above 0, as 80GiB or 500MB");
    return false;
  }
  for (ir::Program& program : plan.programs) {
    for (std::size_t r = 0; r < program.ranks.size() && !program.forward_only; ++r) {
      if (!Fit(plan, program, r, text, *limit).run(sink)) return false;
    }
  }
  return true;
}

}  // namespace

bool run_recompute(ir::Plan& plan, const PassOptions& options, ir::DiagnosticSink& sink) {
  const std::string& mode = options.text("mode");
  if (mode == "none") return true;
  if (mode == "fit") return fit(plan, options.text("bytes"), sink);
  const std::int64_t blocks = plan.settings.model.layers, first = options.integer("first");
  const std::int64_t last = options.integer("last") < 0 ? blocks - 1 : options.integer("last");
  if (first > last || last >= blocks) {
    sink.error({}, "recompute: blocks " + std::to_string(first) + " to " + std::to_string(last) +
                       " of a model with blocks 0 to " + std::to_string(blocks - 1));
    return false;
  }
  std::vector<Again> again;
  for (const bool chosen : recomputed_blocks(blocks, options.integer("every"), first, last)) {
    again.push_back(!chosen ? Again::Nothing : mode == "selective" ? Again::Cheap : Again::Everything);
  }
  for (ir::Program& program : plan.programs) {
    if (program.forward_only) continue;
    for (ir::RankProgram& rank : program.ranks) rank.actions = rewrite(rank.actions, plan.settings, again);
  }
  return true;
}

}  // namespace fem::passes

// femc show and femc check.
#include <array>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/command_support.hpp"
#include "compiler/division.hpp"
#include "compiler/forecast.hpp"
#include "ir/units.hpp"

namespace fem::compiler {
namespace {

std::string units_text(const ir::Settings& settings, const ir::Stage& stage) {
  std::vector<std::string> parts;
  std::int64_t first_block = -1, last_block = -1;
  const auto flush = [&] {
    if (first_block == last_block && first_block >= 0) parts.push_back(fmt::format("block {}", first_block));
    if (first_block < last_block) parts.push_back(fmt::format("blocks {}..{}", first_block, last_block));
    first_block = last_block = -1;
  };
  for (int unit = stage.first_unit; unit < stage.first_unit + stage.units; ++unit) {
    const ir::UnitKind kind = ir::unit_kind(settings, unit);
    if (kind == ir::UnitKind::block) {
      last_block = ir::unit_layer(unit);
      if (first_block < 0) first_block = last_block;
    } else {
      flush();
      parts.emplace_back(ir::name(kind));
    }
  }
  flush();
  return fmt::format("{}", fmt::join(parts, ", "));
}

// How the blocks were divided, and what that leaves on the rank with the most work.
std::string division_text(const ir::Plan& plan) {
  const auto& parallel = plan.settings.parallel;
  std::string how = "by hand";
  if (parallel.layers_per_stage.empty()) {
    how = parallel.division == "even"  ? "even"
          : parallel.profile.empty() ? "by arithmetic"
                                     : fmt::format("by cost on {}", parallel.profile);
  }
  const HeaviestRank heaviest = heaviest_rank(arithmetic_shares(plan));
  return fmt::format("{}; rank {} has most of the arithmetic: {:.2f}%, {:.3f} times the mean", how, heaviest.rank,
                     100 * heaviest.share, heaviest.over_mean);
}

std::string summary(const ir::Plan& plan) {
  const ir::Settings& s = plan.settings;
  std::string text = fmt::format(
      "model      {}, {} layers, hidden {}, {} heads, vocab {}{}, {} parameters\n"
      "mesh       pp={} dp={} tp={} cp={}: {} ranks\n"
      "batch      {} sequences of {} tokens, {} a microbatch, {} microbatches a step\n"
      "schedule   {}, level {}\n"
      "division   {}\n",
      s.model.family, s.model.layers, s.model.hidden, s.model.heads, s.model.vocab, s.model.tied ? " (tied)" : "",
      ir::parameter_count(s), s.parallel.pp, s.parallel.dp, s.parallel.tp, s.parallel.cp,
      s.parallel.pp * s.parallel.dp * s.parallel.tp * s.parallel.cp, s.batch.global, s.batch.seq_len, s.batch.micro,
      ir::microbatches(s), s.schedule.name, ir::name(plan.level), division_text(plan));
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const int original = plan.stages[i].replica_of;
    text += fmt::format("stage {:<4} pipeline rank {}: {}{}\n", i, plan.stages[i].pp, units_text(s, plan.stages[i]),
                        original >= 0 ? fmt::format(", replica of stage {}", original) : "");
  }
  return text;
}

std::string kinds_text(const std::vector<ir::Action>& actions) {
  std::array<std::size_t, ir::kActionKinds> counts{};
  for (const ir::Action& action : actions) ++counts[static_cast<std::size_t>(action.kind)];
  std::vector<std::string> parts;
  for (int kind = 0; kind < ir::kActionKinds; ++kind) {
    const std::size_t count = counts[static_cast<std::size_t>(kind)];
    if (count) parts.push_back(fmt::format("{} {}", count, ir::name(static_cast<ir::ActionKind>(kind))));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string listing(const ir::RankProgram& rank) {
  std::string text;
  std::size_t number = 0, wait = 0;
  for (std::size_t i = 0; i < rank.actions.size(); ++number) {
    const std::size_t size = ir::batch_size(rank.actions, i);
    text += fmt::format("  {:>5}  {}", number, ir::action_text(std::span(rank.actions).subspan(i, size)));
    for (; wait < rank.waits.size() && rank.waits[wait].action < i + size; ++wait) {
      text += fmt::format("  wait {}>={}", ir::name(rank.waits[wait].lane), rank.waits[wait].count);
    }
    text += "\n";
    i += size;
  }
  return text;
}

}  // namespace

int show_command(const ShowArguments& arguments, Streams streams) {
  const auto file = read_plan_file(arguments.plan, streams);
  if (!file) return kDiagnosed;
  const ir::Plan& plan = file->plan;
  const auto ranks = static_cast<int>(plan.settings.parallel.pp);
  if (arguments.rank && (*arguments.rank < 0 || *arguments.rank >= ranks)) {
    streams.err << fmt::format("--rank: error: {} is no pipeline rank of this plan; valid: 0 to {}\n", *arguments.rank,
                               ranks - 1);
    return kDiagnosed;
  }
  streams.out << summary(plan);
  for (const ir::Program& program : plan.programs) {
    streams.out << fmt::format("\nprogram {}: microbatches {}{}\n", program.name, program.microbatches,
                               program.forward_only ? ", forward only" : "");
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      if (arguments.rank && *arguments.rank != static_cast<int>(r)) continue;
      streams.out << fmt::format("rank {}: {}\n", r, kinds_text(program.ranks[r].actions)) << listing(program.ranks[r]);
    }
  }
  return finish_output(streams);
}

int check_command(const std::string& path, Streams streams) {
  const auto file = read_plan_file(path, streams);
  if (!file) return kDiagnosed;
  streams.out << fmt::format("{}: ok, {}\n", path, contents(file->plan));
  return finish_output(streams);
}

}  // namespace fem::compiler

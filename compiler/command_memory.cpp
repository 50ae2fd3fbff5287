#include <algorithm>
#include <map>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "compiler/command_support.hpp"
#include "compiler/forecast.hpp"
#include "ir/beside_blocks.hpp"
#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"

namespace fem::compiler {
namespace {

using Json = nlohmann::ordered_json;
using ir::MemoryKind;
using ir::MemoryPeak;

std::string bytes(std::int64_t count) { return ir::bytes_text(count); }

std::string action_at(const ir::Program& program, std::size_t rank, std::uint32_t at) {
  const std::span<const ir::Action> actions = program.ranks[rank].actions;
  return ir::action_text(actions.subspan(at, ir::batch_size(actions, at)));
}

// The blocks that are alive at the peak, those of one stage, unit and kind as one line.
struct Alive {
  std::int64_t blocks = 0, bytes = 0;
};
std::map<std::pair<std::pair<int, int>, MemoryKind>, Alive> alive_at(const ir::RankBlocks& blocks,
                                                                     std::uint32_t at) {
  std::map<std::pair<std::pair<int, int>, MemoryKind>, Alive> alive;
  for (const ir::MemoryBlock& block : blocks.blocks) {
    if (block.birth > at || block.death < at) continue;
    Alive& line = alive[{{block.stage, block.unit}, block.kind}];
    ++line.blocks;
    line.bytes += block.bytes;
  }
  return alive;
}

std::string table(const ir::Program& program, const std::vector<MemoryPeak>& peaks) {
  std::string text = fmt::format("program {}: peak of each rank\n{:>4}", program.name, "rank");
  for (int k = 0; k < ir::kMemoryKinds; ++k) {
    text += fmt::format(" {:>{}}", ir::name(static_cast<MemoryKind>(k)),
                        std::max<std::size_t>(11, ir::name(static_cast<MemoryKind>(k)).size()));
  }
  const bool arenas = std::ranges::any_of(peaks, [](const MemoryPeak& peak) { return peak.arena > 0; });
  const bool offloads = std::ranges::any_of(peaks, [](const MemoryPeak& peak) { return peak.host > 0; });
  if (arenas) text += fmt::format(" {:>11}", "arena gaps");
  if (offloads) text += fmt::format(" {:>11}", "(host)");
  text += fmt::format(" {:>11}  {}\n", "total", "reached at");
  for (std::size_t r = 0; r < peaks.size(); ++r) {
    text += fmt::format("{:>4}", r);
    for (std::size_t k = 0; k < peaks[r].blocks.size(); ++k) {
      text += fmt::format(" {:>{}}", bytes(peaks[r].persistent[k] + peaks[r].blocks[k]),
                          std::max<std::size_t>(11, ir::name(static_cast<MemoryKind>(k)).size()));
    }
    if (arenas) text += fmt::format(" {:>11}", bytes(peaks[r].gaps()));
    if (offloads) text += fmt::format(" {:>11}", bytes(peaks[r].host));
    text += fmt::format(" {:>11}  {}\n", bytes(peaks[r].bytes()), action_at(program, r, peaks[r].action));
  }
  return text;
}

std::string details(const ir::Plan& plan, const ir::Program& program, std::size_t rank, const MemoryPeak& peak) {
  std::string text = fmt::format("rank {}: alive at {}\n", rank, action_at(program, rank, peak.action));
  for (const auto& [key, line] : alive_at(ir::memory_blocks(plan, program, rank), peak.tick)) {
    text += fmt::format("  stage {} unit {:<4} {:<22} {:>5} blocks {:>11}\n", key.first.first, key.first.second,
                        ir::name(key.second), line.blocks, bytes(line.bytes));
  }
  if (peak.arena > 0) {
    text += fmt::format("  blocks alive {}, arena {}: {} more for gaps and for lanes that run apart\n",
                        bytes(peak.live), bytes(peak.arena), bytes(peak.gaps()));
  } else {
    text += fmt::format("  blocks alive {}, held by free lists of equal sizes {}: {} more\n", bytes(peak.live),
                        bytes(peak.pool), bytes(peak.pool - peak.live));
  }
  text += fmt::format("  beside them: constants {}, inside LibTorch's operators on a CPU up to {}\n",
                      bytes(ir::constant_bytes(plan, rank)), bytes(ir::hidden_bytes(plan, rank)));
  return text;
}

Json json(const ir::Plan& plan, const ir::Program& program, const std::vector<MemoryPeak>& peaks) {
  Json ranks = Json::array();
  for (std::size_t r = 0; r < peaks.size(); ++r) {
    Json kinds, persistent;
    for (std::size_t k = 0; k < peaks[r].blocks.size(); ++k) {
      kinds[fmt::format("{}_bytes", ir::name(static_cast<MemoryKind>(k)))] =
          peaks[r].persistent[k] + peaks[r].blocks[k];
      persistent[fmt::format("{}_bytes", ir::name(static_cast<MemoryKind>(k)))] = peaks[r].persistent[k];
    }
    Json alive = Json::array();
    for (const auto& [key, line] : alive_at(ir::memory_blocks(plan, program, r), peaks[r].tick)) {
      alive.push_back({{"stage", key.first.first},
                       {"unit", key.first.second},
                       {"kind", ir::name(key.second)},
                       {"blocks", line.blocks},
                       {"bytes", line.bytes}});
    }
    ranks.push_back({{"rank", r},
                     {"peak_bytes", peaks[r].bytes()},
                     {"peak_action", action_at(program, r, peaks[r].action)},
                     {"kinds", kinds},
                     {"persistent", persistent},
                     {"blocks_bytes", peaks[r].live},
                     {"pool_bytes", peaks[r].pool},
                     {"arena_bytes", peaks[r].arena},
                     {"gaps_bytes", peaks[r].gaps()},
                     {"constant_bytes", ir::constant_bytes(plan, r)},
                     {"hidden_bytes", ir::hidden_bytes(plan, r)},
                     {"host_bytes", peaks[r].host},
                     {"alive", alive}});
  }
  return {{"program", program.name}, {"ranks", ranks}};
}

}  // namespace

int memory_command(const MemoryArguments& arguments, Streams streams) {
  const auto file = read_plan_file(arguments.plan, streams);
  if (!file) return kDiagnosed;
  ir::DiagnosticSink sink;
  const ir::Program* program = find_program(file->plan, arguments.program, sink);
  if (!program) return report(sink, streams);
  const auto ranks = program->ranks.size();
  if (arguments.rank && (*arguments.rank < 0 || static_cast<std::size_t>(*arguments.rank) >= ranks)) {
    sink.error({"--rank", 0, 0}, fmt::format("the plan has no pipeline rank {}; its ranks: 0 to {}", *arguments.rank,
                                             ranks - 1));
    return report(sink, streams);
  }
  std::vector<MemoryPeak> peaks;
  for (std::size_t r = 0; r < ranks; ++r) peaks.push_back(ir::memory_peak(file->plan, *program, r));
  if (arguments.json) {
    streams.out << json(file->plan, *program, peaks).dump(2) << '\n';
    return finish_output(streams);
  }
  streams.out << table(*program, peaks);
  for (std::size_t r = 0; r < ranks; ++r) {
    if (arguments.rank && static_cast<std::size_t>(*arguments.rank) == r) {
      streams.out << details(file->plan, *program, r, peaks[r]);
    }
  }
  return finish_output(streams);
}

}  // namespace fem::compiler

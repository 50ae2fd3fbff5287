#include "executor/trace.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "executor/weights/file_io.hpp"
#include "ir/text.hpp"

namespace fem::exec {
namespace {

using Json = nlohmann::ordered_json;

void add_names(Json& events, std::size_t rank, const Coordinates& at) {
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", rank},
                    {"args", {{"name", "rank " + std::to_string(rank) + " (pp " + std::to_string(at.pp) + ", dp " +
                                           std::to_string(at.dp) + ")"}}}});
  for (int l = 0; l < ir::kLanes; ++l) {
    events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", l},
                      {"args", {{"name", ir::name(static_cast<ir::Lane>(l))}}}});
  }
}

void add_batches(Json& events, std::size_t rank, const LaneTable& table, std::span<const BatchTime> times,
                 std::int64_t start) {
  const std::span<const ir::Action> actions = table.program->actions;
  for (std::size_t b = 0; b < table.batches.size(); ++b) {
    const LaneTable::Batch& batch = table.batches[b];
    events.push_back({{"name", ir::action_text(actions.subspan(batch.action))},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", ir::lane_index(batch.lane)},
                      {"ts", static_cast<double>(times[b].begin - start) / 1e3},
                      {"dur", static_cast<double>(times[b].end - times[b].begin) / 1e3}});
  }
}

}  // namespace

void write_trace(const std::filesystem::path& path, const ir::Program& program, std::span<const BatchTime> mine,
                 const Topology& topology, Communicator& comm) {
  std::vector<LaneTable> tables(program.ranks.begin(), program.ranks.end());
  std::size_t most = 0;
  for (const LaneTable& table : tables) most = std::max(most, table.batches.size());
  std::vector<BatchTime> padded(mine.begin(), mine.end()), all(most * static_cast<std::size_t>(comm.size()));
  padded.resize(most);
  comm.all_gather(ir::Group::world, padded.data(), all.data(), most * sizeof(BatchTime));
  if (comm.rank() != 0) return;

  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  for (const BatchTime& time : all)
    if (time.end > 0) start = std::min(start, time.begin);
  Json events = Json::array();
  for (std::size_t r = 0; r < static_cast<std::size_t>(comm.size()); ++r) {
    const Coordinates at = topology.coordinates(static_cast<int>(r));
    add_names(events, r, at);
    add_batches(events, r, tables[static_cast<std::size_t>(at.pp)], std::span(all).subspan(r * most, most), start);
  }
  write_file(path, Json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n");
}

}  // namespace fem::exec

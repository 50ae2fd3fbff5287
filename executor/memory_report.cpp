#include "executor/memory_report.hpp"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "executor/weights/file_io.hpp"

namespace fem::exec {

RankMemory measure(const Parameters& parameters, const BlockPool& pool, const BlockPool& host,
                   const Communicator& comm, const MemoryCounter& counter) {
  RankMemory memory;
  std::set<const void*> counted;
  const auto add = [&](std::int64_t& kind, const at::Tensor& tensor) {
    if (!tensor.storage().data()) return;  // in the arena while it is there
    if (counted.insert(tensor.storage().data()).second) kind += static_cast<std::int64_t>(tensor.storage().nbytes());
  };
  for (const StageParameters& stage : parameters.stages())
    for (const UnitParameters& unit : stage.units) {
      add(memory.parameters, unit.compute);
      add(memory.masters, unit.master);
      add(memory.gradients, unit.grad);
      add(memory.gradients, unit.reduced);
      std::int64_t& moments = unit.moments_buffer ? memory.host : memory.optimizer;
      add(moments, unit.exp_avg);
      add(moments, unit.exp_avg_sq);
    }
  memory.workspace = pool.workspace_bytes();
  memory.blocks = pool.allocated() - memory.workspace;
  memory.host += host.allocated();
  memory.communication = static_cast<std::int64_t>(comm.scratch_bytes());
  memory.allocator_peak = counter.peak.load();
  return memory;
}

void write_memory_file(const std::filesystem::path& path, std::string_view device,
                       std::span<const RankMemoryRow> ranks) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [rank, at, m] : ranks)
    rows.push_back({{"rank", rank},
                    {"pp", at.pp},
                    {"dp", at.dp},
                    {"parameters_bytes", m.parameters},
                    {"masters_bytes", m.masters},
                    {"gradients_bytes", m.gradients},
                    {"optimizer_bytes", m.optimizer},
                    {"blocks_bytes", m.blocks},
                    {"workspace_bytes", m.workspace},
                    {"host_bytes", m.host},
                    {"communication_bytes", m.communication},
                    {"allocator_peak_bytes", m.allocator_peak}});
  write_file(path, nlohmann::ordered_json{{"device", device}, {"ranks", rows}}.dump(2) + "\n");
}

void write_memory_report(const std::filesystem::path& path, const RankMemory& mine, const Topology& topology,
                         Communicator& comm) {
  std::vector<RankMemory> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ir::Group::world, &mine, all.data(), sizeof mine);
  if (comm.rank() != 0) return;
  std::vector<RankMemoryRow> ranks;
  for (int r = 0; r < comm.size(); ++r) ranks.push_back({r, topology.coordinates(r), all[static_cast<std::size_t>(r)]});
  write_memory_file(path, "cpu", ranks);
}

}  // namespace fem::exec

#include "executor/load_save.hpp"

#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "ir/replicas.hpp"

namespace fem::exec {
namespace {

// A whole flat buffer of a unit as the parameters' views: from the owned parts of all replicas, or to fill before this
// rank takes its own part of it.
std::vector<at::Tensor> whole_views(const UnitParameters& unit, const ir::Settings& settings, const at::Tensor& flat) {
  return parameter_views(flat, unit.kind, ir::unit_dims(settings));
}

at::Tensor gather_whole(const UnitParameters& unit, const at::Tensor& owned, ir::Group group, Communicator& comm) {
  if (unit.owns_all()) return owned;
  at::Tensor whole = at::empty({unit.elements}, at::kFloat);
  comm.all_gather(group, owned.const_data_ptr(), whole.mutable_data_ptr(), owned.nbytes());
  return whole;
}

// Calls fill(name of the parameter, view) for each parameter of a whole flat buffer, `owned` itself where the rank owns
// all of it.
template <class Fill>
at::Tensor fill_whole(const ir::Settings& settings, const UnitParameters& unit, const at::Tensor& owned, Fill fill) {
  const at::Tensor whole = unit.owns_all() ? owned : at::zeros({unit.elements}, at::kFloat);
  const std::vector<at::Tensor> views = whole_views(unit, settings, whole);
  for (std::size_t i = 0; i < views.size(); ++i) fill(stored_name(settings, parameter_name(unit, i)), views[i]);
  return whole;
}

}  // namespace

void fill_parameters(const ir::Settings& settings, const RunInputs& inputs, Parameters& parameters) {
  if (!inputs.weights && !inputs.checkpoint)
    return parameters.initialise(settings, static_cast<std::uint64_t>(settings.run.seed));
  for (StageParameters& stage : parameters.stages())
    for (UnitParameters& unit : stage.units) {
      if (inputs.weights) {
        const auto load = [&](const std::string& name, at::Tensor view) { inputs.weights->load_into(name, view); };
        const at::Tensor whole = fill_whole(settings, unit, unit.master, load);
        if (!unit.owns_all()) Parameters::set_master(unit, whole);
        continue;
      }
      const auto load = [&](const at::Tensor& owned, std::string (*key)(const std::string&)) {
        return fill_whole(settings, unit, owned, [&](const std::string& name, at::Tensor view) {
          inputs.checkpoint->optimizer.load_into(key(name), view);
        });
      };
      const auto own = [&](const at::Tensor& owned, const at::Tensor& whole) {
        if (!unit.owns_all()) owned.copy_(whole.narrow(0, unit.owned_begin, unit.owned));
      };
      const at::Tensor master = load(unit.master, master_name);
      if (!unit.owns_all()) Parameters::set_master(unit, master);
      own(unit.exp_avg, load(unit.exp_avg, exp_avg_name));
      own(unit.exp_avg_sq, load(unit.exp_avg_sq, exp_avg_sq_name));
    }
  parameters.refresh_compute();
}

void save_checkpoint(const ir::Plan& plan, const std::filesystem::path& folder, const TrainingState& state,
                     const Parameters& parameters, Coordinates here, Communicator& comm) {
  const int parts = static_cast<int>(plan.settings.parallel.pp);
  if (comm.rank() == 0) begin_checkpoint(folder, state.step);
  comm.barrier(ir::Group::world);
  std::vector<CheckpointParam> params;
  const bool writes = here.dp == 0 && here.cp == 0 && here.tp == 0;
  for (const StageParameters& stage : parameters.stages()) {
    if (plan.stages[static_cast<std::size_t>(stage.stage)].replica_of >= 0) continue;  // the original writes them
    for (const UnitParameters& unit : stage.units) {
      const auto views = [&](const at::Tensor& owned) {
        return whole_views(unit, plan.settings, gather_whole(unit, owned, ir::piece_group(plan.settings), comm));
      };
      const std::vector<at::Tensor> masters = views(unit.master), exp_avgs = views(unit.exp_avg),
                                    exp_avg_sqs = views(unit.exp_avg_sq);
      for (std::size_t i = 0; i < masters.size() && writes; ++i) {
        // The working copy is the master in the compute format, gathered or not.
        params.push_back({parameter_name(unit, i), masters[i].to(unit.compute.scalar_type()), masters[i], exp_avgs[i],
                          exp_avg_sqs[i]});
      }
    }
  }
  if (writes) write_checkpoint_shard(folder, plan.settings, state.step, here.pp, parts, params);
  comm.barrier(ir::Group::world);
  if (comm.rank() == 0) finish_checkpoint(folder, plan.settings, parts, state);
  comm.barrier(ir::Group::world);
}

}  // namespace fem::exec

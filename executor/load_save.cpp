#include "executor/load_save.hpp"

#include <string>
#include <vector>

namespace fem::exec {

void fill_parameters(const ir::Settings& settings, const RunInputs& inputs, Parameters& parameters) {
  if (!inputs.weights && !inputs.checkpoint)
    return parameters.initialise(settings, static_cast<std::uint64_t>(settings.run.seed));
  for (StageParameters& stage : parameters.stages())
    for (UnitParameters& unit : stage.units)
      for (std::size_t i = 0; i < unit.masters.size(); ++i) {
        const std::string name = stored_name(settings, parameter_name(unit, i));
        if (inputs.weights) {
          inputs.weights->load_into(name, unit.masters[i]);
          continue;
        }
        const TensorFolder& optimizer = inputs.checkpoint->optimizer;
        optimizer.load_into(master_name(name), unit.masters[i]);
        optimizer.load_into(exp_avg_name(name), unit.exp_avgs[i]);
        optimizer.load_into(exp_avg_sq_name(name), unit.exp_avg_sqs[i]);
      }
  parameters.refresh_compute();
}

void save_checkpoint(const ir::Plan& plan, const std::filesystem::path& folder, const TrainingState& state,
                     const Parameters& parameters, Coordinates here, Communicator& comm) {
  const int parts = static_cast<int>(plan.settings.parallel.pp);
  if (comm.rank() == 0) begin_checkpoint(folder, state.step);
  comm.barrier(ir::Group::world);
  if (here.dp == 0 && here.cp == 0 && here.tp == 0) {
    std::vector<CheckpointParam> params;
    for (const StageParameters& stage : parameters.stages()) {
      if (plan.stages[static_cast<std::size_t>(stage.stage)].replica_of >= 0) continue;  // the original writes them
      for (const UnitParameters& unit : stage.units)
        for (std::size_t i = 0; i < unit.masters.size(); ++i)
          params.push_back(
              {parameter_name(unit, i), unit.params[i], unit.masters[i], unit.exp_avgs[i], unit.exp_avg_sqs[i]});
    }
    write_checkpoint_shard(folder, plan.settings, state.step, here.pp, parts, params);
  }
  comm.barrier(ir::Group::world);
  if (comm.rank() == 0) finish_checkpoint(folder, plan.settings, parts, state);
  comm.barrier(ir::Group::world);
}

}  // namespace fem::exec

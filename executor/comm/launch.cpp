#include "executor/comm/launch.hpp"

#include <charconv>
#include <cstdlib>
#include <vector>

#include "executor/error.hpp"

namespace fem::exec {
namespace {

struct Number {
  std::string variable;
  int value = 0;
  std::string text() const { return variable + "=" + std::to_string(value); }
};

class Environment {
 public:
  explicit Environment(const GetEnv& get) : get_(get) {}

  bool has(const char* variable) const { return get_(variable).has_value(); }
  std::string text(const char* variable) const { return get_(variable).value_or(""); }

  // Nothing where the variable is unset; ExecutionError where it is no number from `least` on.
  std::optional<Number> number(const char* variable, int least) const {
    const std::optional<std::string> text = get_(variable);
    if (!text) return std::nullopt;
    int value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < least)
      throw ExecutionError("environment variable " + std::string(variable) + "='" + *text +
                           "' is not a number of at least " + std::to_string(least));
    return Number{variable, value};
  }

  // The first of them that is set.
  std::optional<Number> number(std::initializer_list<const char*> variables, int least) const {
    for (const char* variable : variables)
      if (auto found = number(variable, least)) return found;
    return std::nullopt;
  }

 private:
  const GetEnv& get_;
};

// What one launcher says about this process.
struct Claim {
  Launcher launcher = Launcher::none;
  Number rank, size;
  std::optional<Number> local_rank, local_size;
};

// Rank and size come in pairs: one alone is half a launcher.
std::optional<Claim> claim(const Environment& env, Launcher launcher, const char* rank_variable,
                           std::initializer_list<const char*> size_variables, const char* local_rank,
                           const char* local_size) {
  const auto rank = env.number(rank_variable, 0);
  const auto size = env.number(size_variables, 1);
  if (!rank && !size) return std::nullopt;
  if (!rank) throw ExecutionError(size->text() + " is set, but " + rank_variable + " is not");
  if (!size) throw ExecutionError(rank->text() + " is set, but " + *size_variables.begin() + " is not");
  if (rank->value >= size->value)
    throw ExecutionError(rank->text() + " is outside the world of " + size->text());
  Claim claim{launcher, *rank, *size, std::nullopt, std::nullopt};
  if (local_rank) claim.local_rank = env.number(local_rank, 0);
  if (local_size) claim.local_size = env.number(local_size, 1);
  return claim;
}

// Slurm sets its variables in the batch script too, where no rank was started: they count only as a pair.
std::optional<Claim> slurm_claim(const Environment& env) {
  if (!env.has("SLURM_PROCID") || !(env.has("SLURM_STEP_NUM_TASKS") || env.has("SLURM_NTASKS"))) return std::nullopt;
  return claim(env, Launcher::slurm, "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, "SLURM_LOCALID",
               nullptr);
}

void check_agreement(const Claim& one, const Claim& other) {
  if (one.rank.value != other.rank.value)
    throw ExecutionError("contradicting launch environment: " + one.rank.text() + ", but " + other.rank.text());
  if (one.size.value != other.size.value)
    throw ExecutionError("contradicting launch environment: " + one.size.text() + ", but " + other.size.text());
}

void read_rendezvous(const Environment& env, LaunchEnvironment& launch) {
  launch.master_address = env.text("MASTER_ADDR");
  if (const auto port = env.number("MASTER_PORT", 1)) {
    if (port->value > 65535) throw ExecutionError(port->text() + " is not a port");
    launch.master_port = port->value;
  }
  if (launch.launcher == Launcher::torchrun) {
    const std::string agent = env.text("TORCHELASTIC_USE_AGENT_STORE");
    if (agent == "True" || agent == "1")
      launch.agent_store = true;
    else if (!agent.empty() && agent != "False" && agent != "0")
      throw ExecutionError("environment variable TORCHELASTIC_USE_AGENT_STORE='" + agent + "' is not True or False");
    if (const auto restarts = env.number("TORCHELASTIC_RESTART_COUNT", 0)) launch.restart_count = restarts->value;
  }
  if (launch.launcher == Launcher::slurm && launch.master_address.empty())
    for (const char* variable : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"})
      if (env.has(variable)) {
        launch.master_address = first_slurm_host(env.text(variable));
        break;
      }
}

}  // namespace

std::string_view name(Launcher launcher) {
  switch (launcher) {
    case Launcher::none: return "no launcher";
    case Launcher::torchrun: return "torchrun";
    case Launcher::open_mpi: return "Open MPI's mpirun";
    case Launcher::mpich: return "MPICH's mpirun";
    case Launcher::slurm: return "Slurm's srun";
  }
  return "?";
}

LaunchEnvironment detect_launch(const GetEnv& environment) {
  const Environment env(environment);
  std::vector<Claim> claims;
  const auto add = [&claims](const std::optional<Claim>& claim) {
    if (claim) claims.push_back(*claim);
  };
  add(claim(env, Launcher::torchrun, "RANK", {"WORLD_SIZE"}, "LOCAL_RANK", "LOCAL_WORLD_SIZE"));
  add(claim(env, Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE"));
  add(claim(env, Launcher::mpich, "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", "MPI_LOCALNRANKS"));
  for (std::size_t i = 1; i < claims.size(); ++i) check_agreement(claims[0], claims[i]);
  if (claims.empty()) add(slurm_claim(env));

  LaunchEnvironment launch;
  if (!claims.empty()) {
    const Claim& chosen = claims[0];
    launch.launcher = chosen.launcher;
    launch.rank = chosen.rank.value;
    launch.world_size = chosen.size.value;
    launch.rank_variable = chosen.rank.variable;
    launch.size_variable = chosen.size.variable;
    launch.local_rank = chosen.local_rank ? chosen.local_rank->value : launch.rank;
    launch.local_world_size = chosen.local_size ? chosen.local_size->value : 0;
    if (chosen.local_rank && chosen.local_size && launch.local_rank >= launch.local_world_size)
      throw ExecutionError(chosen.local_rank->text() + " is outside the host's " + chosen.local_size->text());
  }
  read_rendezvous(env, launch);
  return launch;
}

LaunchEnvironment detect_launch() {
  return detect_launch([](const char* variable) -> std::optional<std::string> {
    const char* value = std::getenv(variable);
    if (!value) return std::nullopt;
    return value;
  });
}

void check_world_size(const LaunchEnvironment& launch, int plan_world_size) {
  if (launch.launcher == Launcher::none || launch.world_size == plan_world_size) return;
  throw ExecutionError(std::string(name(launch.launcher)) + " started " + launch.size_variable + "=" +
                       std::to_string(launch.world_size) + " ranks, but the plan's mesh has " +
                       std::to_string(plan_world_size));
}

void check_torchrun(const LaunchEnvironment& launch, bool have_gpu) {
  if (launch.launcher != Launcher::torchrun || have_gpu) return;
  throw ExecutionError("torchrun starts GPU runs only, and there is no GPU here; on CPUs start the run with mpirun: "
                       "mpirun -n " + std::to_string(launch.world_size) + " femrun --backend mpi PLAN");
}

std::string first_slurm_host(std::string_view nodes) {
  const std::string list(nodes);
  std::string host;
  std::size_t at = 0;
  while (at < list.size() && list[at] != ',') {
    if (list[at] != '[') {
      if (list[at] == ']') throw ExecutionError("malformed Slurm node list '" + list + "': ']' without '['");
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string::npos) throw ExecutionError("malformed Slurm node list '" + list + "': '[' without ']'");
    const std::string ranges = list.substr(at + 1, close - at - 1);
    const std::string first = ranges.substr(0, ranges.find_first_of(",-"));
    if (first.empty() || first.find_first_not_of("0123456789") != std::string::npos)
      throw ExecutionError("malformed Slurm node list '" + list + "': '[" + ranges + "]' does not start with a number");
    host += first;
    at = close + 1;
  }
  if (host.empty()) throw ExecutionError("malformed Slurm node list '" + list + "': no host name");
  return host;
}

}  // namespace fem::exec

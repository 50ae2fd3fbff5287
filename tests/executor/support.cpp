#include "tests/executor/support.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "executor/data/indexed_dataset.hpp"
#include "executor/weights/checkpoint.hpp"
#include "executor/world.hpp"
#include "ir/builder.hpp"
#include "ir/verify.hpp"
#include "passes/communication.hpp"

namespace fem::exec::test {
namespace {

std::vector<ir::Action> schedule(int rank, int p, int m, Order order) {
  const int ahead = order == Order::gpipe ? m : std::min(m, p - rank);  // forwards before the first backward
  std::vector<ir::Action> actions;
  int forward = 0, backward = 0;
  const auto run_backward = [&] {
    if (order == Order::split) {
      actions.push_back(ir::backward_input(rank, backward));
      actions.push_back(ir::backward_weight(rank, backward));
    } else {
      actions.push_back(ir::backward(rank, backward));
    }
    ++backward;
  };
  while (forward < ahead) actions.push_back(ir::forward(rank, forward++));
  while (forward < m) {
    run_backward();
    actions.push_back(ir::forward(rank, forward++));
  }
  while (backward < m) run_backward();
  return actions;
}

ir::Program train_program(const ir::Settings& settings, int m, Order order) {
  const int p = static_cast<int>(settings.parallel.pp);
  ir::Program program{"train", false, m, {}};
  for (int s = 0; s < p; ++s) {
    std::vector<ir::Action> actions{ir::zero_grad(s)};
    for (const ir::Action& action : schedule(s, p, m, order)) actions.push_back(action);
    actions.push_back(ir::reduce_loss());
    if (settings.model.tied && s == 0) actions.push_back(ir::reduce_tied_grad(s));
    if (settings.model.tied && s == p - 1) actions.push_back(ir::reduce_tied_grad(s));
    actions.push_back(ir::all_reduce(s));
    actions.push_back(ir::grad_norm());
    actions.push_back(ir::clip_grad(s));
    actions.push_back(ir::optimizer_step(s));
    program.ranks.push_back({std::move(actions), {}});
  }
  return program;
}

ir::Program eval_program(int p, int m) {
  ir::Program program{"eval", true, m, {}};
  for (int s = 0; s < p; ++s) {
    std::vector<ir::Action> actions;
    for (int i = 0; i < m; ++i) actions.push_back(ir::forward(s, i));
    actions.push_back(ir::reduce_loss());
    program.ranks.push_back({std::move(actions), {}});
  }
  return program;
}

void read_metrics(const std::filesystem::path& path, Outcome& outcome) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    const auto number = [&](const char* key) {
      return json.at(key).is_null() ? std::numeric_limits<double>::quiet_NaN() : json.at(key).get<double>();
    };
    if (json.contains("eval_loss")) {
      outcome.eval_losses.push_back(number("eval_loss"));
      continue;
    }
    outcome.losses.push_back(number("loss"));
    outcome.norms.push_back(number("grad_norm"));
    outcome.rates.push_back(number("lr"));
  }
}

void read_weights(const std::filesystem::path& folder, Outcome& outcome) {
  const auto newest = newest_checkpoint(folder);
  if (!newest) throw std::runtime_error("no checkpoint in " + folder.string());
  const TensorFolder optimizer(*newest, "optimizer");
  for (const std::string& name : optimizer.names())
    if (name.ends_with(".master")) outcome.weights[name.substr(0, name.size() - 7)] = optimizer.load(name);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "femtotron-test-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ir::Settings small_settings() {
  ir::Settings s;
  s.model.layers = 4;
  s.model.hidden = 16;
  s.model.intermediate = 32;
  s.model.heads = 4;
  s.model.kv_heads = 2;
  s.model.vocab = 61;
  s.model.init_std = 0.1;
  s.batch.global = 8;
  s.batch.micro = 1;
  s.batch.seq_len = 16;
  s.optimizer.lr = 1e-2;
  s.optimizer.warmup_steps = 1;
  s.run.steps = 3;
  return s;
}

ir::Plan make_plan(const ir::Settings& settings, Order order) {
  ir::Plan plan;
  plan.settings = settings;
  plan.level = ir::Level::Communication;
  const int p = static_cast<int>(settings.parallel.pp);
  const int blocks = static_cast<int>(settings.model.layers) / p;
  for (int s = 0; s < p; ++s) {
    ir::Stage stage;
    stage.pp = static_cast<std::int16_t>(s);
    stage.prev = static_cast<std::int16_t>(s - 1);
    stage.next = static_cast<std::int16_t>(s + 1 == p ? -1 : s + 1);
    stage.first_unit = static_cast<std::int16_t>(s == 0 ? 0 : 1 + s * blocks);
    stage.units = static_cast<std::int16_t>(blocks + (s == 0) + (s + 1 == p));
    plan.stages.push_back(stage);
  }
  const int m = static_cast<int>(ir::microbatches(settings));
  plan.programs.push_back(train_program(settings, m, order));
  plan.programs.push_back(eval_program(p, m));
  ir::DiagnosticSink sink;
  for (ir::Program& program : plan.programs)
    if (!passes::lower_communication(plan.stages, program, sink)) throw std::runtime_error(sink.text());
  if (!ir::verify(plan, sink)) throw std::runtime_error(sink.text());
  return plan;
}

ir::Plan make_placed_plan(const ir::Settings& settings, fem::test::Placement placement,
                          const fem::test::Order& order) {
  const int p = static_cast<int>(settings.parallel.pp), m = static_cast<int>(ir::microbatches(settings));
  const int chunks = placement == fem::test::Placement::V ? 2 : 1, parts = chunks * p;
  ir::Plan plan = fem::test::make_plan(placement, p, chunks, m, order);
  plan.settings = settings;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    // The first parts hold one block more where the division leaves a remainder.
    const int part = static_cast<int>(s) % parts, layers = static_cast<int>(settings.model.layers);
    const auto before = [&](int n) { return n * (layers / parts) + std::min(n, layers % parts); };
    plan.stages[s].first_unit = static_cast<std::int16_t>(part == 0 ? 0 : 1 + before(part));
    plan.stages[s].units = static_cast<std::int16_t>(before(part + 1) - before(part) + (part == 0) +
                                                     (part + 1 == parts));
  }
  for (ir::RankProgram& rank : plan.programs[0].ranks) {
    std::vector<ir::Action>& actions = rank.actions;
    const auto reduction = std::ranges::find(actions, ir::ActionKind::AllReduce, &ir::Action::kind);
    std::vector<ir::Action> tied;
    for (std::size_t s = 0; settings.model.tied && s < plan.stages.size(); ++s) {
      if (plan.stages[s].pp != &rank - plan.programs[0].ranks.data()) continue;
      const int copies = (plan.stages[s].prev < 0) + (plan.stages[s].next < 0);
      for (int i = 0; i < copies; ++i) tied.push_back(ir::reduce_tied_grad(static_cast<int>(s)));
    }
    actions.insert(reduction, tied.begin(), tied.end());
  }
  plan.level = ir::Level::Communication;
  ir::DiagnosticSink sink;
  if (!passes::lower_communication(plan.stages, plan.programs[0], sink)) throw std::runtime_error(sink.text());
  if (!ir::verify(plan, sink)) throw std::runtime_error(sink.text());
  return plan;
}

std::string write_tokens(const std::filesystem::path& folder, std::int64_t vocab, std::int64_t tokens,
                         std::uint64_t seed) {
  std::vector<std::int64_t> document;
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (std::int64_t i = 0; i < tokens; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    // Half of the tokens repeat their neighbour plus one, so that there is something to learn.
    const bool follow = i > 0 && (state >> 40 & 1);
    document.push_back(follow ? (document.back() + 1) % vocab
                              : static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(vocab)));
  }
  const std::string prefix = (folder / ("tokens" + std::to_string(seed))).string();
  write_indexed_dataset(prefix, std::vector<std::vector<std::int64_t>>{document}, vocab);
  return prefix;
}

namespace {

Outcome run(ir::Plan plan, RunOptions options, const CommOptions& comm, bool save) {
  const TemporaryFolder folder;
  if (plan.settings.data.train.empty())
    plan.settings.data.train = write_tokens(folder.path(), plan.settings.model.vocab, 4000);
  if (options.metrics.empty()) options.metrics = folder.path() / "metrics.jsonl";
  if (save && options.save.empty()) options.save = folder.path() / "save";
  std::ostringstream text;
  options.out = &text;
  Outcome outcome;
  outcome.summary = run_world_local(plan, options, comm);
  read_metrics(options.metrics, outcome);
  if (save) read_weights(options.save, outcome);
  outcome.text = text.str();
  return outcome;
}

}  // namespace

Outcome train(ir::Plan plan, RunOptions options, const CommOptions& comm) {
  return run(std::move(plan), std::move(options), comm, true);
}

Outcome train_unsaved(ir::Plan plan, const CommOptions& comm) { return run(std::move(plan), {}, comm, false); }

namespace {

void on_ranks(const Topology& topology, const std::function<void(Communicator&)>& body) {
  World world = make_world(Backend::local, topology, {}, CommOptions{std::chrono::seconds(20)});
  run_ranks(world, body);
}

}  // namespace

void on_ranks(const ir::Settings& settings, const std::function<void(Communicator&)>& body) {
  on_ranks(Topology(settings), body);
}

void on_ranks(const ir::Plan& plan, const std::function<void(Communicator&)>& body) { on_ranks(Topology(plan), body); }

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::string difference(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return name + " is missing";
    if (!same_bits(tensor, other->second)) return name;
  }
  return a.size() == b.size() ? "" : "other names";
}

double relative_error(double a, double b) { return std::abs(a - b) / std::abs(b); }

}  // namespace fem::exec::test

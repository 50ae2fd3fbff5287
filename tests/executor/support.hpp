// Small plans built by hand, token files, and whole runs inside one process.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "executor/comm/communicator.hpp"
#include "executor/run_options.hpp"
#include "executor/trainer.hpp"
#include "ir/plan.hpp"
#include "tests/passes/orders.hpp"

namespace fem::exec::test {

// A folder of its own that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// 4 blocks, hidden 16, 4 heads on 2 kv heads, 16 tokens a sequence, 8 sequences a step, 3 steps, warm-up 1.
ir::Settings small_settings();

enum class Order { gpipe, one_f_one_b, split };  // split: 1F1B with BackwardInput, and BackwardWeight directly after it

// Programs train and eval at communication level, stages divided evenly over settings.parallel.pp ranks.
ir::Plan make_plan(const ir::Settings& settings, Order order = Order::one_f_one_b);

// Program train at communication level with two stages a rank (placement V) or two replicas in two directions, around
// the forwards and backwards of an order from tests/passes/orders.hpp.
ir::Plan make_placed_plan(const ir::Settings& settings, fem::test::Placement placement, const fem::test::Order& order);

// Writes PREFIX.bin and PREFIX.idx: one document of `tokens` pseudo-random ids below vocab. Returns the prefix.
std::string write_tokens(const std::filesystem::path& folder, std::int64_t vocab, std::int64_t tokens,
                         std::uint64_t seed = 1);

struct Outcome {
  RunSummary summary;
  std::vector<double> losses, norms, rates;  // of each step, as the metrics file gives them
  std::vector<double> eval_losses;
  std::map<std::string, at::Tensor> weights;  // the fp32 masters at the end, by Hugging Face name
  std::string text;                           // what the user saw
};

// Trains with one thread a rank; data is written where the plan names none.
Outcome train(ir::Plan plan, RunOptions options = {}, const CommOptions& comm = {});
// The same without a checkpoint: no weights in the outcome.
Outcome train_unsaved(ir::Plan plan, const CommOptions& comm = {});

// Runs a function on each rank of a mesh, a thread each, and rethrows the first error.
void on_ranks(const ir::Settings& settings, const std::function<void(Communicator&)>& body);
void on_ranks(const ir::Plan& plan, const std::function<void(Communicator&)>& body);

bool same_bits(const at::Tensor& a, const at::Tensor& b);
// Empty when both hold the same names with the same bits, else the first that differs.
std::string difference(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b);
double relative_error(double a, double b);

}  // namespace fem::exec::test

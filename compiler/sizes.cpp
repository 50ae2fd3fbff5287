#include "compiler/sizes.hpp"

#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/nearest_values.hpp"
#include "ir/plan.hpp"
#include "ir/replicas.hpp"

namespace fem::compiler {
namespace {

// The verifier's limits, so that a wrong number is reported where it was written.
constexpr std::int64_t kMaxSize = 1 << 24;
constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxScale = std::int64_t{1} << 40;
constexpr std::int64_t kMaxIndex = std::numeric_limits<std::int16_t>::max();  // of ranks, stages and units

struct IntegerRange {
  std::string_view section, key;
  std::int64_t low, high;
};
constexpr auto kIntegers = std::to_array<IntegerRange>({
    {"model", "layers", 1, kMaxIndex - 2},
    {"model", "hidden", 1, kMaxSize},
    {"model", "intermediate", 1, kMaxSize},
    {"model", "heads", 1, kMaxSize},
    {"model", "kv_heads", 0, kMaxSize},
    {"model", "head_dim", 0, kMaxSize},
    {"model", "vocab", 1, kMaxSize},
    {"parallel", "pp", 1, kMaxIndex},
    {"parallel", "dp", 1, kMaxIndex},
    {"parallel", "tp", 1, kMaxIndex},
    {"parallel", "cp", 1, kMaxIndex},
    {"parallel", "ep", 1, kMaxIndex},
    {"parallel", "shard", 0, kMaxIndex},
    {"schedule", "chunks", 0, kMaxIndex - 2},
    {"batch", "global", 1, kMaxCount},
    {"batch", "micro", 1, kMaxSize},
    {"batch", "seq_len", 1, kMaxSize},
    {"precision", "loss_scale", 1, kMaxScale},
    {"precision", "loss_scale_interval", 1, kMaxCount},
    {"precision", "loss_scale_factor", 2, 65536},
    {"optimizer", "warmup_steps", 0, kMaxCount},
    {"run", "steps", 0, kMaxCount},
    {"run", "eval_interval", 0, kMaxCount},
    {"run", "eval_steps", 0, kMaxCount},
    {"run", "log_interval", 1, kMaxCount},
    {"run", "skip_limit", 1, kMaxCount},
});

struct RealRange {
  std::string_view section, key;
  double low, high;  // high is outside
  bool open_low;     // low is outside
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kReals = std::to_array<RealRange>({
    {"model", "norm_eps", 0, kInfinity, false},
    {"model", "rope_theta", 0, kInfinity, true},
    {"model", "init_std", 0, kInfinity, false},
    {"model", "dropout", 0, 1, false},
    {"optimizer", "lr", 0, kInfinity, false},
    {"optimizer", "min_lr", 0, kInfinity, false},
    {"optimizer", "beta1", 0, 1, false},
    {"optimizer", "beta2", 0, 1, false},
    {"optimizer", "eps", 0, kInfinity, true},
    {"optimizer", "weight_decay", 0, kInfinity, false},
    {"optimizer", "clip_norm", 0, kInfinity, false},
});

class SizeCheck {
 public:
  SizeCheck(const Configuration& configuration, ir::DiagnosticSink& sink)
      : configuration_(configuration), settings_(configuration.settings()), sink_(sink) {}

  bool run() {
    const int errors = sink_.errors();
    check_ranges();
    if (sink_.errors() > errors) return false;  // the rest divides by these numbers
    check_model();
    check_tensor_parallel();
    check_batch();
    check_loss_scale();
    return sink_.errors() == errors;
  }

 private:
  void error(std::initializer_list<std::string_view> keys, std::string message) {
    configuration_.error(sink_, keys, std::move(message));
  }

  template <class Value>
  Value value(std::string_view section, std::string_view key) {
    ir::Settings copy = settings_;
    return *std::get<Value*>(ir::find_setting(section, key)->at(copy));
  }

  void check_ranges() {
    for (const IntegerRange& range : kIntegers) {
      const auto x = value<std::int64_t>(range.section, range.key);
      if (x >= range.low && x <= range.high) continue;
      const std::string key = fmt::format("{}.{}", range.section, range.key);
      error({key}, fmt::format("{}={} is not in {}..{}", key, x, range.low, range.high));
    }
    for (const RealRange& range : kReals) {
      const double x = value<double>(range.section, range.key);
      const bool low = range.open_low ? x > range.low : x >= range.low;
      if (low && x < range.high) continue;
      const std::string key = fmt::format("{}.{}", range.section, range.key);
      error({key}, fmt::format("{}={} must be {} {}{}", key, x, range.open_low ? "greater than" : "at least", range.low,
                               range.high < kInfinity ? fmt::format(" and less than {}", range.high) : ""));
    }
  }

  void check_model() {
    const auto& model = settings_.model;
    if (model.head_dim == 0 && model.hidden % model.heads != 0) {
      error({"model.hidden", "model.heads"},
            fmt::format("model.hidden={} is not a multiple of model.heads={}{} (or set model.head_dim)", model.hidden,
                        model.heads, nearest_multiples(model.hidden, model.heads)));
    } else if (const auto dim = model.head_dim ? model.head_dim : model.hidden / model.heads; dim % 2 != 0) {
      error({"model.head_dim", "model.hidden", "model.heads"},
            fmt::format("the width of a head is {}, but the rotary embedding turns pairs: it must be even", dim));
    }
    if (model.kv_heads != 0 && model.heads % model.kv_heads != 0) {
      error({"model.kv_heads", "model.heads"},
            fmt::format("model.heads={} is not a multiple of model.kv_heads={}{}", model.heads, model.kv_heads,
                        nearest_divisors(model.kv_heads, model.heads)));
    }
  }

  void check_tensor_parallel() {
    const auto& [model, parallel] = std::tie(settings_.model, settings_.parallel);
    const std::int64_t kv_heads = model.kv_heads ? model.kv_heads : model.heads;
    const std::array<std::pair<std::string_view, std::int64_t>, 3> divided = {
        {{"model.heads", model.heads}, {"model.kv_heads", kv_heads}, {"model.intermediate", model.intermediate}}};
    for (const auto& [key, size] : divided) {
      if (size % parallel.tp == 0) continue;
      error({"parallel.tp", key}, fmt::format("{}={} is not a multiple of parallel.tp={}{}", key, size, parallel.tp,
                                              nearest_divisors(parallel.tp, size)));
    }
    if (parallel.dp % parallel.ep != 0) {
      error({"parallel.ep", "parallel.dp"},
            fmt::format("parallel.dp={} is not a multiple of parallel.ep={}{}", parallel.dp, parallel.ep,
                        nearest_divisors(parallel.ep, parallel.dp)));
    }
    if (const std::int64_t replicas = ir::replicas(settings_); parallel.shard > 0 && replicas % parallel.shard != 0) {
      error({"parallel.shard", "parallel.dp", "parallel.cp"},
            fmt::format("parallel.dp * parallel.cp={} is not a multiple of parallel.shard={}{}", replicas,
                        parallel.shard, nearest_divisors(parallel.shard, replicas)));
    }
  }

  void check_batch() {
    const auto& [batch, parallel] = std::tie(settings_.batch, settings_.parallel);
    const std::int64_t unit = parallel.dp * batch.micro;
    if (batch.global % unit != 0) {
      error({"batch.global", "batch.micro", "parallel.dp"},
            fmt::format("batch.global={} is not a multiple of dp*micro={}{}", batch.global, unit,
                        nearest_multiples(batch.global, unit)));
    }
    if (batch.seq_len % parallel.cp != 0) {
      error({"batch.seq_len", "parallel.cp"},
            fmt::format("batch.seq_len={} is not a multiple of parallel.cp={}{}", batch.seq_len, parallel.cp,
                        nearest_multiples(batch.seq_len, parallel.cp)));
    }
  }

  void check_loss_scale() {
    for (const std::string_view key : {"loss_scale", "loss_scale_factor"}) {
      const auto x = value<std::int64_t>("precision", key);
      const auto below = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(x)));
      if (x == below) continue;
      const std::string name = fmt::format("precision.{}", key);
      error({name}, fmt::format("{}={} is not a power of two{}", name, x, nearest_text({below, 2 * below})));
    }
  }

  const Configuration& configuration_;
  const ir::Settings& settings_;
  ir::DiagnosticSink& sink_;
};

std::vector<std::int64_t> even_division(std::int64_t layers, int parts) {
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(parts), layers / parts);
  const std::int64_t extra = layers % parts;
  for (std::int64_t i = 0; i < extra; ++i) ++blocks[static_cast<std::size_t>((parts - extra) / 2 + i)];
  return blocks;
}

}  // namespace

bool check_sizes(const Configuration& configuration, ir::DiagnosticSink& sink) {
  return SizeCheck(configuration, sink).run();
}

std::optional<std::vector<std::int64_t>> divide_layers(const Configuration& configuration, int parts,
                                                       ir::DiagnosticSink& sink) {
  constexpr std::string_view kKey = "parallel.layers_per_stage";
  const std::int64_t layers = configuration.settings().model.layers;
  const std::vector<std::int64_t>& given = configuration.settings().parallel.layers_per_stage;
  if (given.empty()) {
    if (layers >= parts) return even_division(layers, parts);
    configuration.error(sink, {"model.layers", "parallel.pp", "schedule.chunks"},
                        fmt::format("model.layers={} is less than the {} stages (pp={} x chunks={}); nearest: {} (or "
                                    "fewer ranks or chunks)",
                                    layers, parts, configuration.settings().parallel.pp,
                                    parts / configuration.settings().parallel.pp, parts));
    return std::nullopt;
  }
  if (given.size() != static_cast<std::size_t>(parts)) {
    configuration.error(sink, {kKey},
                        fmt::format("{}=[{}] has {} stages, the layout has {} (pp={} x chunks={})", kKey,
                                    fmt::join(given, ", "), given.size(), parts, configuration.settings().parallel.pp,
                                    parts / configuration.settings().parallel.pp));
    return std::nullopt;
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    // The first stage has the embedding and the last the head: those may go without a block.
    const std::int64_t least = i == 0 || i + 1 == given.size() ? 0 : 1;
    if (given[i] < least || given[i] > layers) {
      configuration.error(
          sink, {kKey},
          fmt::format("{}: stage {} has {} blocks of {}, at least {} is needed", kKey, i, given[i], layers, least));
      return std::nullopt;
    }
    sum += given[i];
  }
  if (sum == layers) return given;
  configuration.error(
      sink, {kKey},
      fmt::format("{}=[{}] adds up to {} blocks, model.layers={}", kKey, fmt::join(given, ", "), sum, layers));
  return std::nullopt;
}

}  // namespace fem::compiler

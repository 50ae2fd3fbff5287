#include "compiler/sizes.hpp"

#include <array>
#include <bit>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/nearest_values.hpp"
#include "ir/plan.hpp"
#include "ir/replicas.hpp"

namespace fem::compiler {
namespace {

class SizeCheck {
 public:
  SizeCheck(const Configuration& configuration, ir::DiagnosticSink& sink)
      : configuration_(configuration), settings_(configuration.settings()), sink_(sink) {}

  bool run() {
    if (!check_limits(configuration_, sink_)) return false;  // the rest divides by these numbers
    const int errors = sink_.errors();
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
    const auto& precision = settings_.precision;
    for (const auto& [key, x] : {std::pair("loss_scale", precision.loss_scale),
                                 std::pair("loss_scale_factor", precision.loss_scale_factor)}) {
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

bool check_limits(const Configuration& configuration, ir::DiagnosticSink& sink) {
  const int errors = sink.errors();
  for (const ir::SettingInfo& row : ir::setting_table()) {
    if (ir::within_limits(configuration.settings(), row)) continue;
    const std::string key = fmt::format("{}.{}", row.section, row.key);
    configuration.error(sink, {key}, fmt::format("{}={} must be {}", key,
                                                 ir::setting_text(configuration.settings(), row), ir::limit_text(row)));
  }
  return sink.errors() == errors;
}

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

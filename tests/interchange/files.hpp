// Schedule files of torch.distributed.pipelining for the tests, and short ways to read them.
#pragma once

#include <optional>
#include <string>

#include "compiler/torch_csv.hpp"
#include "compiler/torch_csv_check.hpp"
#include "compiler/torch_csv_plan.hpp"
#include "tests/compiler/support.hpp"

namespace fem::compiler::test {

// Two ranks, two microbatches, with communication: the smallest of PyTorch's own test files (its simulator takes 11
// steps).
inline const std::string kTwoRanks =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n";

// Two ranks with two stages each as a v, one microbatch, backward in parts.
inline const std::string kV =
    "0F0,3F0,3I0,3W0,0I0,0W0\n"
    "1F0,2F0,2I0,2W0,1I0,1W0\n";

inline std::optional<TorchFile> read(const std::string& text, ir::DiagnosticSink& sink) {
  return read_torch_csv(source(text, "f.csv"), sink);
}

// The diagnostics of reading and checking; "" where there are none.
inline std::string faults(const std::string& text) {
  ir::DiagnosticSink sink;
  const auto file = read(text, sink);
  if (file) check_torch_csv(*file, sink);
  return sink.text();
}

inline Configuration configuration(int layers, int pp, int m, const std::vector<std::string>& set = {}) {
  ir::DiagnosticSink sink;
  auto result = read_configuration(source(config_text(layers, pp, m), "run.yaml"), set, sink);
  if (!result) throw std::runtime_error(sink.text());
  return std::move(*result);
}

inline std::optional<ir::Plan> import(const std::string& text, const Configuration& configuration,
                                      ir::DiagnosticSink& sink, ImportOptions options = {}) {
  const auto file = read(text, sink);
  const auto shape = file ? check_torch_csv(*file, sink) : std::nullopt;
  return shape ? plan_of_torch_csv(*file, *shape, configuration, options, sink) : std::nullopt;
}

}  // namespace fem::compiler::test

#include <gtest/gtest.h>

#include "compiler/sizes.hpp"
#include "support.hpp"

namespace fem::compiler::test {
namespace {

const char* kGood =
    "model:\n"
    "  layers: 4\n"
    "  hidden: 64\n"
    "  intermediate: 128\n"
    "  heads: 4\n"
    "  vocab: 256\n"
    "batch:\n"
    "  global: 8\n"
    "  seq_len: 16\n";

// Reads and checks; the diagnostics' text.
std::string errors(const std::string& text, const std::vector<std::string>& overrides = {}) {
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(source(text, "run.yaml"), overrides, sink);
  if (configuration) check_sizes(*configuration, sink);
  return sink.text();
}

TEST(Config, ReadsEveryTypeAndKeepsDefaults) {
  ir::DiagnosticSink sink;
  const std::string text = std::string(kGood) +
                           "parallel: {pp: 2, layers_per_stage: [1, 3]}\n"
                           "optimizer: {lr: 3e-4, decay: linear}\n"
                           "data:\n  train: ./some dir/x\n  eval: \"held # out\"\n"
                           "run:\n";
  const auto configuration = read_configuration(source(text), {}, sink);
  ASSERT_TRUE(configuration) << sink.text();
  const ir::Settings& s = configuration->settings();
  EXPECT_EQ(s.model.layers, 4);
  EXPECT_EQ(s.parallel.layers_per_stage, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(s.optimizer.lr, 3e-4);
  EXPECT_EQ(s.optimizer.decay, "linear");
  EXPECT_EQ(s.data.train, "./some dir/x");
  EXPECT_EQ(s.data.eval, "held # out");
  EXPECT_EQ(s.model.norm_eps, ir::Settings().model.norm_eps);
  EXPECT_FALSE(s.model.tied);
}

TEST(Config, OverridesWinInOrder) {
  ir::DiagnosticSink sink;
  const std::vector<std::string> set = {"model.tied=true", "model.layers=6", "model.layers=12", "data.train=a=b",
                                        "parallel.layers_per_stage=5,7"};
  const auto configuration = read_configuration(source(kGood), set, sink);
  ASSERT_TRUE(configuration) << sink.text();
  EXPECT_EQ(configuration->settings().model.layers, 12);
  EXPECT_TRUE(configuration->settings().model.tied);
  EXPECT_EQ(configuration->settings().data.train, "a=b");
  EXPECT_EQ(configuration->settings().parallel.layers_per_stage, (std::vector<std::int64_t>{5, 7}));
}

TEST(Config, OverridesCanSupplyRequiredSettings) {
  EXPECT_EQ(errors("", {"model.layers=4", "model.hidden=64", "model.intermediate=8", "model.heads=4", "model.vocab=9",
                        "batch.global=8", "batch.seq_len=16"}),
            "");
}

struct Fault {
  const char* title;
  std::string text;
  std::vector<std::string> set;
  const char* errors;
};
void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.title; }

class ConfigFaults : public testing::TestWithParam<Fault> {};

TEST_P(ConfigFaults, AreNamedWithPosition) { EXPECT_EQ(errors(GetParam().text, GetParam().set), GetParam().errors); }

INSTANTIATE_TEST_SUITE_P(
    Config, ConfigFaults,
    testing::ValuesIn(std::vector<Fault>{
        {"unknown section",
         std::string(kGood) + "modle:\n  x: 1\n",
         {},
         "run.yaml:10:1: error: unknown key 'modle' in the configuration, did you mean 'model'?\n  modle:\n  ^\n"},
        {"unknown key",
         std::string(kGood) + "parallel:\n  pq: 2\n",
         {},
         "run.yaml:11:3: error: unknown key 'pq' in section parallel, did you mean 'pp'?\n    pq: 2\n    ^\n"},
        {"unlike any key",
         std::string(kGood) + "run:\n  colour: 2\n",
         {},
         "run.yaml:11:3: error: unknown key 'colour' in section run; valid: steps, seed, eval_interval, eval_steps, "
         "log_interval, skip_limit\n    colour: 2\n    ^\n"},
        {"key twice",
         "model: {layers: 4, layers: 8}\n",
         {},
         "run.yaml:1:20: error: key 'layers' stands twice in section model\n  model: {layers: 4, layers: 8}\n"
         "                     ^\n"},
        {"not an integer",
         std::string(kGood) + "parallel:\n  pp: two\n",
         {},
         "run.yaml:11:7: error: parallel.pp: 'two' is not an integer\n    pp: two\n        ^\n"},
        {"not a number",
         std::string(kGood) + "optimizer: {lr: fast}\n",
         {},
         "run.yaml:10:17: error: optimizer.lr: 'fast' is not a finite number\n  optimizer: {lr: fast}\n"
         "                  ^\n"},
        {"list for a number",
         std::string(kGood) + "parallel: {pp: [1]}\n",
         {},
         "run.yaml:10:16: error: parallel.pp must be a value, found a list\n  parallel: {pp: [1]}\n"
         "                 ^\n"},
        {"word in a list",
         std::string(kGood) + "parallel: {layers_per_stage: [1, x]}\n",
         {},
         "run.yaml:10:34: error: parallel.layers_per_stage: 'x' is not an integer\n"
         "  parallel: {layers_per_stage: [1, x]}\n                                   ^\n"},
        {"not a choice",
         std::string(kGood) + "precision: {compute: bf61}\n",
         {},
         "run.yaml:10:22: error: precision.compute: 'bf61' is not one of fp32|bf16|fp16, did you mean 'bf16'?\n"
         "  precision: {compute: bf61}\n                       ^\n"},
        {"not a truth value",
         std::string(kGood) + "",
         {"model.tied=yes"},
         "--set:1:12: error: model.tied: 'yes' is not one of true|false\n  model.tied=yes\n             ^\n"},
        {"no value",
         std::string(kGood) + "parallel:\n  pp:\n",
         {},
         "run.yaml:11:3: error: parallel.pp has no value\n    pp:\n    ^\n"},
        {"section is a list",
         std::string(kGood) + "parallel: [1]\n",
         {},
         "run.yaml:10:11: error: section parallel must be a map, found a list\n  parallel: [1]\n            ^\n"},
        {"not YAML",
         "model: {layers: 4\nbatch: }\n",
         {},
         "run.yaml:2:6: error: not YAML: end of map flow not found\n  batch: }\n       ^\n"},
        {"required",
         "model: {layers: 4, hidden: 8}\n",
         {},
         "run.yaml: error: required settings are missing: model.intermediate, model.heads, model.vocab, batch.global, "
         "batch.seq_len\n"},
        {"empty file",
         "",
         {},
         "run.yaml: error: required settings are missing: model.layers, model.hidden, model.intermediate, model.heads, "
         "model.vocab, batch.global, batch.seq_len\n"},
        {"override of an unknown section",
         kGood,
         {"model.tied=true", "batsh.micro=1"},
         "--set:2:1: error: unknown section 'batsh', did you mean 'batch'?\n  batsh.micro=1\n  ^\n"},
        {"override of an unknown key",
         kGood,
         {"batch.mirco=1"},
         "--set:1:7: error: unknown key 'mirco' in section batch, did you mean 'micro'?\n  batch.mirco=1\n"
         "        ^\n"},
        {"override without a value",
         kGood,
         {"batch.micro"},
         "--set:1:1: error: 'batch.micro' does not read section.key=value\n  batch.micro\n  ^\n"},
        {"override without a section",
         kGood,
         {"micro=1"},
         "--set:1:1: error: 'micro=1' does not read section.key=value\n  micro=1\n  ^\n"},
        // Eight sequences do not divide into three microbatches.
        {"batch",
         kGood,
         {"batch.micro=3"},
         "run.yaml:8:11: error: batch.global=8 is not a multiple of dp*micro=3; nearest: 6 or 9\n    global: 8\n"
         "            ^\n"},
        {"batch by dp",
         kGood,
         {"batch.micro=2", "parallel.dp=3"},
         "run.yaml:8:11: error: batch.global=8 is not a multiple of dp*micro=6; nearest: 6 or 12\n    global: 8\n"
         "            ^\n"},
        {"batch below dp",
         kGood,
         {"parallel.dp=16"},
         "run.yaml:8:11: error: batch.global=8 is not a multiple of dp*micro=16; nearest: 16\n    global: 8\n"
         "            ^\n"},
        {"hidden by heads",
         kGood,
         {"model.heads=6"},
         "run.yaml:3:11: error: model.hidden=64 is not a multiple of model.heads=6; nearest: 60 or 66 (or set "
         "model.head_dim)\n    hidden: 64\n            ^\n"},
        {"odd head",
         kGood,
         {"model.head_dim=5"},
         "--set:1:16: error: the width of a head is 5, but the rotary embedding turns pairs: it must be even\n"
         "  model.head_dim=5\n                 ^\n"},
        {"kv heads",
         kGood,
         {"model.kv_heads=3"},
         "--set:1:16: error: model.heads=4 is not a multiple of model.kv_heads=3; nearest: 2 or 4\n"
         "  model.kv_heads=3\n                 ^\n"},
        {"kv heads by tp",
         kGood,
         {"model.heads=16", "model.kv_heads=4", "parallel.tp=8"},
         "--set:3:13: error: model.kv_heads=4 is not a multiple of parallel.tp=8; nearest: 4\n  parallel.tp=8\n"
         "              ^\n"},
        {"heads and intermediate by tp",
         kGood,
         {"parallel.tp=3"},
         "--set:1:13: error: model.heads=4 is not a multiple of parallel.tp=3; nearest: 2 or 4\n  parallel.tp=3\n"
         "              ^\n"
         "--set:1:13: error: model.kv_heads=4 is not a multiple of parallel.tp=3; nearest: 2 or 4\n  parallel.tp=3\n"
         "              ^\n"
         "--set:1:13: error: model.intermediate=128 is not a multiple of parallel.tp=3; nearest: 2 or 4\n  "
         "parallel.tp=3\n"
         "              ^\n"},
        {"ep by dp",
         kGood,
         {"parallel.dp=8", "parallel.ep=3"},
         "--set:2:13: error: parallel.dp=8 is not a multiple of parallel.ep=3; nearest: 2 or 4\n  parallel.ep=3\n"
         "              ^\n"},
        {"sequence by cp",
         kGood,
         {"parallel.cp=3"},
         "run.yaml:9:12: error: batch.seq_len=16 is not a multiple of parallel.cp=3; nearest: 15 or 18\n    seq_len: "
         "16\n"
         "             ^\n"},
        {"zero",
         kGood,
         {"model.vocab=0", "batch.micro=-1"},
         "--set:1:13: error: model.vocab=0 must be between 1 and 16777216\n  model.vocab=0\n              ^\n"
         "--set:2:13: error: batch.micro=-1 must be between 1 and 16777216\n  batch.micro=-1\n              ^\n"},
        {"no power of two",
         kGood,
         {"precision.loss_scale=1000"},
         "--set:1:22: error: precision.loss_scale=1000 is not a power of two; nearest: 512 or 1024\n"
         "  precision.loss_scale=1000\n                       ^\n"},
        {"numbers out of their rows' limits",
         "model: {layers: 8, hidden: 16, intermediate: 32, heads: 2, vocab: 32}\nparallel: {zero: 7}\n"
         "batch: {global: 4, seq_len: 8}\nmemory: {recompute_every: 0}\n",
         {},
         "run.yaml:2:18: error: parallel.zero=7 must be between 0 and 3\n  parallel: {zero: 7}\n                   ^\n"
         "run.yaml:4:27: error: memory.recompute_every=0 must be between 1 and 32765\n"
         "  memory: {recompute_every: 0}\n                            ^\n"},
        {"fraction out of range",
         kGood,
         {"optimizer.beta1=1"},
         "--set:1:17: error: optimizer.beta1=1 must be at least 0 and below 1\n  optimizer.beta1=1\n"
         "                  ^\n"}}));

TEST(Config, EveryOverrideOfEveryRowIsAccepted) {
  ir::DiagnosticSink sink;
  const auto base = read_configuration(source(kGood), {}, sink);
  ASSERT_TRUE(base);
  for (const ir::SettingInfo& row : ir::setting_table()) {
    ir::Settings copy = base->settings();
    std::string text = ir::setting_text(copy, row);
    if (text == "\"\"") text.clear();
    const std::string set = std::string(row.section) + "." + std::string(row.key) + "=" + text;
    const auto again = read_configuration(source(kGood), std::vector{set}, sink);
    ASSERT_TRUE(again) << set << sink.text();
    EXPECT_EQ(again->settings(), base->settings()) << set;
  }
}

std::vector<std::int64_t> division(int layers, int parts) {
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(source(config_text(layers, parts, 8)), {}, sink);
  return divide_layers(*configuration, parts, sink).value();
}

// Extra blocks go to the middle; the last part, which has the head, gets one only if all others but the first have one.
TEST(Config, EvenDivisionOfLayers) {
  using Blocks = std::vector<std::int64_t>;
  EXPECT_EQ(division(8, 4), (Blocks{2, 2, 2, 2}));
  EXPECT_EQ(division(5, 4), (Blocks{1, 2, 1, 1}));
  EXPECT_EQ(division(6, 4), (Blocks{1, 2, 2, 1}));
  EXPECT_EQ(division(7, 4), (Blocks{2, 2, 2, 1}));
  EXPECT_EQ(division(4, 3), (Blocks{1, 2, 1}));
  EXPECT_EQ(division(3, 2), (Blocks{2, 1}));
  EXPECT_EQ(division(3, 1), (Blocks{3}));
}

std::string division_errors(const std::vector<std::string>& set, int parts) {
  ir::DiagnosticSink sink;
  const auto configuration = read_configuration(source(config_text(4, 2, 8)), set, sink);
  EXPECT_EQ(divide_layers(*configuration, parts, sink), std::nullopt);
  return sink.all().empty() ? "" : sink.all()[0].message;
}

TEST(Config, DivisionsThatDoNotFit) {
  EXPECT_EQ(division_errors({}, 8),
            "model.layers=4 is less than the 8 stages (pp=2 x chunks=4); nearest: 8 (or fewer ranks or chunks)");
  EXPECT_EQ(division_errors({"parallel.layers_per_stage=1,1,2"}, 2),
            "parallel.layers_per_stage=[1, 1, 2] has 3 stages, the layout has 2 (pp=2 x chunks=1)");
  EXPECT_EQ(division_errors({"parallel.layers_per_stage=1,2"}, 2),
            "parallel.layers_per_stage=[1, 2] adds up to 3 blocks, model.layers=4");
  EXPECT_EQ(division_errors({"parallel.layers_per_stage=2,0,2,0"}, 4),
            "parallel.layers_per_stage: stage 1 has 0 blocks of 4, at least 1 is needed");
}

}  // namespace
}  // namespace fem::compiler::test

#include "executor/weights/checkpoint.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "executor/weights/hf_config.hpp"
#include "tests/data/support.hpp"
#include "tests/weights/file_limit.hpp"
#include "tests/weights/support.hpp"

namespace fem::exec {
namespace {

namespace fs = std::filesystem;
using testing::all_params;
using ::testing::ElementsAre;
using testing::expect_error;
using testing::FileSizeLimit;
using testing::get_bytes;
using ::testing::HasSubstr;
using testing::part_of;
using testing::put_bytes;
using testing::save;
using testing::small_settings;
using testing::TemporaryFolder;

constexpr std::int64_t kTokens = 5000;

Checkpoint open(const fs::path& dir, const ir::Settings& settings, std::vector<std::string>* warnings = nullptr) {
  return open_checkpoint(dir, settings, kTokens, warnings);
}

// Reads what `parts` ranks would read, into memory full of NaN, and compares every bit.
void expect_params(const Checkpoint& checkpoint, const ir::Settings& settings, double start, int parts) {
  const std::vector<CheckpointParam> expected = all_params(settings, start);
  std::size_t read = 0;
  for (int part = 0; part < parts; ++part) {
    for (const CheckpointParam& param : part_of(expected, part, parts)) {
      const std::string name = stored_name(settings, param.name);
      const auto same = [&](const TensorFolder& folder, const std::string& stored, const at::Tensor& value) {
        const at::Tensor target = at::full(value.sizes(), NAN, value.scalar_type());
        folder.load_into(stored, target);
        EXPECT_TRUE(at::equal(target, value)) << stored;
        EXPECT_EQ(folder.entry(stored).type, value.scalar_type()) << stored;
      };
      same(checkpoint.weights, name, param.weight);
      same(checkpoint.optimizer, master_name(name), param.master);
      same(checkpoint.optimizer, exp_avg_name(name), param.exp_avg);
      same(checkpoint.optimizer, exp_avg_sq_name(name), param.exp_avg_sq);
      ++read;
    }
  }
  EXPECT_EQ(read, expected.size());
}

TEST(Checkpoint, AnyNumberOfRanksReadsWhatAnyOtherWrote) {
  for (const bool tied : {false, true}) {
    const ir::Settings settings = small_settings(tied);
    for (const int written : {1, 2, 4, 6}) {
      const TemporaryFolder folder;
      save(folder.path(), settings, 20, written, 1);
      const Checkpoint checkpoint = open(folder.path(), settings);
      EXPECT_EQ(checkpoint.path, folder.path() / "step-00000020");
      for (const int reading : {1, 2, 3, 4}) expect_params(checkpoint, settings, 1, reading);
    }
  }
}

TEST(Checkpoint, KeepsNarrowWeightsBesideFp32Masters) {
  const std::tuple<const char*, at::ScalarType, const char*> formats[] = {{"bf16", at::kBFloat16, "bfloat16"},
                                                                          {"fp16", at::kHalf, "float16"}};
  for (const auto& [compute, type, name] : formats) {
    const TemporaryFolder folder;
    ir::Settings settings = small_settings();
    settings.precision.compute = compute;
    save(folder.path(), settings, 3, 2, 1);
    const Checkpoint checkpoint = open(folder.path(), settings);
    EXPECT_EQ(checkpoint.weights.entry("model.norm.weight").type, type);
    expect_params(checkpoint, settings, 1, 1);
    EXPECT_THAT(get_bytes(folder / "step-00000003/config.json"),
                ::testing::HasSubstr("\"torch_dtype\": \"" + std::string(name) + "\""));
  }
}

TEST(Checkpoint, ATiedModelIsStoredOnceWithItsFlag) {
  for (const int parts : {1, 3, 4}) {
    const TemporaryFolder folder;
    const ir::Settings settings = small_settings(true);
    save(folder.path(), settings, 5, parts, 1);
    const Checkpoint checkpoint = open(folder.path(), settings);
    EXPECT_FALSE(checkpoint.weights.has("lm_head.weight"));
    EXPECT_FALSE(checkpoint.optimizer.has(master_name("lm_head.weight")));
    EXPECT_EQ(checkpoint.weights.names().size(), 38u) << "embedding, 4 blocks of 9, final norm";
    EXPECT_EQ(stored_name(settings, "lm_head.weight"), "model.embed_tokens.weight");
    EXPECT_TRUE(read_hf_config(checkpoint.path / "config.json").tied);
    expect_error([&] { open(folder.path(), small_settings(false)); }, {"model.tied", "true", "false"});
  }
}

TEST(Checkpoint, StateComesBack) {
  const TemporaryFolder folder;
  const ir::Settings settings = small_settings();
  save(folder.path(), settings, 20, 1, 1);
  std::vector<std::string> warnings;
  const TrainingState state = open(folder.path(), settings, &warnings).state;
  EXPECT_EQ(state.step, 20);
  EXPECT_EQ(state.consumed_samples, 80);
  EXPECT_EQ(state.train_tokens, kTokens);
  EXPECT_EQ(state.settings.at("model.hidden"), "8");
  EXPECT_EQ(state.settings.size(), ir::setting_table().size());
  EXPECT_THAT(warnings, ElementsAre());
}

// A run without a loss scale writes none, as those did that know of none.
TEST(Checkpoint, TheLossScaleAndSkippedStepsComeBack) {
  const ir::Settings settings = small_settings();
  const auto written = [&](const TemporaryFolder& folder, const LossScale& scale, std::int64_t skips) {
    TrainingState state = make_state(settings, 20, 80, kTokens);
    state.loss_scale = scale;
    state.skips_in_a_row = skips;
    begin_checkpoint(folder.path(), 20);
    write_checkpoint_shard(folder.path(), settings, 20, 0, 1, all_params(settings, 1));
    finish_checkpoint(folder.path(), settings, 1, state);
    return open(folder.path(), settings).state;
  };
  const TemporaryFolder without, with, broken;
  EXPECT_EQ(written(without, {}, 0).loss_scale, LossScale{});
  EXPECT_EQ(get_bytes(without / "step-00000020/state.json").find("\"loss_scale\":"), std::string::npos);
  const LossScale scale{std::int64_t{1} << 33, 17};
  const TrainingState back = written(with, scale, 3);
  EXPECT_EQ(back.loss_scale, scale);
  EXPECT_EQ(back.skips_in_a_row, 3);
  expect_error([&] { written(broken, {1000, 0}, 0); }, {"state.json: loss_scale: scale: found 1000, expected a power"});
}

TEST(Checkpoint, FilesAreThoseOfTheLayout) {
  const TemporaryFolder folder;
  save(folder.path(), small_settings(), 7, 2, 1);
  std::vector<std::string> names;
  for (const fs::path& path : list_folder(folder.path() / "step-00000007")) names.push_back(path.filename());
  EXPECT_THAT(names, ElementsAre("complete", "config.json", "model-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                                 "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors",
                                 "optimizer.safetensors.index.json", "state.json"));
  EXPECT_EQ(get_bytes(folder / "latest"), "step-00000007\n");
}

// A save that dies after any of its files: the one before it is used, with a line that says so.
TEST(Checkpoint, ASaveThatDiesHalfWayLeavesTheOneBefore) {
  const ir::Settings settings = small_settings();
  const std::vector<CheckpointParam> params = all_params(settings, 2);
  for (int written = 0; written <= 2; ++written) {
    const TemporaryFolder folder;
    save(folder.path(), settings, 10, 1, 1);
    begin_checkpoint(folder.path(), 20);
    for (int part = 0; part < written; ++part) {
      write_checkpoint_shard(folder.path(), settings, 20, part, 2, part_of(params, part, 2));
    }
    std::vector<std::string> warnings;
    const Checkpoint checkpoint = open(folder.path(), settings, &warnings);
    EXPECT_EQ(checkpoint.state.step, 10);
    expect_params(checkpoint, settings, 1, 1);
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("skipped the incomplete checkpoint " + (folder / "step-00000020"))));
    EXPECT_EQ(get_bytes(folder / "latest"), "step-00000010\n");
  }
}

TEST(Checkpoint, ADamagedFileMakesItIncomplete) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder listing;
  save(listing.path(), settings, 20, 2, 1);
  for (const fs::path& path : list_folder(listing.path() / "step-00000020")) {
    const std::string name = path.filename();
    for (const bool shorten : {false, true}) {
      const TemporaryFolder folder;
      save(folder.path(), settings, 10, 2, 1);
      save(folder.path(), settings, 20, 2, 2);
      const std::string victim = folder / ("step-00000020/" + name), bytes = get_bytes(victim);
      if (shorten) {
        put_bytes(victim, bytes.substr(0, bytes.size() / 2));
      } else {
        fs::remove(victim);
      }
      std::vector<std::string> warnings;
      EXPECT_EQ(open(folder.path(), settings, &warnings).state.step, 10) << victim;
      EXPECT_THAT(warnings, ElementsAre(HasSubstr(victim)));
    }
  }
}

TEST(Checkpoint, SavingTheSameStepAgainKeepsTheOldOneUntilTheNewIsWhole) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder folder;
  save(folder.path(), settings, 20, 2, 1);
  begin_checkpoint(folder.path(), 20);
  write_checkpoint_shard(folder.path(), settings, 20, 0, 1, all_params(settings, 2));
  std::vector<std::string> warnings;
  expect_params(open(folder.path(), settings, &warnings), settings, 1, 1);
  EXPECT_EQ(warnings.size(), 1u);

  begin_checkpoint(folder.path(), 20);  // the interrupted save starts over
  expect_params(open(folder.path(), settings), settings, 1, 1);
  save(folder.path(), settings, 20, 1, 3);
  expect_params(open(folder.path(), settings), settings, 3, 1);
  EXPECT_EQ(list_folder(folder.path()).size(), 2u) << "latest and one step";
}

TEST(Checkpoint, ShardsThatDoNotMakeTheModelAreRefusedBeforeTheMarker) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder folder;
  const TrainingState state = make_state(settings, 1, 4, kTokens);
  std::vector<CheckpointParam> params = all_params(settings, 1);
  const auto finish = [&](const std::vector<std::vector<CheckpointParam>>& shards) {
    begin_checkpoint(folder.path(), 1);
    const int parts = static_cast<int>(shards.size());
    for (int part = 0; part < parts; ++part) {
      write_checkpoint_shard(folder.path(), settings, 1, part, parts, shards[static_cast<std::size_t>(part)]);
    }
    finish_checkpoint(folder.path(), settings, parts, state);
  };
  std::vector<CheckpointParam> fewer(params.begin(), params.end() - 1), wrong = params;
  expect_error([&] { finish({fewer}); }, {folder / "step-00000001", "no tensor \"lm_head.weight\""});
  expect_error(
      [&] {
        finish({params, fewer});
      },
      {"tensor \"model.embed_tokens.weight\"", "00001-of-00002", "00002-of-00002"});
  wrong[1].name = "model.layers.0.input_layernorm.weigth";
  expect_error([&] { finish({wrong}); }, {"no tensor \"model.layers.0.input_layernorm.weight\""});
  wrong = params;
  wrong[1] = {wrong[1].name, params[0].weight, params[0].master, params[0].exp_avg, params[0].exp_avg_sq};
  expect_error(
      [&] { finish({wrong}); },
      {"model.safetensors: tensor \"model.layers.0.input_layernorm.weight\": shape: found [11, 8], expected [8]"});
  wrong = params;
  wrong[2].exp_avg = wrong[2].exp_avg.to(at::kBFloat16);
  expect_error([&] { finish({wrong}); },
               {"optimizer state of model.layers.0.self_attn.q_proj.weight", "fp32", "[8, 8]"});
  EXPECT_FALSE(newest_checkpoint(folder.path()));
  finish({params});
  EXPECT_TRUE(newest_checkpoint(folder.path()));
}

TEST(Checkpoint, AFullDiskIsNoticedAndTheOneBeforeCounts) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder folder;
  save(folder.path(), settings, 10, 1, 1);
  {
    const FileSizeLimit limit(8192);
    expect_error([&] { save(folder.path(), settings, 20, 1, 2); }, {"cannot write", "step-00000020", "File too large"});
  }
  EXPECT_EQ(open(folder.path(), settings).state.step, 10);
}

TEST(Checkpoint, ResumeRefusesWhatBreaksTheRun) {
  const ir::Settings saved = small_settings();
  const TemporaryFolder folder;
  save(folder.path(), saved, 10, 1, 1);
  const auto refuse = [&](auto change, std::initializer_list<std::string> words) {
    ir::Settings settings = saved;
    change(settings);
    expect_error([&] { open(folder.path(), settings); }, words);
  };
  refuse([](auto& s) { s.model.hidden = 16; }, {"state.json: model.hidden", "with 8", "has 16"});
  refuse([](auto& s) { s.model.rope_theta = 500000; }, {"model.rope_theta", "with 10000", "has 5e+05"});
  refuse([](auto& s) { s.batch.global = 8; }, {"batch.global", "with 4", "has 8"});
  refuse([](auto& s) { s.batch.seq_len = 32; }, {"batch.seq_len", "with 16", "has 32"});
  refuse([](auto& s) { s.data.seed = 2; }, {"data.seed", "with 1", "has 2"});
  expect_error([&] { open_checkpoint(folder.path(), saved, 4999, nullptr); },
               {"state.json: train_tokens: found 5000, expected 4999"});
}

TEST(Checkpoint, ResumeAllowsAnyLayoutAndNamesWhatChangesTheNumbers) {
  const ir::Settings saved = small_settings();
  const TemporaryFolder folder;
  save(folder.path(), saved, 10, 1, 1);
  ir::Settings settings = saved;
  settings.parallel.pp = 2;
  settings.parallel.dp = 4;
  settings.schedule.name = "gpipe";
  settings.batch.micro = 2;
  settings.data.train = "moved";
  settings.run.eval_interval = 5;
  std::vector<std::string> warnings;
  open(folder.path(), settings, &warnings);
  EXPECT_THAT(warnings, ElementsAre());
  settings.optimizer.lr = 0.002;
  settings.run.steps = 80;
  settings.model.dropout = 0.1;
  settings.precision.loss_scale = 1024;  // the first of a run, and this one goes on
  open(folder.path(), settings, &warnings);
  EXPECT_THAT(warnings, ElementsAre("model.dropout changes from 0 to 0.1 at step 10",
                                    "optimizer.lr changes from 0.001 to 0.002 at step 10",
                                    "run.steps changes from 50 to 80 at step 10"));
}

TEST(Checkpoint, NothingToResumeFromIsAnError) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder folder;
  expect_error([&] { open(folder.path(), settings); }, {folder.path().string(), "no complete checkpoint"});
  expect_error([&] { open(folder / "absent", settings); }, {folder / "absent", "no complete checkpoint"});
  begin_checkpoint(folder.path(), 3);
  expect_error([&] { open(folder.path(), settings); }, {"no complete checkpoint", "step-00000003/complete is missing"});
}

// An earlier run into the same folder went further: its steps must not be taken for this run's.
TEST(Checkpoint, StepsBeyondTheLastSaveAreSetAside) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder folder;
  for (const std::int64_t step : {10, 30, 40}) save(folder.path(), settings, step, 1, 1);
  const std::vector<std::string> lines = save(folder.path(), settings, 20, 1, 2);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("step-00000030.abandoned"), HasSubstr("step-00000040.abandoned")));
  EXPECT_EQ(open(folder.path(), settings).state.step, 20);
  expect_params(open(folder.path(), settings), settings, 2, 1);
  EXPECT_TRUE(path_exists(folder / "step-00000040.abandoned/complete")) << "nothing is lost";
  EXPECT_TRUE(path_exists(folder / "step-00000010/complete"));
}

TEST(Checkpoint, TheNewestIsTheHighestStep) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder folder;
  for (const std::int64_t step : {5, 99'999'999, 100'000'000}) save(folder.path(), settings, step, 1, 1);
  make_folder(folder / "step-notes");
  put_bytes(folder / "step-", "");
  EXPECT_EQ(newest_checkpoint(folder.path()), folder.path() / "step-100000000");
  EXPECT_EQ(newest_checkpoint(folder / "step-00000005"), folder.path() / "step-00000005") << "one step may be named";
}

TEST(Checkpoint, ABrokenStateFileIsNamed) {
  const ir::Settings settings = small_settings();
  const TemporaryFolder folder;
  save(folder.path(), settings, 10, 1, 1);
  const std::string path = folder / "step-00000010/state.json", whole = get_bytes(path);
  const auto replace = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    put_bytes(path, text);  // of the same size, as damage that the marker does not see
  };
  replace("\"step\": 10", "\"step\": -1");
  expect_error([&] { open(folder.path(), settings); }, {"state.json: step: found -1"});
  replace("\"step\":", "\"stop\":");
  expect_error([&] { open(folder.path(), settings); }, {"state.json: no \"step\""});
  replace("\"version\": 1", "\"version\": 2");
  expect_error([&] { open(folder.path(), settings); }, {"state.json: version: found 2, expected 1"});
}

}  // namespace
}  // namespace fem::exec

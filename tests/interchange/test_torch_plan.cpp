// Import to verified plans, export, and the way back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.hpp"
#include "ir/verify.hpp"
#include "passes/manager.hpp"
#include "tests/interchange/files.hpp"

namespace fem::compiler::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> lines(const ir::RankProgram& rank) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < rank.actions.size(); i += ir::batch_size(rank.actions, i)) {
    result.push_back(ir::action_text(std::span(rank.actions).subspan(i)));
  }
  return result;
}

ir::Plan imported(const std::string& text, const Configuration& configuration, ImportOptions options = {}) {
  ir::DiagnosticSink sink;
  auto plan = import(text, configuration, sink, options);
  if (!plan) throw std::runtime_error(sink.text());
  return std::move(*plan);
}

std::string refused(const std::string& text, const Configuration& configuration, ImportOptions options = {}) {
  ir::DiagnosticSink sink;
  EXPECT_FALSE(import(text, configuration, sink, options));
  return sink.text();
}

ir::Plan planned(const std::string& name, int layers, int p, int m) {
  ir::DiagnosticSink sink;
  auto plan = make_plan(configuration(layers, p, m, {"schedule.name=" + name}), schedule(name), sink);
  if (!plan) throw std::runtime_error(sink.text());
  return std::move(*plan);
}

ir::Plan lowered(ir::Plan plan) {
  ir::DiagnosticSink sink;
  const auto pipeline = passes::parse_pipeline(ir::SourceText("", passes::default_pipeline()), sink);
  if (!pipeline || !passes::run_pipeline(*pipeline, plan, sink)) throw std::runtime_error(sink.text());
  return plan;
}

std::string exported(const ir::Plan& plan, ExportOptions options = {}) {
  ir::DiagnosticSink sink;
  const auto text = torch_csv_of_plan(plan, options, sink);
  if (!text) throw std::runtime_error(sink.text());
  return *text;
}

// Sends and receives stand beside their producers and consumers, as the plan's own lowering places them.
TEST(TorchPlan, ComputeOnlyFileBecomesAWholeStep) {
  const ir::Plan plan = imported("0F0,,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", configuration(4, 2, 2));
  EXPECT_EQ(plan.level, ir::Level::Communication);
  EXPECT_EQ(plan.settings.schedule.name, "f.csv");
  EXPECT_EQ(plan.settings.schedule.chunks, 1);
  ASSERT_EQ(plan.programs.size(), 1u);
  EXPECT_THAT(lines(plan.programs[0].ranks[1]),
              ElementsAre("ZeroGrad s1", "RecvForward s1 m0 from 0", "Forward s1 m0", "Backward s1 m0",
                          "SendBackwardRecvForward s1 m0 to 0, s1 m1 from 0", "Forward s1 m1", "Backward s1 m1",
                          "SendBackward s1 m1 to 0", "ReduceLoss over world", "AllReduce s1 over dp_cp",
                          "GradNorm over world", "ClipGrad s1", "OptimizerStep s1 if finite"));
}

TEST(TorchPlan, EvaluationBelongsToTheConfiguration) {
  const ir::Plan plan = imported("0F0,0B0\n", configuration(4, 1, 1, {"data.eval=held"}));
  ASSERT_EQ(plan.programs.size(), 2u);
  EXPECT_EQ(plan.programs[1].name, "eval");
}

TEST(TorchPlan, VPlacementAndPairs) {
  const ir::Plan plan = imported(kV, configuration(4, 2, 1));
  EXPECT_EQ(plan.settings.schedule.chunks, 2);
  EXPECT_EQ(plan.stages[3].pp, 0);
  EXPECT_EQ(plan.stages[2].pp, 1);
  const std::string pairs =
      "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n"
      "1F0,1B0,1F1,1B1,1F2,1B2\n";
  EXPECT_THAT(lines(imported(pairs, configuration(4, 2, 3)).programs[0].ranks[0]),
              testing::Contains("ForwardBackward s0 m2, s0 m0"));
}

TEST(TorchPlan, CommunicationIsPlacedAnewOrKept) {
  ir::DiagnosticSink sink;
  const auto anew = import(kTwoRanks, configuration(4, 2, 2), sink);
  ASSERT_TRUE(anew);
  EXPECT_THAT(sink.text(), HasSubstr("f.csv: note: the file's sends and receives are sound; they are placed anew"));
  EXPECT_EQ(anew->programs, imported("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", configuration(4, 2, 2)).programs);

  // Under rendezvous: rank 0 hands over both activations before rank 1 computes, as the file has it.
  const ir::Plan kept = imported(kTwoRanks, configuration(4, 2, 2), {.keep_communication = true});
  EXPECT_THAT(lines(kept.programs[0].ranks[1]),
              ElementsAre("ZeroGrad s1", "RecvForward s1 m0 from 0", "RecvForward s1 m1 from 0", "Forward s1 m0",
                          "Backward s1 m0", "SendBackward s1 m0 to 0", "Forward s1 m1", "Backward s1 m1",
                          "SendBackward s1 m1 to 0", "ReduceLoss over world", "AllReduce s1 over dp_cp",
                          "GradNorm over world", "ClipGrad s1", "OptimizerStep s1 if finite"));
}

// PyTorch's sends do not wait for their receives; a plan's do. What only works there is refused at its cells.
TEST(TorchPlan, KeptCommunicationMustNotBlock) {
  const std::string text =
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";
  EXPECT_EQ(faults(text), "");
  EXPECT_THAT(refused(text, configuration(4, 2, 2), {.keep_communication = true}),
              AllOf(HasSubstr("f.csv:1:"), HasSubstr("[V23]"),
                    HasSubstr("note: a plan's sends wait for their receives; without --keep-communication both are "
                              "placed anew")));
  imported(text, configuration(4, 2, 2));
  EXPECT_THAT(refused("0F0,0B0\n1F0,1B0\n", configuration(4, 2, 1), {.keep_communication = true}),
              HasSubstr("--keep-communication: the file has no SEND and RECV cells"));
}

TEST(TorchPlan, TheConfigurationMustAgree) {
  const std::string file = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  EXPECT_THAT(refused(file, configuration(4, 4, 8)),
              AllOf(HasSubstr("run.yaml:2:16: error: parallel.pp=4, but f.csv has 2 rows, one for each pipeline rank"),
                    HasSubstr("batch.global=8 makes 8 microbatches (dp=1, micro=1), but f.csv has 2; batch.global=2 "
                              "would fit")));
  EXPECT_THAT(refused(file, configuration(4, 2, 2, {"schedule.chunks=2"})),
              HasSubstr("schedule.chunks=2, but f.csv has 2 stages on 2 ranks, 1 each"));
  EXPECT_THAT(refused("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n", configuration(3, 2, 1)),
              HasSubstr("model.layers=3 is less than the 4 stages"));
}

TEST(TorchPlan, PlacementMustBeALoopOrAV) {
  EXPECT_THAT(refused("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0\n", configuration(4, 2, 1)),
              HasSubstr("the stages lie on ranks 0 0 1 1: a plan places them as a loop (0 1 0 1) or as a v (0 1 1 0)"));
}

TEST(TorchPlan, NotesSayWhatIsLeftOut) {
  ir::DiagnosticSink sink;
  ASSERT_TRUE(import("0UNSHARD,0F0,0F1,0BW0,0B1,0W1,0RESHARD,0REDUCE_GRAD\n", configuration(4, 1, 2), sink));
  EXPECT_EQ(sink.errors(), 0);
  EXPECT_THAT(sink.text(), HasSubstr("read in the older dialect: B is the input gradient, BW the whole backward"));
  EXPECT_THAT(sink.text(), HasSubstr("3 UNSHARD, RESHARD and REDUCE_GRAD cells are left out"));
}

// 1F1B, p=2, m=4, as published (arXiv 2104.04473, figure 4), with each send behind its producer and each receive before
// its consumer. Where a plan has one batch the lower rank's send is not before the upper's by rule: only that both rows
// take the messages in one order matters, which the next test checks.
TEST(TorchExport, OneForwardOneBackward) {
  const ir::Plan plan = lowered(planned("1f1b", 4, 2, 4));
  EXPECT_EQ(exported(plan, {.compute_only = true}),
            "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
            "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  EXPECT_EQ(faults(exported(plan)), "");
  EXPECT_THAT(exported(plan), AllOf(testing::StartsWith("0F0,0SEND_F0,0F1,"), HasSubstr("0RECV_B3,0B3,0REDUCE_GRAD\n"),
                                    testing::EndsWith("1B3,1SEND_B3,1REDUCE_GRAD\n")));
}

TEST(TorchExport, PairsAndParts) {
  const std::string text = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0I1,0W1,0B2\n";
  EXPECT_EQ(exported(imported(text, configuration(4, 1, 3)), {.compute_only = true}), text);
}

// The cells of a batch are in such an order that even sends that wait for their receives, one message at a time, do not
// block: the file keeps its communication and verifies.
TEST(TorchExport, TheWayBack) {
  for (const std::string name : {"gpipe", "1f1b", "interleaved_1f1b", "looped_bfs", "zb_h1", "zb_h2"}) {
    for (const int p : {1, 2, 4}) {
      for (const int m : {4, 8}) {
        const ir::Plan plan = lowered(planned(name, 16, p, m));
        const Configuration same = configuration(16, p, m);
        for (const bool compute_only : {false, true}) {
          const std::string text = exported(plan, {.compute_only = compute_only});
          EXPECT_EQ(imported(text, same).programs, plan.programs) << name << " p=" << p << " m=" << m;
          EXPECT_EQ(imported(text, same).stages, plan.stages);
        }
        if (p == 1) continue;
        const std::string text = exported(plan);
        EXPECT_EQ(exported(imported(text, same, {.keep_communication = true})), text) << name << " p=" << p;
      }
    }
  }
}

TEST(TorchExport, WhatCannotBeWritten) {
  const auto why_not = [](const ir::Plan& plan) {
    ir::DiagnosticSink sink;
    EXPECT_FALSE(torch_csv_of_plan(plan, {}, sink));
    return sink.text();
  };
  ir::Plan plan = planned("1f1b", 4, 2, 4);
  EXPECT_THAT(why_not(plan), HasSubstr("the plan is at level stage, without sends and receives: export it with "
                                       "--compute-only"));
  EXPECT_EQ(exported(plan, {.compute_only = true}).substr(0, 8), "0F0,0F1,");
  plan.stages[1].replica_of = 0;
  EXPECT_THAT(why_not(plan), HasSubstr("stage 1 is a replica of stage 0"));
  plan.programs[0].name = "eval";
  EXPECT_THAT(why_not(plan), HasSubstr("the plan has no program 'train'"));
}

class Commands : public testing::Test {
 protected:
  Streams streams() { return {out, err}; }
  TemporaryFolder folder;
  std::ostringstream out, err;
};

TEST_F(Commands, ImportChecksAloneOrMakesAPlan) {
  const std::string file = folder.write("two.csv", kTwoRanks), config = folder.write("run.yaml", config_text(4, 2, 2));
  ImportArguments arguments;
  arguments.file = file;
  EXPECT_EQ(import_command(arguments, streams()), kUsage);
  EXPECT_THAT(err.str(), HasSubstr("import needs --config CONFIG, or --check"));
  arguments.check = true;
  EXPECT_EQ(import_command(arguments, streams()), kSuccess);
  EXPECT_EQ(out.str(), file +
                           ": ok, 2 ranks, 2 stages (loop), 2 microbatches, 16 cells, with communication, current "
                           "dialect, 11 unit steps\n");
  arguments.check = false;
  arguments.config = config;
  arguments.output = (folder.path() / "two.fem").string();
  out.str("");
  EXPECT_EQ(import_command(arguments, streams()), kSuccess) << err.str();
  EXPECT_THAT(out.str(), HasSubstr("two.fem: 1 program, 2 pipeline ranks, "));
  ir::DiagnosticSink sink;
  const auto plan = ir::parse_plan(ir::SourceText("two.fem", folder.read("two.fem")), sink);
  ASSERT_TRUE(plan) << sink.text();
  EXPECT_EQ(plan->settings.schedule.name, "two.csv");

  out.str("");
  EXPECT_EQ(export_command({.plan = *arguments.output, .output = {}, .compute_only = true}, streams()), kSuccess);
  EXPECT_EQ(out.str(), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST_F(Commands, ImportOfWhatIsMissing) {
  ImportArguments arguments;
  arguments.file = (folder.path() / "none.csv").string();
  arguments.check = true;
  EXPECT_EQ(import_command(arguments, streams()), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("none.csv: error: cannot read: "));
  arguments.file = folder.write("bad.csv", "0F0\n");
  EXPECT_EQ(import_command(arguments, streams()), kDiagnosed);
  EXPECT_THAT(err.str(), HasSubstr("bad.csv:1:1: error: row 1 (rank 0), cell 1 '0F0': has no backward"));
}

}  // namespace
}  // namespace fem::compiler::test

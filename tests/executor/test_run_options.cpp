#include "executor/run_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/executor/support.hpp"

namespace fem::exec {
namespace {

using testing::HasSubstr;

struct Result {
  ir::Settings settings = test::small_settings();
  bool ok = false;
  std::string text;
};

Result apply(std::string_view assignment) {
  Result result;
  ir::DiagnosticSink sink;
  result.ok = override_setting(result.settings, assignment, sink);
  result.text = sink.text();
  return result;
}

TEST(OverrideSetting, SetsEveryRunSetting) {
  EXPECT_EQ(apply("run.steps=12").settings.run.steps, 12);
  EXPECT_EQ(apply("optimizer.lr=0.5").settings.optimizer.lr, 0.5);
  EXPECT_EQ(apply("data.train=a/b=c").settings.data.train, "a/b=c");
  EXPECT_EQ(apply("optimizer.decay=linear").settings.optimizer.decay, "linear");
}

TEST(OverrideSetting, RefusesEveryPlanSettingAndSaysToCompileAgain) {
  for (const ir::SettingInfo& row : ir::setting_table()) {
    if (row.change != ir::SettingChange::Plan) continue;
    const std::string key = std::string(row.section) + "." + std::string(row.key);
    const Result result = apply(key + "=1");
    EXPECT_FALSE(result.ok) << key;
    EXPECT_THAT(result.text,
                HasSubstr(key + " is part of the plan: compile again with femc plan CONFIG --set " + key + "=1"));
    EXPECT_EQ(result.settings, test::small_settings());
  }
}

TEST(OverrideSetting, NamesTheNearestKey) {
  EXPECT_THAT(apply("run.stepss=3").text, HasSubstr("unknown setting 'run.stepss', did you mean 'run.steps'?"));
  EXPECT_THAT(apply("zzz=3").text, HasSubstr("a run may set precision.loss_scale precision.loss_scale_interval"));
  EXPECT_THAT(apply("run.steps").text, HasSubstr("section.key=value"));
}

TEST(OverrideSetting, NamesTheValueThatDoesNotFit) {
  const Result result = apply("run.steps=soon");
  EXPECT_FALSE(result.ok);
  EXPECT_THAT(result.text, HasSubstr("run.steps: 'soon' is not an integer"));
  EXPECT_EQ(result.settings.run.steps, 3);
}

TEST(CheckRunSettings, NamesKeyValueAndLimit) {
  ir::Settings settings = test::small_settings();
  settings.run.log_interval = 0;
  settings.run.steps = -1;
  ir::DiagnosticSink sink;
  EXPECT_FALSE(check_run_settings(settings, sink));
  EXPECT_THAT(sink.text(), HasSubstr("run.steps is -1, must be between 0 and 2147483647"));
  EXPECT_THAT(sink.text(), HasSubstr("run.log_interval is 0, must be between 1 and 2147483647"));
  settings.run.skip_limit = 0;
  settings.precision.loss_scale = 1000;
  settings.precision.loss_scale_factor = 1;
  ir::DiagnosticSink more;
  EXPECT_FALSE(check_run_settings(settings, more));
  EXPECT_THAT(more.text(), HasSubstr("run.skip_limit is 0, must be between 1 and 2147483647"));
  EXPECT_THAT(more.text(), HasSubstr("precision.loss_scale is 1000, must be a power of two; nearest: 512 or 1024"));
  EXPECT_THAT(more.text(), HasSubstr("precision.loss_scale_factor is 1, must be between 2 and 65536"));
  ir::DiagnosticSink clean;
  EXPECT_TRUE(check_run_settings(test::small_settings(), clean));
}

}  // namespace
}  // namespace fem::exec

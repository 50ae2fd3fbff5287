#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "ir/plan.hpp"
#include "ir/settings.hpp"

namespace fem::ir::testing {
namespace {

const SettingInfo& row(std::string_view section, std::string_view key) {
  const SettingInfo* found = find_setting(section, key);
  EXPECT_NE(found, nullptr) << section << '.' << key;
  return *found;
}

TEST(Settings, TheTableReachesEveryMember) {
  Settings s;
  std::set<std::string> names;
  for (const SettingInfo& r : setting_table()) {
    EXPECT_TRUE(names.insert(std::string(r.section) + '.' + std::string(r.key)).second) << r.key;
    EXPECT_EQ(r.at(s).index(), static_cast<std::size_t>(r.type)) << r.key;
    EXPECT_EQ(find_setting(r.section, r.key), &r);
  }
  EXPECT_EQ(row("model", "layers").at(s), SettingRef(&s.model.layers));
  EXPECT_EQ(row("run", "log_interval").at(s), SettingRef(&s.run.log_interval));
  EXPECT_EQ(setting_sections().front().name, "model");
  EXPECT_EQ(setting_sections().back().name, "run");
  EXPECT_EQ(find_setting("model", "steps"), nullptr);
}

TEST(Settings, EveryDefaultReadsBackFromItsText) {
  const Settings defaults;
  for (const SettingInfo& r : setting_table()) {
    Settings s;
    std::string text = setting_text(defaults, r);
    if (text == "\"\"") text.clear();
    EXPECT_EQ(set_from_text(s, r, text), "") << r.key;
    EXPECT_EQ(s, defaults) << r.key;
  }
}

// The shortest decimals: 0.1 is not printed as 0.1000000000000000055.
TEST(Settings, RealsArePrintedShortAndReadBackExactly) {
  Settings s;
  const SettingInfo& lr = row("optimizer", "lr");
  for (const double value : {0.1, 1e-8, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, 123456789.0, -0.0}) {
    s.optimizer.lr = value;
    const std::string text = setting_text(s, lr);
    Settings read;
    EXPECT_EQ(set_from_text(read, lr, text), "");
    EXPECT_EQ(read.optimizer.lr, value) << text;
  }
  s.optimizer.lr = 0.1;
  EXPECT_EQ(setting_text(s, lr), "0.1");
  s.optimizer.lr = 10000;
  EXPECT_EQ(setting_text(s, lr), "10000");
}

TEST(Settings, TextsAreQuotedWhereTheyMustBe) {
  Settings s;
  const SettingInfo& train = row("data", "train");
  const auto text = [&](std::string value) {
    s.data.train = std::move(value);
    return setting_text(s, train);
  };
  EXPECT_EQ(text("bible/train"), "bible/train");
  EXPECT_EQ(text(""), "\"\"");
  EXPECT_EQ(text("a b"), "\"a b\"");
  EXPECT_EQ(text("a\"b"), "\"a\\\"b\"");
  EXPECT_EQ(text("a\\b"), "\"a\\\\b\"");
  EXPECT_EQ(text("#1"), "\"#1\"");
  EXPECT_EQ(text("a\nb"), "\"a\\x0ab\"");
}

TEST(Settings, ListsAreSeparatedByCommas) {
  Settings s;
  const SettingInfo& layers = row("parallel", "layers_per_stage");
  EXPECT_EQ(set_from_text(s, layers, "1,2,3"), "");
  EXPECT_EQ(s.parallel.layers_per_stage, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(setting_text(s, layers), "1,2,3");
  EXPECT_EQ(set_from_text(s, layers, ""), "");
  EXPECT_TRUE(s.parallel.layers_per_stage.empty());
  EXPECT_EQ(setting_text(s, layers), "");
}

TEST(Settings, RefusalsSayWhyAndLeaveTheValueAlone) {
  Settings s;
  const Settings before = s;
  EXPECT_EQ(set_from_text(s, row("model", "layers"), "8x"), "not an integer");
  EXPECT_EQ(set_from_text(s, row("model", "layers"), "99999999999999999999"), "not an integer");
  EXPECT_EQ(set_from_text(s, row("model", "layers"), ""), "not an integer");
  EXPECT_EQ(set_from_text(s, row("optimizer", "lr"), "fast"), "not a finite number");
  EXPECT_EQ(set_from_text(s, row("optimizer", "lr"), "nan"), "not a finite number");
  EXPECT_EQ(set_from_text(s, row("optimizer", "lr"), "inf"), "not a finite number");
  EXPECT_EQ(set_from_text(s, row("model", "tied"), "1"), "not one of true|false");
  EXPECT_EQ(set_from_text(s, row("precision", "compute"), "bf61"), "not one of fp32|bf16|fp16, did you mean 'bf16'?");
  EXPECT_EQ(set_from_text(s, row("parallel", "layers_per_stage"), "1,,2"), "not a list of integers as 1,2,3");
  EXPECT_EQ(s, before);
}

TEST(Settings, MicrobatchesDivideTheGlobalBatch) {
  Settings s;
  s.batch.global = 24;
  s.batch.micro = 3;
  s.parallel.dp = 2;
  EXPECT_EQ(microbatches(s), 4);
  s.parallel.dp = 0;
  EXPECT_EQ(microbatches(s), 0);
}

// The least and the most that a row allows are within its limits, what lies beyond is not.
TEST(Settings, LimitsAreThoseOfTheTable) {
  int limited = 0;
  for (const SettingInfo& row : setting_table()) {
    Settings settings;
    EXPECT_TRUE(row.type == SettingType::Int || row.type == SettingType::Real || limit_text(row).empty()) << row.key;
    if (limit_text(row).empty()) continue;
    ++limited;
    const auto within = [&](double value) {
      if (row.type == SettingType::Int) {
        *std::get<setting_type::Int*>(row.at(settings)) = static_cast<std::int64_t>(value);
      } else {
        *std::get<setting_type::Real*>(row.at(settings)) = value;
      }
      return within_limits(settings, row);
    };
    const double step = row.type == SettingType::Int ? 1 : 1e-3;
    EXPECT_TRUE(within(row.allowed.least)) << row.key;
    EXPECT_FALSE(within(row.allowed.least - step)) << row.key;
    if (std::isfinite(row.allowed.most)) {
      EXPECT_TRUE(within(row.allowed.most)) << row.key;
      EXPECT_FALSE(within(row.allowed.most + step)) << row.key;
    } else {
      EXPECT_FALSE(within(row.type == SettingType::Int ? kMostInt + 2 : row.allowed.most)) << row.key;
    }
    if (row.type == SettingType::Int) continue;
    EXPECT_FALSE(within(std::numeric_limits<double>::quiet_NaN())) << row.key;
  }
  EXPECT_GT(limited, 40);
}

TEST(Settings, LimitsAreSaidInWords) {
  EXPECT_EQ(limit_text(*find_setting("parallel", "zero")), "between 0 and 3");
  EXPECT_EQ(limit_text(*find_setting("optimizer", "lr")), "at least 0");
  EXPECT_EQ(limit_text(*find_setting("optimizer", "eps")), "above 0");
  EXPECT_EQ(limit_text(*find_setting("model", "dropout")), "at least 0 and below 1");
  EXPECT_EQ(limit_text(*find_setting("data", "seed")), "");
}

}  // namespace
}  // namespace fem::ir::testing

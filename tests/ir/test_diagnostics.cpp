#include <gtest/gtest.h>

#include <array>

#include "ir/diagnostics.hpp"

namespace fem::ir::testing {
namespace {

constexpr std::array<std::string_view, 5> kWords{"layers", "hidden", "heads", "kv_heads", "vocab"};

TEST(Nearest, CountsATranspositionAsOneEdit) {
  EXPECT_EQ(nearest("laeyrs", kWords), "layers");
  EXPECT_EQ(nearest("haeds", kWords), "heads");
  EXPECT_EQ(nearest("ab", std::array<std::string_view, 1>{"ba"}), "ba");
}

TEST(Nearest, CountsInsertionDeletionAndSubstitution) {
  EXPECT_EQ(nearest("layer", kWords), "layers");
  EXPECT_EQ(nearest("layerss", kWords), "layers");
  EXPECT_EQ(nearest("hudden", kWords), "hidden");
}

TEST(Nearest, AllowsAThirdOfTheLongerWordAndAtLeastOneEdit) {
  EXPECT_EQ(nearest("lxyxrs", kWords), "layers");  // 2 of 6
  EXPECT_EQ(nearest("lxyxxs", kWords), "");        // 3 of 6
  EXPECT_EQ(nearest("pq", std::array<std::string_view, 1>{"pp"}), "pp");
  EXPECT_EQ(nearest("qq", std::array<std::string_view, 1>{"pp"}), "");
  EXPECT_EQ(nearest("", kWords), "");
  EXPECT_EQ(nearest(std::string(5000, 'x'), kWords), "");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Nearest, TakesTheClosestAndTheFirstOfEquals) {
  EXPECT_EQ(nearest("kv_head", kWords), "kv_heads");
  EXPECT_EQ(nearest("ac", std::array<std::string_view, 2>{"ab", "ad"}), "ab");
  EXPECT_EQ(did_you_mean("layer", kWords), ", did you mean 'layers'?");
  EXPECT_EQ(did_you_mean("qqqqqq", kWords), "");
}

TEST(Diagnostics, PrintPlaceMessageCodeLineAndCaret) {
  const SourceText source("run.yaml", "model:\n  layer: 8\n");
  DiagnosticSink sink;
  source.error(sink, 2, 3, "unknown key 'layer', did you mean 'layers'?", "V07");
  EXPECT_EQ(sink.text(),
            "run.yaml:2:3: error: unknown key 'layer', did you mean 'layers'? [V07]\n"
            "    layer: 8\n"
            "    ^\n");
}

TEST(Diagnostics, LeaveOutWhatIsUnknown) {
  DiagnosticSink sink;
  sink.error({}, "no place");
  sink.error({"a.yaml", 0, 0}, "no line");
  sink.warning({"a.yaml", 3, 0}, "no column");
  sink.note({"a.yaml", 3, 4}, "no text");
  EXPECT_EQ(sink.text(),
            "error: no place\na.yaml: error: no line\na.yaml:3: warning: no column\na.yaml:3:4: note: no text\n");
  EXPECT_EQ(sink.errors(), 2);
  EXPECT_EQ(sink.all().size(), 4u);
  sink.clear();
  EXPECT_FALSE(sink.has_errors());
  EXPECT_EQ(sink.text(), "");
}

TEST(Diagnostics, WarningsAndNotesAreNoErrors) {
  DiagnosticSink sink;
  sink.warning({}, "w");
  sink.note({}, "n");
  EXPECT_FALSE(sink.has_errors());
}

TEST(Diagnostics, TheCaretStandsUnderItsCharacter) {
  DiagnosticSink sink;
  const SourceText source("f", "\tx = \xc3\xa4 y\n");  // a tab, and a character of two bytes
  source.error(sink, 1, 9, "m");
  EXPECT_EQ(sink.text(), "f:1:9: error: m\n  \tx = \xc3\xa4 y\n  \t      ^\n");
}

TEST(Diagnostics, ControlBytesDoNotReachTheTerminal) {
  DiagnosticSink sink;
  const SourceText source("f", "a\x1b[31mb\n");
  source.error(sink, 1, 2, "bad '\x1b'");
  EXPECT_EQ(sink.text(), "f:1:2: error: bad '?'\n  a?[31mb\n   ^\n");
}

TEST(Diagnostics, LongLinesAreCutAroundTheCaret) {
  DiagnosticSink sink;
  const SourceText source("f", std::string(5000, 'a') + "B" + std::string(5000, 'c'));
  source.error(sink, 1, 5001, "m");
  const std::string text = sink.text();
  EXPECT_LT(text.size(), 500u);
  const std::size_t line = text.find('\n') + 1, caret = text.find('^');
  const std::size_t second = text.find('\n', line) + 1;
  EXPECT_EQ(text[line + (caret - second)], 'B');
}

TEST(SourceText, FindsItsLines) {
  const SourceText source("f", "one\r\ntwo\n\nfour");
  EXPECT_EQ(source.lines(), 4);
  EXPECT_EQ(source.line(1), "one");
  EXPECT_EQ(source.line(2), "two");
  EXPECT_EQ(source.line(3), "");
  EXPECT_EQ(source.line(4), "four");
  EXPECT_EQ(source.line(0), "");
  EXPECT_EQ(source.line(5), "");
  EXPECT_EQ(SourceText("f", "").lines(), 1);
  EXPECT_EQ(SourceText("f", "a\n").lines(), 1);
}

}  // namespace
}  // namespace fem::ir::testing

#include "compiler/timeline_html.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "ir/text.hpp"

namespace fem::compiler {

extern const std::string_view kTimelinePage;  // timeline_page.html, put into a source file by the build

namespace {

// Key of the page's table of colours.
char kind_of(std::span<const ir::Action> batch) {
  if (batch[0].lane == ir::Lane::Collective) return 'C';
  if (batch[0].lane == ir::Lane::Copy) return 'K';
  if (ir::is_p2p(batch[0].kind)) return 'P';
  if (batch.size() > 1) return 'O';
  if (batch[0].kind == ir::ActionKind::Forward) return 'F';
  if (batch[0].kind == ir::ActionKind::Backward) return 'B';
  if (batch[0].kind == ir::ActionKind::BackwardInput) return 'I';
  if (batch[0].kind == ir::ActionKind::BackwardWeight) return 'W';
  if (batch[0].kind == ir::ActionKind::Recompute) return 'R';
  return 'X';
}

// Texts of actions repeat but for the microbatch: each is stored once, with # in its place.
class Patterns {
 public:
  std::size_t index(std::span<const ir::Action> batch) {
    pattern_.clear();
    const std::string text = ir::action_text(batch);
    for (std::size_t i = 0; i < text.size();) {
      pattern_ += text[i++];
      if (!pattern_.ends_with(" m") || i == text.size() || !digit(text[i])) continue;
      pattern_ += '#';
      while (i < text.size() && digit(text[i])) ++i;
    }
    const auto [found, is_new] = index_.try_emplace(pattern_, texts_.size());
    if (is_new) {
      texts_.push_back(pattern_);
      kinds_.emplace_back(1, kind_of(batch));
    }
    return found->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<std::string>& kinds() const { return kinds_; }

 private:
  static bool digit(char c) { return c >= '0' && c <= '9'; }

  std::unordered_map<std::string, std::size_t> index_;
  std::vector<std::string> texts_, kinds_;
  std::string pattern_;
};

class PageWriter {
 public:
  PageWriter(const ir::Program& program, const passes::Simulation& simulation, double scale)
      : program_(program), simulation_(simulation), scale_(scale) {}

  // The JSON list of ranks.
  std::string ranks(const ir::Plan& plan, const std::vector<passes::RankMemory>& memory) {
    out_ = "[";
    for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
      std::vector<int> stages;
      for (std::size_t s = 0; s < plan.stages.size(); ++s) {
        if (plan.stages[s].pp == static_cast<int>(r)) stages.push_back(static_cast<int>(s));
      }
      put(R"({}{{"rank":{},"stages":"{}","peak":{},"rows":[)", r ? ",\n" : "", r, fmt::join(stages, ","),
          memory[r].peak);
      rows(r);
      out_ += "],\"memory\":[";
      bool first = true;
      for (const passes::MemoryPoint& point : memory[r].points) {
        put("{}[{:.10g},{}]", first ? "" : ",", point.time * scale_, point.bytes);
        first = false;
      }
      out_ += "]}";
    }
    return std::move(out_ += "]");
  }
  const Patterns& patterns() const { return patterns_; }

 private:
  template <class... T>
  void put(fmt::format_string<T...> format, T&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<T>(values)...);
  }

  // Lanes without an action have no row, compute has one always.
  void rows(std::size_t r) {
    for (int l = 0; l < ir::kLanes; ++l) {
      const std::span<const ir::Action> actions = program_.ranks[r].actions;
      std::size_t items = 0;
      for (std::size_t i = 0; i < actions.size();) {
        const std::size_t size = ir::batch_size(actions, i);
        if (static_cast<int>(actions[i].lane) == l) {
          if (items++ == 0) put(R"({}{{"lane":{},"items":[)", l ? "," : "", l);
          item(actions.subspan(i, size), simulation_.actions[r][i], items > 1);
        }
        i += size;
      }
      if (items == 0 && l == 0) out_ += R"({"lane":0,"items":[)";
      if (items > 0 || l == 0) out_ += "]}";
    }
  }

  void item(std::span<const ir::Action> batch, const passes::ActionTime& time, bool comma) {
    put("{}[{:.10g},{:.10g},{}", comma ? "," : "", time.start * scale_, time.end * scale_, patterns_.index(batch));
    for (const ir::Action& a : batch) {
      if (a.microbatch >= 0) put(",{}", a.microbatch);
    }
    out_ += "]";
  }

  const ir::Program& program_;
  const passes::Simulation& simulation_;
  double scale_;
  Patterns patterns_;
  std::string out_;
};

void replace(std::string& text, std::string_view mark, std::string_view value) {
  text.replace(text.find(mark), mark.size(), value);
}

// Inside a script element a "<" could end it; in JSON it stands in strings alone.
std::string for_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string escape(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

}  // namespace

std::string timeline_html(const ir::Plan& plan, const ir::Program& program, const passes::Simulation& simulation,
                          const std::vector<passes::RankMemory>& memory, const TimelinePicture& picture) {
  const double scale = picture.seconds ? 1e6 : 1;
  std::int64_t peak = 0;
  for (const passes::RankMemory& rank : memory) peak = std::max(peak, rank.peak);
  PageWriter writer(program, simulation, scale);
  const std::string ranks = writer.ranks(plan, memory);
  nlohmann::ordered_json head = {{"title", picture.title},
                                 {"figures", picture.figures},
                                 {"unit", picture.seconds ? "us" : "slots"},
                                 {"end", simulation.step_time * scale},
                                 {"peak", peak},
                                 {"lanes", nlohmann::json::array()},
                                 {"patterns", writer.patterns().texts()},
                                 {"classes", writer.patterns().kinds()}};
  for (int l = 0; l < ir::kLanes; ++l) head["lanes"].push_back(ir::name(static_cast<ir::Lane>(l)));
  std::string data = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  data.pop_back();
  data += ",\n\"ranks\":" + ranks + "}";
  std::string page(kTimelinePage);
  replace(page, "{{TITLE}}", escape(picture.title));
  replace(page, "{{DATA}}", for_script(data));
  return page;
}

}  // namespace fem::compiler

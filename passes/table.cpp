// The pass table, generated from passes.def.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "ir/memory_blocks.hpp"
#include "passes/pass.hpp"

namespace fem::passes {
namespace {

template <class... T>
constexpr auto names(T... name) {
  return std::array<std::string_view, sizeof...(T)>{name...};
}

// One namespace per pass: the names that its row refers to, and its option rows.
#define PASS(name, in, out, needs, conflicts, optimisation, doc) \
  namespace pass_##name {                                        \
    constexpr auto kNeeds = names(needs);                        \
    constexpr auto kConflicts = names(conflicts);                \
    constexpr OptionInfo kOptions[] = {
#define OPTION(pass, name, type, value, choices, doc) {#name, OptionType::type, value, choices, doc},
#define END_PASS(name) \
  {}                   \
  }                    \
  ;                    \
  }  // the last row is empty: an array may not be
#include "passes/passes.def"

constexpr PassInfo kPasses[] = {
#define PASS(name, in, out, needs, conflicts, optimisation, doc)                 \
  {#name,                                                                        \
   ir::Level::in,                                                                \
   ir::Level::out,                                                               \
   pass_##name::kNeeds,                                                          \
   pass_##name::kConflicts,                                                      \
   optimisation,                                                                 \
   std::span(pass_##name::kOptions).first(std::size(pass_##name::kOptions) - 1), \
   doc,                                                                          \
   run_##name},
#define OPTION(...)
#define END_PASS(...)
#include "passes/passes.def"
};

}  // namespace

std::span<const PassInfo> pass_table() { return kPasses; }

namespace {

// "name{a=1,b=x}" with the options that have text.
std::string call(std::string name, std::initializer_list<std::pair<std::string_view, std::string>> options) {
  std::string text;
  for (const auto& [option, value] : options) {
    if (!value.empty()) text += (text.empty() ? "" : ",") + std::string(option) + "=" + value;
  }
  return text.empty() ? name : name + "{" + text + "}";
}
// "" where it is the default, which a pipeline need not name.
std::string unless(std::int64_t value, std::int64_t usual) { return value == usual ? "" : std::to_string(value); }

}  // namespace

std::string default_pipeline(const ir::Settings& settings) {
  std::string text = "communication";
  const bool sharded = settings.parallel.zero > 0 || settings.parallel.reduce != "step";
  const auto& memory = settings.memory;
  const auto& overlap = settings.overlap;
  const bool recomputed = memory.recompute != "none";
  if (!sharded && !recomputed && memory.offload == "none" && !overlap.lanes) return text;
  text += ",units";
  if (recomputed) {
    text += "," + call("recompute", {{"mode", memory.recompute},
                                     {"every", unless(memory.recompute_every, 1)},
                                     {"first", unless(memory.recompute_first, 0)},
                                     {"last", unless(std::max<std::int64_t>(memory.recompute_last, -1), -1)}});
  }
  if (ir::offloads_saved(settings)) text += "," + call("offload", {{"gap", unless(memory.offload_gap, 8)}});
  if (!overlap.lanes) return text;
  if ((settings.parallel.zero == 3 || ir::offloads_optimizer(settings)) && overlap.prefetch > 0) {
    text += "," + call("prefetch", {{"distance", unless(overlap.prefetch, 1)}, {"budget", overlap.prefetch_budget}});
  }
  if (overlap.receive_ahead > 0)
    text += "," + call("receive_ahead", {{"distance", unless(overlap.receive_ahead, 2)}});
  return text + ",lanes," + call("arena", {{"slack", unless(overlap.slack, 2)}});
}

}  // namespace fem::passes

// The pass table, generated from passes.def.
#include <array>

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

std::string default_pipeline(const ir::Settings& settings) {
  std::string text = "communication";
  const bool sharded = settings.parallel.zero > 0 || settings.parallel.reduce != "step";
  const bool recomputed = settings.memory.recompute != "none";
  if (!sharded && !recomputed) return text;
  text += ",units";
  if (recomputed) {
    text += ",recompute{mode=" + settings.memory.recompute;
    if (settings.memory.recompute_every != 1) text += ",every=" + std::to_string(settings.memory.recompute_every);
    if (settings.memory.recompute_first != 0) text += ",first=" + std::to_string(settings.memory.recompute_first);
    if (settings.memory.recompute_last >= 0) text += ",last=" + std::to_string(settings.memory.recompute_last);
    text += "}";
  }
  return text;
}

}  // namespace fem::passes

#include "ir/units.hpp"

#include <array>

namespace fem::ir {
namespace {

template <class Info>
struct Row {
  UnitKind kind;
  Info info;
};

using Size = std::int64_t (*)(const UnitDims&);

struct FlopsInfo {
  Size forward, backward_input, backward_weight;
};

// A size of the table as a function; rows may be constants, which leave `d` alone.
#define FEM_SIZE(expression) \
  [](const UnitDims& d) -> std::int64_t { \
    (void)d; \
    return expression; \
  }

constexpr auto kParams = std::to_array<Row<ParamInfo>>({
#define UNIT(...)
#define PARAM(kind, name, hf_name, rows, cols, split, decay, doc) \
  {UnitKind::kind, {#name, hf_name, FEM_SIZE(rows), FEM_SIZE(cols), Split::split, decay, doc}},
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#include "ir/units.def"
});

constexpr auto kSaved = std::to_array<Row<BufferInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(kind, name, elements, format, doc) \
  {UnitKind::kind, {#name, FEM_SIZE(elements), Format::format, doc}},
#define WORK(...)
#define FLOPS(...)
#include "ir/units.def"
});

constexpr auto kWork = std::to_array<Row<BufferInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(...)
#define WORK(kind, name, elements, format, doc) \
  {UnitKind::kind, {#name, FEM_SIZE(elements), Format::format, doc}},
#define FLOPS(...)
#include "ir/units.def"
});

constexpr auto kFlops = std::to_array<Row<FlopsInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(kind, forward, backward_input, backward_weight) \
  {UnitKind::kind, {FEM_SIZE(forward), FEM_SIZE(backward_input), FEM_SIZE(backward_weight)}},
#include "ir/units.def"
});

#undef FEM_SIZE

template <UnitKind kind, const auto& table>
constexpr std::size_t kCount = [] {
  std::size_t n = 0;
  for (const auto& row : table) n += row.kind == kind;
  return n;
}();

// The rows of one kind, in the table's order; a kind may have none.
template <UnitKind kind, const auto& table>
constexpr auto kRows = [] {
  std::array<std::remove_cvref_t<decltype(table[0].info)>, kCount<kind, table>> rows{};
  std::size_t n = 0;
  for (const auto& row : table) {
    if (row.kind == kind) rows[n++] = row.info;
  }
  return rows;
}();

template <UnitKind kind>
constexpr FlopsInfo flops() {
  static_assert(kCount<kind, kFlops> <= 1, "a kind of unit has one FLOPS row");
  constexpr Size kNothing = [](const UnitDims&) -> std::int64_t { return 0; };
  if constexpr (kCount<kind, kFlops> == 0) {
    return {kNothing, kNothing, kNothing};
  } else {
    return kRows<kind, kFlops>[0];
  }
}

template <UnitKind kind>
constexpr UnitInfo unit_row(std::string_view name, std::string_view doc) {
  constexpr FlopsInfo f = flops<kind>();
  return {name,      doc,     kRows<kind, kParams>, kRows<kind, kSaved>, kRows<kind, kWork>,
          f.forward, f.backward_input, f.backward_weight};
}

constexpr std::array<UnitInfo, kUnitKinds> kUnits{{
#define UNIT(kind, doc) unit_row<UnitKind::kind>(#kind, doc),
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#include "ir/units.def"
}};

}  // namespace

UnitDims unit_dims(const Settings& settings) {
  const auto& model = settings.model;
  UnitDims d{};
  d.micro = settings.batch.micro;
  d.seq_len = settings.batch.seq_len;
  d.tokens = d.micro * d.seq_len;
  d.hidden = model.hidden;
  d.intermediate = model.intermediate;
  d.heads = model.heads;
  d.kv_heads = model.kv_heads != 0 ? model.kv_heads : model.heads;
  d.head_dim = model.head_dim != 0 || model.heads == 0 ? model.head_dim : model.hidden / model.heads;
  d.vocab = model.vocab;
  d.layers = model.layers;
  return d;
}

const UnitInfo& info(UnitKind kind) { return kUnits[static_cast<std::size_t>(kind)]; }

std::string_view name(UnitKind kind) { return info(kind).name; }

std::int64_t unit_count(const Settings& settings) { return settings.model.layers + 2; }

UnitKind unit_kind(const Settings& settings, std::int64_t unit) {
  if (unit == 0) return UnitKind::embedding;
  return unit == settings.model.layers + 1 ? UnitKind::head : UnitKind::block;
}

std::int64_t unit_layer(std::int64_t unit) { return unit - 1; }

std::string param_hf_name(const ParamInfo& param, std::int64_t layer) {
  std::string out(param.hf_name);
  if (const std::size_t at = out.find("{}"); at != std::string::npos) out.replace(at, 2, std::to_string(layer));
  return out;
}

std::int64_t parameter_count(const Settings& settings) {
  const UnitDims d = unit_dims(settings);
  const auto elements = [&d](UnitKind kind) {
    std::int64_t sum = 0;
    for (const ParamInfo& p : info(kind).params) sum += p.elements(d);
    return sum;
  };
  const std::int64_t tied_copy = settings.model.tied ? d.vocab * d.hidden : 0;
  return elements(UnitKind::embedding) + d.layers * elements(UnitKind::block) + elements(UnitKind::head) - tied_copy;
}

}  // namespace fem::ir

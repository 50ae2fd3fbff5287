#include "ir/units.hpp"

#include <algorithm>
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
  Size forward, backward_input, backward_weight, again, cheap;
};

// Steps of the phases that the table sizes, in bytes. t stands for the tokens of a microbatch.
std::int64_t wide(std::int64_t elements) { return aligned(4 * elements); }

// The product of [t, inner] with [inner, cols] through fp32: both operands and the result widened.
std::int64_t product(const UnitDims& d, const UnitFormats& f, std::int64_t inner, std::int64_t cols) {
  return f.widened(d.tokens * inner) + f.widened(inner * cols) + f.widened(d.tokens * cols);
}

// The gradient of a weight [rows, cols], a sum over t: operands widened, or the product in bf16 before it is added.
std::int64_t weight_product(const UnitDims& d, const UnitFormats& f, std::int64_t rows, std::int64_t cols) {
  if (f.compute == 4) return 0;
  return std::max(f.widened(d.tokens * rows) + f.widened(d.tokens * cols), f.bytes(rows * cols));
}

// Products of gradients [t, up to inner] with weights [inner, hidden], summed in fp32; then the norm's gradient, whose
// input that sum is: products of each element, and their mean for each token.
std::int64_t norm_backward(const UnitDims& d, const UnitFormats& f, std::int64_t inner) {
  const std::int64_t hidden = d.tokens * d.hidden;
  const std::int64_t terms =
      f.compute == 4 ? 0 : std::max(f.bytes(hidden), f.widened(d.tokens * inner) + f.widened(inner * d.hidden));
  return wide(hidden) + std::max(terms, wide(hidden) + wide(d.tokens));
}

// Keys and values, once for each query head.
std::int64_t repeated_heads(const UnitDims& d, const UnitFormats& f) {
  return d.heads == d.kv_heads ? 0 : 2 * f.bytes(d.tokens * d.heads * d.head_dim);
}

// Through fp32: query, repeated keys and values, output and its gradient; the sum of a group's key gradients.
std::int64_t attention_backward(const UnitDims& d, const UnitFormats& f) {
  const std::int64_t group_sum = d.heads == d.kv_heads ? 0 : f.widened(d.tokens * d.kv_heads * d.head_dim);
  if (f.compute == 4) return repeated_heads(d, f);
  return std::max(repeated_heads(d, f), 5 * f.widened(d.tokens * d.heads * d.head_dim) + group_sum);
}

// Tiles and constants of a product inside oneDNN.
constexpr std::int64_t kLibraryScratch = 1 << 16;

// Blocks of queries and keys as LibTorch's flash attention for CPUs divides them.
std::int64_t flash_queries(const UnitDims& d) {
  return std::min<std::int64_t>(d.seq_len, d.seq_len >= 768 ? 256 : d.seq_len >= 192 ? 64 : 32);
}
std::int64_t flash_keys(const UnitDims& d) { return std::min<std::int64_t>(d.seq_len, 512); }

// Exact in fp32. Output and log-sum-exp; scores, maxima, sums and the running output of a block of queries.
std::int64_t flash_forward(const UnitDims& d, const UnitFormats& f) {
  const std::int64_t queries = flash_queries(d), scores = queries * flash_keys(d);
  const std::int64_t outputs = d.tokens * d.heads * d.head_dim * f.compute + 4 * d.tokens * d.heads;
  const std::int64_t block = 4 * (scores + 2 * queries + queries * d.head_dim);
  if (f.compute == 4) return outputs + block;
  // In bf16 scores once more, and where it pays keys and values packed for the matrix unit, padded to even sizes.
  const std::int64_t head = d.head_dim + d.head_dim % 2;
  const std::int64_t packed = 2 * d.micro * d.heads * (d.seq_len + 1) * head + (flash_keys(d) + 1) * head;
  return outputs + block + f.compute * (scores + packed);
}

// Exact in fp32. Three gradients, in fp32 at the largest; scores and their gradients, in bf16 too, and what oneDNN
// takes for their products; sums of a block of queries.
std::int64_t flash_backward(const UnitDims& d, const UnitFormats& f) {
  const std::int64_t queries = flash_queries(d), scores = queries * flash_keys(d);
  const std::int64_t outputs = 3 * 4 * d.tokens * d.heads * d.head_dim;
  return outputs + 4 * (2 * scores + queries) + (f.compute == 4 ? 0 : 4 * f.compute * scores + kLibraryScratch);
}

// oneDNN, which multiplies in bf16 where a CPU can, copies operands to a layout of its own, in tiles of 64.
std::int64_t library_product(const UnitDims& d, const UnitFormats& f, std::int64_t rows, std::int64_t cols) {
  if (f.compute == 4) return 0;
  const auto tiled = [](std::int64_t n) { return (n + 63) / 64 * 64; };
  const std::int64_t t = tiled(d.tokens), r = tiled(rows), c = tiled(cols);
  return f.compute * (t * r + t * c + r * c) + kLibraryScratch;
}

// A size of the table as a function; rows may be constants, which leave `d` alone.
#define FEM_SIZE(expression) \
  [](const UnitDims& d) -> std::int64_t { \
    (void)d; \
    return expression; \
  }

#define FEM_BYTES(expression) \
  [](const UnitDims& d, const UnitFormats& f) -> std::int64_t { \
    (void)d, (void)f; \
    return expression; \
  }

constexpr auto kParams = std::to_array<Row<ParamInfo>>({
#define UNIT(...)
#define PARAM(kind, name, hf_name, rows, cols, split, decay, doc) \
  {UnitKind::kind, {#name, hf_name, FEM_SIZE(rows), FEM_SIZE(cols), Split::split, decay, doc}},
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#define WORKSPACE(...)
#define HIDDEN(...)
#include "ir/units.def"
});

constexpr auto kSaved = std::to_array<Row<SavedInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(kind, name, elements, format, life, cheap, doc) \
  {UnitKind::kind, {{#name, FEM_SIZE(elements), Format::format, doc}, Life::life, cheap}},
#define WORK(...)
#define FLOPS(...)
#define WORKSPACE(...)
#define HIDDEN(...)
#include "ir/units.def"
});

constexpr WorkPlace own{Place::own, {}}, grad_output{Place::grad_output, {}};
constexpr WorkPlace in(std::string_view slot) { return {Place::saved, slot}; }

constexpr auto kWork = std::to_array<Row<WorkInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(...)
#define WORK(kind, name, elements, format, place, doc) \
  {UnitKind::kind, {{#name, FEM_SIZE(elements), Format::format, doc}, place}},
#define FLOPS(...)
#define WORKSPACE(...)
#define HIDDEN(...)
#include "ir/units.def"
});

constexpr auto kFlops = std::to_array<Row<FlopsInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(kind, forward, backward_input, backward_weight, again, cheap)                    \
  {UnitKind::kind,                                                                            \
   {FEM_SIZE(forward), FEM_SIZE(backward_input), FEM_SIZE(backward_weight), FEM_SIZE(again), FEM_SIZE(cheap)}},
#define WORKSPACE(...)
#define HIDDEN(...)
#include "ir/units.def"
});

constexpr auto kWorkspace = std::to_array<Row<PhaseInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#define WORKSPACE(kind, phase, bytes) {UnitKind::kind, {Phase::phase, FEM_BYTES(bytes)}},
#define HIDDEN(...)
#include "ir/units.def"
});

constexpr auto kHidden = std::to_array<Row<PhaseInfo>>({
#define UNIT(...)
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#define WORKSPACE(...)
#define HIDDEN(kind, phase, bytes) {UnitKind::kind, {Phase::phase, FEM_BYTES(bytes)}},
#include "ir/units.def"
});

#undef FEM_SIZE
#undef FEM_BYTES

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
    return {kNothing, kNothing, kNothing, kNothing, kNothing};
  } else {
    return kRows<kind, kFlops>[0];
  }
}

template <UnitKind kind>
constexpr UnitInfo unit_row(std::string_view name, std::string_view doc) {
  constexpr FlopsInfo f = flops<kind>();
  return {name, doc, kRows<kind, kParams>, kRows<kind, kSaved>, kRows<kind, kWork>, kRows<kind, kWorkspace>,
          kRows<kind, kHidden>, f.forward, f.backward_input, f.backward_weight, f.again, f.cheap};
}

constexpr std::array<UnitInfo, kUnitKinds> kUnits{{
#define UNIT(kind, doc) unit_row<UnitKind::kind>(#kind, doc),
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#define WORKSPACE(...)
#define HIDDEN(...)
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
  d.dropped = model.dropout > 0 ? d.tokens * d.hidden : 0;
  return d;
}

std::int64_t UnitFormats::of(Format format) const {
  switch (format) {
    case Format::Compute: return compute;
    case Format::Float32: return 4;
    case Format::Int64: return 8;
  }
  return 0;
}

UnitFormats unit_formats(const Settings& settings) { return {settings.precision.compute == "fp32" ? 4 : 2}; }

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

std::int64_t flat_elements(UnitKind kind, const UnitDims& dims, int pieces) {
  const auto align = [](std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; };
  std::int64_t n = 0;
  for (const ParamInfo& param : info(kind).params) n += align(param.elements(dims), kParameterAlignment);
  return align(n, pieces * kParameterAlignment);
}

bool reduced_once(const Settings& settings, UnitKind kind) {
  return settings.parallel.reduce != "microbatch" || (settings.model.tied && kind != UnitKind::block);
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

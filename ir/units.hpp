// The unit table as data: parameters, saved tensors, weight work and arithmetic of each kind of unit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ir/settings.hpp"

namespace fem::ir {

// Sizes of one microbatch and of the model as one rank sees them.
struct UnitDims {
  std::int64_t micro, seq_len, tokens;  // tokens = micro * seq_len
  std::int64_t hidden, intermediate, heads, kv_heads, head_dim, vocab, layers;
};
UnitDims unit_dims(const Settings& settings);  // resolves kv_heads 0 and head_dim 0

enum class UnitKind : std::uint8_t {
#define UNIT(kind, doc) kind,
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#include "ir/units.def"
};
inline constexpr int kUnitKinds = 3;

enum class Format : std::uint8_t { Compute, Float32, Int64 };
enum class Split : std::uint8_t { none, rows, cols };

struct ParamInfo {
  std::string_view name, hf_name;
  std::int64_t (*rows)(const UnitDims&);
  std::int64_t (*cols)(const UnitDims&);  // 0: a vector
  Split split;
  bool decay;
  std::string_view doc;
  std::int64_t elements(const UnitDims& d) const { return cols(d) ? rows(d) * cols(d) : rows(d); }
};

struct BufferInfo {
  std::string_view name;
  std::int64_t (*elements)(const UnitDims&);
  Format format;
  std::string_view doc;
};

struct UnitInfo {
  std::string_view name, doc;
  std::span<const ParamInfo> params;
  std::span<const BufferInfo> saved, work;
  std::int64_t (*flops_forward)(const UnitDims&);
  std::int64_t (*flops_backward_input)(const UnitDims&);
  std::int64_t (*flops_backward_weight)(const UnitDims&);
};
const UnitInfo& info(UnitKind kind);
std::string_view name(UnitKind kind);

// The model as a list of units: embedding, block 0 .. layers-1, head.
std::int64_t unit_count(const Settings& settings);             // layers + 2
UnitKind unit_kind(const Settings& settings, std::int64_t unit);
std::int64_t unit_layer(std::int64_t unit);                    // index of the block, unit - 1
std::string param_hf_name(const ParamInfo& param, std::int64_t layer);  // "{}" filled in
std::int64_t parameter_count(const Settings& settings);        // of the whole model; a tied embedding counts once

}  // namespace fem::ir

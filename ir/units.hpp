// The unit table as data: parameters, saved tensors, weight work, memory and arithmetic of each kind of unit.
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
  std::int64_t dropped;  // elements of an activation with its dropout mask applied; 0 without dropout
};
UnitDims unit_dims(const Settings& settings);  // resolves kv_heads 0 and head_dim 0

enum class UnitKind : std::uint8_t {
#define UNIT(kind, doc) kind,
#define PARAM(...)
#define SAVED(...)
#define WORK(...)
#define FLOPS(...)
#define WORKSPACE(...)
#define HIDDEN(...)
#include "ir/units.def"
};
inline constexpr int kUnitKinds = 3;

// What a unit saves lies in two blocks: 0, what BackwardInput is the last to use; 1, what cheap operations restore from
// block 0 and what lives on as weight work (block: attention and the SwiGLU products).
inline constexpr int kSavedBlocks = 2;

enum class Format : std::uint8_t { Compute, Float32, Int64 };

// Every block, and every tensor inside a block or a workspace, begins at a multiple of this many bytes.
inline constexpr std::int64_t kBufferAlignment = 64;
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// Bytes of an element. The functions give bytes of a tensor in a workspace, up to where the next may begin.
struct UnitFormats {
  std::int64_t compute;  // 4 or 2
  std::int64_t of(Format format) const;
  std::int64_t bytes(std::int64_t elements) const { return aligned(compute * elements); }       // in the compute format
  std::int64_t widened(std::int64_t elements) const {  // an fp32 copy, which fp32 itself does not need
    return compute == 4 ? 0 : aligned(4 * elements);
  }
};
UnitFormats unit_formats(const Settings& settings);

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

enum class Life : std::uint8_t { alias_input, until_b, until_w };
struct SavedInfo : BufferInfo {
  Life life;
  bool cheap;
};

enum class Place : std::uint8_t { own, saved, grad_output };
struct WorkPlace {
  Place place;
  std::string_view slot;  // of Place::saved
};
struct WorkInfo : BufferInfo {
  WorkPlace at;
};

// The parts of a training step that a unit runs at once; the forward's figures hold for recomputing too.
enum class Phase : std::uint8_t { forward, backward_input, backward_weight };
struct PhaseInfo {
  Phase phase;
  std::int64_t (*bytes)(const UnitDims&, const UnitFormats&);
};

struct UnitInfo {
  std::string_view name, doc;
  std::span<const ParamInfo> params;
  std::span<const SavedInfo> saved;
  std::span<const WorkInfo> work;
  std::span<const PhaseInfo> workspace, hidden;
  std::int64_t (*flops_forward)(const UnitDims&);
  std::int64_t (*flops_backward_input)(const UnitDims&);
  std::int64_t (*flops_backward_weight)(const UnitDims&);
  std::int64_t (*flops_again)(const UnitDims&);  // of a Recompute of everything that the forward kept
  std::int64_t (*flops_cheap)(const UnitDims&);  // of a Recompute of the cheap slots alone
};
const UnitInfo& info(UnitKind kind);
std::string_view name(UnitKind kind);

// The contiguous blocks of one unit and microbatch. A tensor lies inside its block in the order of the table.
enum class UnitBlock : std::uint8_t {
  output,      // the activation; the head has none
  saved_b,     // slots until_b
  saved_w,     // slots until_w
  work,        // own WORK rows
  grad_input,  // the gradient of the input; the embedding has none
};
std::int64_t block_bytes(UnitKind kind, UnitBlock block, const UnitDims& dims, const UnitFormats& formats);

// Where a tensor of the table lies.
struct BufferPlace {
  enum Where : std::uint8_t { input, grad_output, saved_b, saved_w, work } where;
  std::int64_t offset, bytes;  // from the beginning of the block; without the padding behind it
};
BufferPlace saved_place(UnitKind kind, std::size_t slot, const UnitDims& dims, const UnitFormats& formats);
BufferPlace work_place(UnitKind kind, std::size_t row, const UnitDims& dims, const UnitFormats& formats);

// Scratch of a phase, and what LibTorch allocates beside it. A forward that keeps nothing has its saved blocks behind
// its workspace: saved_b first where both are absent.
std::int64_t workspace_bytes(UnitKind kind, Phase phase, const UnitDims& dims, const UnitFormats& formats);
std::int64_t hidden_bytes(UnitKind kind, Phase phase, const UnitDims& dims, const UnitFormats& formats);

// Whether selective recompute drops the unit's saved_w block (and then fills it again from saved_b and the input).
bool saved_w_is_cheap(UnitKind kind);

// Rows of logits that cross-entropy widens at once: about 2^17 elements, which stay in the cache.
std::int64_t cross_entropy_rows(const UnitDims& dims);

// The model as a list of units: embedding, block 0 .. layers-1, head.
std::int64_t unit_count(const Settings& settings);             // layers + 2
UnitKind unit_kind(const Settings& settings, std::int64_t unit);
std::int64_t unit_layer(std::int64_t unit);                    // index of the block, unit - 1
std::string param_hf_name(const ParamInfo& param, std::int64_t layer);  // "{}" filled in
// Offsets inside a flat buffer of a unit's parameters are multiples of this many elements: 64 bytes in either format,
// so that vector loops start a parameter at the same alignment wherever it lies.
inline constexpr std::int64_t kParameterAlignment = 32;
// Elements of a unit's whole flat buffer: the parameters in the order of units.def, gaps included; a multiple of
// `pieces` times kParameterAlignment, so that so many replicas can divide it.
std::int64_t flat_elements(UnitKind kind, const UnitDims& dims, int pieces = 1);

// Whether gradients accumulate over the step. Those of a tied copy do whatever parallel.reduce says.
bool reduced_once(const Settings& settings, UnitKind kind);
std::int64_t parameter_count(const Settings& settings);        // of the whole model; a tied embedding counts once

}  // namespace fem::ir

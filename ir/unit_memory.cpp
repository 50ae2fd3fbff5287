// Where the tensors of the unit table lie, and how many bytes the blocks, workspaces and hidden allocations take.
#include <algorithm>

#include "ir/units.hpp"

namespace fem::ir {
namespace {

BufferPlace::Where where_of(Life life) {
  switch (life) {
    case Life::alias_input: return BufferPlace::input;
    case Life::until_b: return BufferPlace::saved_b;
    case Life::until_w: return BufferPlace::saved_w;
  }
  return BufferPlace::input;
}

std::int64_t size_of(const BufferInfo& buffer, const UnitDims& dims, const UnitFormats& formats) {
  return buffer.elements(dims) * formats.of(buffer.format);
}

std::int64_t phase_bytes(std::span<const PhaseInfo> rows, Phase phase, const UnitDims& dims,
                         const UnitFormats& formats) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const PhaseInfo& r) { return r.phase == phase; });
  return row == rows.end() ? 0 : row->bytes(dims, formats);
}

}  // namespace

BufferPlace saved_place(UnitKind kind, std::size_t slot, const UnitDims& dims, const UnitFormats& formats) {
  const auto rows = info(kind).saved;
  BufferPlace place{where_of(rows[slot].life), 0, size_of(rows[slot], dims, formats)};
  if (place.where == BufferPlace::input) return place;
  for (const SavedInfo& before : rows.first(slot))
    if (before.life == rows[slot].life) place.offset += aligned(size_of(before, dims, formats));
  return place;
}

BufferPlace work_place(UnitKind kind, std::size_t row, const UnitDims& dims, const UnitFormats& formats) {
  const auto rows = info(kind).work;
  const std::int64_t bytes = size_of(rows[row], dims, formats);
  switch (rows[row].at.place) {
    case Place::grad_output: return {BufferPlace::grad_output, 0, bytes};
    case Place::saved: {
      const auto saved = info(kind).saved;
      const auto slot = std::find_if(saved.begin(), saved.end(),
                                     [&](const SavedInfo& s) { return s.name == rows[row].at.slot; });
      return saved_place(kind, static_cast<std::size_t>(slot - saved.begin()), dims, formats);
    }
    case Place::own: break;
  }
  BufferPlace place{BufferPlace::work, 0, bytes};
  for (const WorkInfo& before : rows.first(row))
    if (before.at.place == Place::own) place.offset += aligned(size_of(before, dims, formats));
  return place;
}

std::int64_t block_bytes(UnitKind kind, UnitBlock block, const UnitDims& dims, const UnitFormats& formats) {
  const UnitInfo& unit = info(kind);
  std::int64_t bytes = 0;
  const auto saved = [&](Life life) {
    for (const SavedInfo& slot : unit.saved)
      if (slot.life == life) bytes += aligned(size_of(slot, dims, formats));
    return bytes;
  };
  const std::int64_t activation = formats.bytes(dims.tokens * dims.hidden);
  switch (block) {
    case UnitBlock::output: return kind == UnitKind::head ? 0 : activation;
    case UnitBlock::grad_input: return kind == UnitKind::embedding ? 0 : activation;
    case UnitBlock::saved_b: return saved(Life::until_b);
    case UnitBlock::saved_w: return saved(Life::until_w);
    case UnitBlock::work:
      for (const WorkInfo& row : unit.work)
        if (row.at.place == Place::own) bytes += aligned(size_of(row, dims, formats));
      return bytes;
  }
  return bytes;
}

std::int64_t workspace_bytes(UnitKind kind, Phase phase, const UnitDims& dims, const UnitFormats& formats) {
  return phase_bytes(info(kind).workspace, phase, dims, formats);
}

std::int64_t hidden_bytes(UnitKind kind, Phase phase, const UnitDims& dims, const UnitFormats& formats) {
  return phase_bytes(info(kind).hidden, phase, dims, formats);
}

bool saved_w_is_cheap(UnitKind kind) {
  const auto saved = info(kind).saved;
  return std::any_of(saved.begin(), saved.end(), [](const SavedInfo& s) { return s.cheap; });
}

std::int64_t cross_entropy_rows(const UnitDims& dims) {
  constexpr std::int64_t kElements = 1 << 17;
  return std::clamp<std::int64_t>(kElements / std::max<std::int64_t>(dims.vocab, 1), 1, dims.tokens);
}

}  // namespace fem::ir

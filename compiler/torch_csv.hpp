// The schedule files of torch.distributed.pipelining: CSV without a header, one row for each pipeline rank, one cell
// for each operation: stage, type, microbatch, as 2F0, 3SEND_F1, 1UNSHARD or (0F3;3B1)OVERLAP_F_B.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/scalar_text.hpp"
#include "ir/diagnostics.hpp"

namespace fem::compiler {

// F forward, B whole backward, I input gradient, W weight gradient, and what surrounds them.
enum class CellKind : std::uint8_t { F, B, I, W, SendF, RecvF, SendB, RecvB, Unshard, Reshard, ReduceGrad };
inline constexpr int kCellKinds = 11;
std::string_view name(CellKind kind);  // "F", "SEND_F", ...

inline bool is_pass(CellKind kind) { return kind <= CellKind::W; }
inline bool is_message(CellKind kind) { return kind >= CellKind::SendF && kind <= CellKind::RecvB; }
inline bool is_send(CellKind kind) { return kind == CellKind::SendF || kind == CellKind::SendB; }

struct TorchCell {
  CellKind kind = CellKind::F;
  bool joined = false;  // overlaps with the next operation of the row
  std::int16_t stage = 0;
  std::int32_t microbatch = -1;  // -1: the kind has none
  std::int32_t cell = 0;         // number in its row, from 1, bubbles counting; the two of a pair share it
  std::int32_t column = 0;       // where the operation stands in its line, from 1
  std::int32_t length = 0;       // characters of it
};

struct TorchRow {
  std::vector<TorchCell> cells;  // without the bubbles
  int line = 0;
};

struct TorchFile {
  SourcePtr source;
  std::vector<TorchRow> rows;  // by pipeline rank
  bool communication = false;  // there are SEND and RECV cells
  bool older_dialect = false;  // was written with B for the input gradient and BW for the whole backward

  // As it stands in the file.
  std::string_view text(const TorchRow& row, const TorchCell& cell) const;
};

// Reads the whole file strictly: nothing may follow an operation in its cell, and an empty cell, a bubble, stands only
// in files without communication. Blanks around operations are skipped, a cell may stand in double quotes. The older
// dialect is told by a BW, or by a B and a W of the same stage and microbatch where there is no I; its kinds are then
// those of the current one. Empty after diagnosed errors, which name row, cell and its text.
std::optional<TorchFile> read_torch_csv(SourcePtr source, ir::DiagnosticSink& sink);

// Reports faults of a file, the first kMost of them.
class TorchFaults {
 public:
  static constexpr int kMost = 20;

  TorchFaults(const ir::SourceText& source, ir::DiagnosticSink& sink) : source_(source), sink_(sink) {}

  // "row 1 (rank 0), cell 3 '0F1': MESSAGE", at the cell. `row` counts from 0.
  void cell(std::size_t row, int line, const TorchCell& cell, std::string message);
  void row(std::size_t row, int line, std::string message);
  void file(std::string message);
  // Says how many were left out.
  void finish() const;

  int count() const { return count_; }
  bool full() const { return count_ >= kMost; }

 private:
  bool take() { return count_++ < kMost; }

  const ir::SourceText& source_;
  ir::DiagnosticSink& sink_;
  int count_ = 0;
};

}  // namespace fem::compiler

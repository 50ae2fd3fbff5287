#include "compiler/torch_csv.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fem::compiler {
namespace {

constexpr std::array<std::string_view, kCellKinds> kNames = {
    "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};
constexpr std::string_view kOlderWhole = "BW", kOverlap = "OVERLAP_F_B";
constexpr std::int64_t kMostStage = 32000, kMostMicrobatch = 1'000'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

// A part of a line that knows its first column.
struct Piece {
  std::string_view text;
  int column = 1;

  Piece part(std::size_t begin, std::size_t count = std::string_view::npos) const {
    return {text.substr(begin, count), column + static_cast<int>(begin)};
  }
  Piece stripped() const {
    std::size_t begin = 0, end = text.size();
    while (begin < end && is_blank(text[begin])) ++begin;
    while (end > begin && is_blank(text[end - 1])) --end;
    return part(begin, end - begin);
  }
  std::size_t run(std::size_t at, bool (*belongs)(char)) const {
    while (at < text.size() && belongs(text[at])) ++at;
    return at;
  }
};

bool number(std::string_view digits, std::int64_t most, std::int64_t& value) {
  const auto [stop, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return fault == std::errc() && stop == digits.data() + digits.size() && value <= most;
}

std::string unknown_type(std::string_view word) {
  std::vector<std::string_view> types(kNames.begin(), kNames.end());
  const std::string meant = ir::did_you_mean(word, types);
  return fmt::format("'{}' is no type of operation{}{}", word, meant,
                     meant.empty() ? fmt::format("; types: {}", fmt::join(types, ", ")) : std::string());
}

class Reader {
 public:
  Reader(SourcePtr source, ir::DiagnosticSink& sink) : faults_(*source, sink) { file_.source = std::move(source); }

  std::optional<TorchFile> read() {
    if (file_.source->text().empty()) faults_.file("the file is empty: there is one row for each pipeline rank");
    const int lines = file_.source->text().empty() ? 0 : file_.source->lines();
    for (int line = 1; line <= lines && !faults_.full(); ++line) read_row(line);
    if (faults_.count() == 0) settle_dialect();
    if (faults_.count() == 0) check_pairs();
    if (file_.communication && has_bubble_) {
      faults_.cell(bubble_row_, static_cast<int>(bubble_row_) + 1, bubble_,
                   "is empty, a bubble: it stands only in files without SEND and RECV, remove it");
    }
    faults_.finish();
    return faults_.count() == 0 ? std::optional(std::move(file_)) : std::nullopt;
  }

 private:
  void read_row(int line) {
    TorchRow row;
    row.line = line;
    const std::string_view text = file_.source->line(line);
    int number = 1;
    for (std::size_t begin = 0; begin <= text.size() && !faults_.full(); ++number) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      read_cell(row, number, Piece{text, 1}.part(begin, end - begin).stripped());
      begin = end + 1;
    }
    const bool silent = row.cells.empty() && faults_.count() == 0;
    if (silent) faults_.row(static_cast<std::size_t>(line) - 1, line, "has no operation: every rank runs a stage");
    file_.rows.push_back(std::move(row));
  }

  void read_cell(TorchRow& row, int number, Piece piece) {
    if (piece.text.size() >= 2 && piece.text.front() == '"' && piece.text.back() == '"') {
      piece = piece.part(1, piece.text.size() - 2).stripped();
    }
    TorchCell cell;
    cell.cell = number;
    cell.column = piece.column;
    cell.length = static_cast<std::int32_t>(piece.text.size());
    if (piece.text.empty()) {
      if (!std::exchange(has_bubble_, true)) bubble_ = cell, bubble_row_ = static_cast<std::size_t>(row.line) - 1;
      return;
    }
    const std::string fault =
        piece.text.front() == '(' ? read_pair(row, cell, piece) : read_operation(row, cell, piece);
    if (!fault.empty()) faults_.cell(static_cast<std::size_t>(row.line) - 1, row.line, cell, fault);
  }

  // (a;b)OVERLAP_F_B
  std::string read_pair(TorchRow& row, const TorchCell& whole, const Piece& piece) {
    const std::size_t close = piece.text.find(')');
    if (close == std::string_view::npos) return "has no ')'; a pair reads (3F2;0B0)OVERLAP_F_B";
    if (piece.text.substr(close + 1) != kOverlap) {
      return fmt::format("ends in '{}' instead of OVERLAP_F_B", piece.text.substr(close + 1));
    }
    const Piece inside = piece.part(1, close - 1);
    const std::size_t semicolon = inside.text.find(';');
    if (semicolon == std::string_view::npos || inside.text.find(';', semicolon + 1) != std::string_view::npos) {
      return "does not hold two operations; a pair reads (3F2;0B0)OVERLAP_F_B";
    }
    TorchCell half = whole;
    std::string fault = read_operation(row, half, inside.part(0, semicolon).stripped());
    if (!fault.empty()) return fault;
    row.cells.back().joined = true;
    fault = read_operation(row, half, inside.part(semicolon + 1).stripped());
    return fault;
  }

  std::string read_operation(TorchRow& row, TorchCell cell, const Piece& piece) {
    const std::size_t type = piece.run(0, is_digit), micro = piece.run(type, is_word), end = piece.run(micro, is_digit);
    const std::string_view stage = piece.text.substr(0, type), word = piece.text.substr(type, micro - type);
    const std::string_view microbatch = piece.text.substr(micro, end - micro);
    if (stage.empty()) return "begins with no stage number; an operation reads STAGE TYPE MICROBATCH, as 2F0";
    if (word.empty()) return "has no type behind the stage; an operation reads STAGE TYPE MICROBATCH, as 2F0";
    const auto found = std::ranges::find(kNames, word);
    const bool older = word == kOlderWhole;
    if (found == kNames.end() && !older) return unknown_type(word);
    cell.kind = older ? CellKind::B : static_cast<CellKind>(found - kNames.begin());
    const bool has_micro = is_pass(cell.kind) || is_message(cell.kind);
    if (has_micro && microbatch.empty()) return fmt::format("names no microbatch: {} needs one", word);
    if (!has_micro && !microbatch.empty()) return fmt::format("names a microbatch: {} has none", word);
    if (end < piece.text.size()) {
      return fmt::format("has '{}' behind the operation {}", piece.text.substr(end), piece.text.substr(0, end));
    }
    std::int64_t value = 0;
    if (!number(stage, kMostStage, value)) return fmt::format("stage {} is above {}", stage, kMostStage);
    cell.stage = static_cast<std::int16_t>(value);
    if (has_micro && !number(microbatch, kMostMicrobatch, value)) {
      return fmt::format("microbatch {} is above {}", microbatch, kMostMicrobatch);
    }
    if (has_micro) cell.microbatch = static_cast<std::int32_t>(value);
    cell.column = piece.column;
    cell.length = static_cast<std::int32_t>(piece.text.size());
    file_.communication |= is_message(cell.kind);
    has_whole_ |= older;
    row.cells.push_back(cell);
    return {};
  }

  // In files without I and BW, a B and a W of one stage and microbatch tell the older dialect.
  bool older_by_weights() const {
    std::array<std::vector<std::pair<int, int>>, 2> keys;  // of B and of W
    for (const TorchRow& row : file_.rows) {
      for (const TorchCell& cell : row.cells) {
        if (cell.kind == CellKind::I) return false;
        if (cell.kind == CellKind::B) keys[0].emplace_back(cell.stage, cell.microbatch);
        if (cell.kind == CellKind::W) keys[1].emplace_back(cell.stage, cell.microbatch);
      }
    }
    for (auto& list : keys) std::ranges::sort(list);
    return std::ranges::any_of(keys[1], [&](const auto& key) { return std::ranges::binary_search(keys[0], key); });
  }

  void settle_dialect() {
    file_.older_dialect = has_whole_ || older_by_weights();
    if (!file_.older_dialect) return;
    for (std::size_t r = 0; r < file_.rows.size(); ++r) {
      for (TorchCell& cell : file_.rows[r].cells) {
        if (cell.kind == CellKind::I) {
          faults_.cell(r, file_.rows[r].line, cell,
                       "is an input gradient of the current dialect, but the file has BW cells, which only the older "
                       "one has (B input gradient, BW whole backward)");
          return;
        }
        const bool whole = file_.text(file_.rows[r], cell).find(kOlderWhole) != std::string_view::npos;
        if (cell.kind == CellKind::B && !whole) cell.kind = CellKind::I;
      }
    }
  }

  void check_pairs() {
    for (std::size_t r = 0; r < file_.rows.size(); ++r) {
      const std::vector<TorchCell>& cells = file_.rows[r].cells;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        if (!cells[i].joined) continue;
        if (cells[i].kind == CellKind::F && cells[i + 1].kind == CellKind::B) continue;
        faults_.cell(r, file_.rows[r].line, cells[i],
                     "stands in a pair that is not a forward and then a whole backward, as (3F2;0B0)OVERLAP_F_B");
      }
    }
  }

  TorchFile file_;
  TorchFaults faults_;
  TorchCell bubble_;
  std::size_t bubble_row_ = 0;
  bool has_bubble_ = false, has_whole_ = false;
};

}  // namespace

std::string_view name(CellKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::string_view TorchFile::text(const TorchRow& row, const TorchCell& cell) const {
  return source->line(row.line).substr(static_cast<std::size_t>(cell.column) - 1,
                                       static_cast<std::size_t>(cell.length));
}

std::optional<TorchFile> read_torch_csv(SourcePtr source, ir::DiagnosticSink& sink) {
  return Reader(std::move(source), sink).read();
}

void TorchFaults::cell(std::size_t row, int line, const TorchCell& cell, std::string message) {
  if (!take()) return;
  constexpr std::size_t kLongestQuote = 40;
  const auto begin = static_cast<std::size_t>(cell.column) - 1;
  const std::string_view text = source_.line(line).substr(begin, static_cast<std::size_t>(cell.length));
  const std::string quoted =
      text.size() <= kLongestQuote ? std::string(text) : std::string(text.substr(0, kLongestQuote)) + "...";
  source_.error(sink_, line, cell.column,
                fmt::format("row {} (rank {}), cell {} '{}': {}", row + 1, row, cell.cell, quoted, message));
}

void TorchFaults::row(std::size_t row, int line, std::string message) {
  if (take()) source_.error(sink_, line, 0, fmt::format("row {} (rank {}): {}", row + 1, row, message));
}

void TorchFaults::file(std::string message) {
  if (take()) sink_.error({source_.file(), 0, 0}, std::move(message));
}

void TorchFaults::finish() const {
  if (count_ > kMost) sink_.note({source_.file(), 0, 0}, fmt::format("{} more faults", count_ - kMost));
}

}  // namespace fem::compiler

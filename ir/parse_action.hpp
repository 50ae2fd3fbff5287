// Reads one action or batch of plan text. Used by parse.cpp only.
#pragma once

#include <vector>

#include "ir/parse_line.hpp"
#include "ir/plan.hpp"

namespace fem::ir::parsing {

class ActionReader {
 public:
  explicit ActionReader(Reporter& report) : report_(report) {}

  // Appends the line's action, or the halves of its batch, to `rank`, and their places to `lines` (may be null).
  // On an error reports it, leaves both as they were and returns false.
  bool read(Cursor& cursor, RankProgram& rank, std::vector<ActionLine>* lines);

 private:
  bool read_names(Cursor& cursor);
  bool read_operands(Cursor& cursor, Action& action);
  bool read_number(Cursor& cursor, const Action& action, char letter, std::int64_t most, std::int64_t& value);
  bool read_peer(Cursor& cursor, Action& action);
  bool read_group(Cursor& cursor, Action& action);
  bool read_tail(Cursor& cursor, RankProgram& rank);
  bool read_offsets(Cursor& cursor, RankProgram& rank);
  bool read_waits(Cursor& cursor, std::size_t first_index, std::vector<Wait>& waits);
  bool expected(const Cursor& cursor, const Action& action, std::string_view operand);

  Reporter& report_;
  std::vector<Action> halves_;  // of the line being read; a member so that its memory is reused
  std::vector<int> columns_;
};

std::vector<std::string_view> action_names();

}  // namespace fem::ir::parsing

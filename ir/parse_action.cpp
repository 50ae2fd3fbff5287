#include "ir/parse_action.hpp"

#include <array>
#include <limits>

namespace fem::ir::parsing {
namespace {

constexpr std::int64_t kMost16 = std::numeric_limits<std::int16_t>::max();
constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostOffset = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostCount = std::numeric_limits<std::uint32_t>::max();

// The longest name of the table that `text` begins with: BackwardInput rather than Backward.
std::optional<ActionKind> leading_kind(std::string_view text) {
  std::optional<ActionKind> best;
  for (int i = 0; i < kActionKinds; ++i) {
    const auto kind = static_cast<ActionKind>(i);
    if (text.starts_with(name(kind)) && (!best || name(kind).size() > name(*best).size())) best = kind;
  }
  return best;
}

std::string_view meaning(char letter) {
  switch (letter) {
    case 's': return "stage";
    case 'm': return "microbatch";
    case 'u': return "unit";
    default: return "slot";
  }
}

std::optional<Lane> find_lane(std::string_view word) {
  for (int i = 0; i < kLanes; ++i) {
    if (name(static_cast<Lane>(i)) == word) return static_cast<Lane>(i);
  }
  return std::nullopt;
}

std::string unknown_lane(std::string_view word) {
  std::array<std::string_view, kLanes> names;
  for (int i = 0; i < kLanes; ++i) names[static_cast<std::size_t>(i)] = name(static_cast<Lane>(i));
  return "unknown lane " + quote(word) + did_you_mean(word, names);
}

std::string range(std::int64_t least, std::int64_t most) {
  return "between " + std::to_string(least) + " and " + std::to_string(most);
}

}  // namespace

std::vector<std::string_view> action_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kActionKinds; ++i) names.push_back(name(static_cast<ActionKind>(i)));
  return names;
}

bool ActionReader::read(Cursor& cursor, RankProgram& rank, std::vector<ActionLine>* lines) {
  if (!read_names(cursor)) return false;
  for (std::size_t i = 0; i < halves_.size(); ++i) {
    if (i > 0) {
      if (!cursor.accept_comma()) {
        return report_.error(cursor.column(),
                             "expected ', ' and the operands of " + std::string(name(halves_[i].kind)));
      }
      columns_[i] = cursor.column();
    }
    if (!read_operands(cursor, halves_[i])) return false;
  }
  const std::size_t waits = rank.waits.size(), offsets = rank.offsets.size();
  if (!read_tail(cursor, rank)) {
    rank.waits.resize(waits);
    rank.offsets.resize(offsets);
    return false;
  }
  rank.actions.insert(rank.actions.end(), halves_.begin(), halves_.end());
  if (lines) {
    for (const int column : columns_) lines->push_back({report_.line, column});
  }
  return true;
}

bool ActionReader::read_names(Cursor& cursor) {
  halves_.clear();
  columns_.clear();
  const std::string_view word = cursor.word();
  for (std::size_t at = 0; at < word.size();) {
    const std::optional<ActionKind> kind = leading_kind(word.substr(at));
    if (!kind) {
      const std::vector<std::string_view> names = action_names();
      std::string hint = did_you_mean(word, names);
      if (hint.empty() && at > 0) hint = did_you_mean(word.substr(at), names);
      const std::string_view unknown = hint.empty() || nearest(word, names).empty() ? word.substr(at) : word;
      return report_.error(cursor.column() + static_cast<int>(word.size() - unknown.size()),
                           "unknown action " + quote(unknown) + hint);
    }
    Action half;
    half.kind = *kind;
    half.lane = info(*kind).lane;
    half.flags = Action::kJoined;
    halves_.push_back(half);
    columns_.push_back(cursor.column());
    at += name(*kind).size();
  }
  if (halves_.empty()) return report_.error(cursor.column(), "expected the name of an action");
  halves_.back().flags = 0;
  cursor.skip(word.size());
  return true;
}

bool ActionReader::expected(const Cursor& cursor, const Action& action, std::string_view operand) {
  std::string message = std::string(name(action.kind)) + " needs " + std::string(operand);
  if (!cursor.word().empty()) message += ", found " + quote(cursor.word());
  return report_.error(cursor.column(), std::move(message));
}

bool ActionReader::read_operands(Cursor& cursor, Action& action) {
  const ActionInfo& row = info(action.kind);
  std::int64_t value = 0;
  if (row.has(operand::kS)) {
    if (!read_number(cursor, action, 's', kMost16, value)) return false;
    action.stage = static_cast<std::int16_t>(value);
  }
  if (row.has(operand::kM)) {
    if (!read_number(cursor, action, 'm', kMost32, value)) return false;
    action.microbatch = static_cast<std::int32_t>(value);
  }
  if (row.has(operand::kU) && cursor.peek() == 'u') {
    if (!read_number(cursor, action, 'u', kMost16, value)) return false;
    action.unit = static_cast<std::int16_t>(value);
  }
  if (row.has(operand::kSlot) && cursor.peek() == 'k') {
    if (!read_number(cursor, action, 'k', kMost16, value)) return false;
    action.slot = static_cast<std::int16_t>(value);
  }
  if (row.has(operand::kPeer) && !read_peer(cursor, action)) return false;
  return !row.has(operand::kG) || read_group(cursor, action);
}

bool ActionReader::read_number(Cursor& cursor, const Action& action, char letter, std::int64_t most,
                               std::int64_t& value) {
  const std::string_view word = cursor.word();
  if (word.empty() || word[0] != letter) {
    return expected(cursor, action, "a " + std::string(meaning(letter)) + " '" + letter + "N'");
  }
  const std::optional<std::int64_t> number = integer(word.substr(1), 0, most);
  if (!number) {
    return report_.error(cursor.column(), std::string(meaning(letter)) + " " + quote(word) + " of " +
                                              std::string(name(action.kind)) + " must be '" + letter +
                                              "' and a number " + range(0, most));
  }
  value = *number;
  cursor.skip(word.size());
  return true;
}

bool ActionReader::read_peer(Cursor& cursor, Action& action) {
  const std::string_view preposition = is_send(action.kind) ? "to" : "from";
  if (!cursor.accept(preposition)) return expected(cursor, action, "a peer '" + std::string(preposition) + " N'");
  const std::string_view word = cursor.word();
  const std::optional<std::int64_t> peer = integer(word, 0, kMost16);
  if (!peer) {
    return report_.error(cursor.column(), "peer " + quote(word) + " of " + std::string(name(action.kind)) +
                                              " must be a number " + range(0, kMost16));
  }
  action.peer = static_cast<std::int16_t>(*peer);
  cursor.skip(word.size());
  return true;
}

bool ActionReader::read_group(Cursor& cursor, Action& action) {
  if (!cursor.accept("over")) return expected(cursor, action, "a group 'over GROUP'");
  const std::string_view word = cursor.word();
  std::array<std::string_view, kGroups> names;
  for (int i = 0; i < kGroups; ++i) {
    const auto group = static_cast<Group>(i);
    names[static_cast<std::size_t>(i)] = name(group);
    if (name(group) == word) action.group = group;
  }
  if (action.group == Group::none) {
    return report_.error(cursor.column(), "unknown group " + quote(word) + did_you_mean(word, names));
  }
  cursor.skip(word.size());
  return true;
}

bool ActionReader::read_tail(Cursor& cursor, RankProgram& rank) {
  if (cursor.accept("if")) {
    if (!cursor.accept("finite")) return report_.error(cursor.column(), "expected 'finite' after 'if'");
    for (Action& half : halves_) half.flags |= Action::kIfFinite;
  }
  if (cursor.accept("on")) {
    const std::optional<Lane> lane = find_lane(cursor.word());
    if (!lane) return report_.error(cursor.column(), unknown_lane(cursor.word()));
    for (Action& half : halves_) half.lane = *lane;
    cursor.skip(cursor.word().size());
  }
  if (cursor.accept("at") && !read_offsets(cursor, rank)) return false;
  if (cursor.accept("wait") && !read_waits(cursor, rank.actions.size(), rank.waits)) return false;
  if (cursor.peek() == '@') {
    const std::string_view word = cursor.word();
    const std::optional<std::int64_t> label = integer(word.substr(1), 1, kMostCount);
    if (!label) {
      return report_.error(cursor.column(),
                           "label " + quote(word) + " must be '@' and a number " + range(1, kMostCount));
    }
    halves_.front().label = static_cast<std::uint32_t>(*label);
    cursor.skip(word.size());
  }
  if (cursor.at_end()) return true;
  const std::string_view rest = cursor.peek() == ',' ? std::string_view(",") : cursor.word();
  return report_.error(cursor.column(),
                       "unexpected " + quote(rest) + " after " + std::string(name(halves_.back().kind)) +
                           ": expected 'if finite', 'on LANE', 'at OFFSET', 'wait LANE>=N', '@N' or the line's end");
}

bool ActionReader::read_offsets(Cursor& cursor, RankProgram& rank) {
  do {
    const std::string_view word = cursor.word();
    const std::optional<std::int64_t> offset = integer(word, 0, kMostOffset);
    if (!offset) {
      return report_.error(cursor.column(), "offset " + quote(word) + " must be a number " + range(0, kMostOffset));
    }
    rank.offsets.push_back({static_cast<std::uint32_t>(rank.actions.size()), *offset});
    cursor.skip(word.size());
  } while (cursor.accept_comma());
  return true;
}

bool ActionReader::read_waits(Cursor& cursor, std::size_t first_index, std::vector<Wait>& waits) {
  bool any = false;
  for (std::string_view word = cursor.word(); !word.empty() && word[0] != '@'; word = cursor.word()) {
    const std::size_t sign = word.find(">=");
    if (sign == std::string_view::npos) break;
    const std::optional<Lane> lane = find_lane(word.substr(0, sign));
    if (!lane) return report_.error(cursor.column(), unknown_lane(word.substr(0, sign)));
    const std::optional<std::int64_t> count = integer(word.substr(sign + 2), 1, kMostCount);
    if (!count) {
      return report_.error(cursor.column() + static_cast<int>(sign) + 2,
                           "count " + quote(word.substr(sign + 2)) + " must be a number " + range(1, kMostCount));
    }
    waits.push_back({static_cast<std::uint32_t>(first_index), *lane, static_cast<std::uint32_t>(*count)});
    cursor.skip(word.size());
    any = true;
  }
  return any || report_.error(cursor.column(), "expected 'LANE>=N' after 'wait'");
}

}  // namespace fem::ir::parsing

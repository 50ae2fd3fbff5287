#include "tests/ir/corruption.hpp"

#include <algorithm>

namespace fem::ir::testing {
namespace {

void change_operand(Random& random, Action& a) {
  const auto near = [&random](int value) { return value + static_cast<int>(below(random, 5)) - 2; };
  switch (below(random, 8)) {
    case 0: a.stage = static_cast<std::int16_t>(near(a.stage)); break;
    case 1: a.microbatch = near(a.microbatch); break;
    case 2: a.peer = static_cast<std::int16_t>(near(a.peer)); break;
    case 3: a.group = static_cast<Group>(below(random, kGroups + 1)); break;
    case 4: a.unit = static_cast<std::int16_t>(near(a.unit)); break;
    case 5: a.flags ^= static_cast<std::uint8_t>(1u << below(random, 2)); break;
    case 6: a.lane = static_cast<Lane>(below(random, kLanes)); break;
    default: a.label = static_cast<std::uint32_t>(below(random, 3)); break;
  }
}

// The two ways to run a backward, and the ends of a message, are the renamings that are hardest to see.
void rename(Random& random, Action& a) {
  a.kind = static_cast<ActionKind>(below(random, kActionKinds));
  if (below(random, 4) != 0) a.lane = info(a.kind).lane;
}

}  // namespace

void corrupt(Random& random, Program& program) {
  std::vector<Action>& actions = program.ranks[below(random, program.ranks.size())].actions;
  std::vector<Action>& others = program.ranks[below(random, program.ranks.size())].actions;
  if (actions.empty() || others.empty()) return;
  const std::size_t i = below(random, actions.size()), j = below(random, actions.size());
  const auto at = [](std::vector<Action>& v, std::size_t n) { return v.begin() + static_cast<std::ptrdiff_t>(n); };
  switch (below(random, 10)) {
    case 0: actions.erase(at(actions, i)); break;
    case 1: actions.insert(at(actions, j), Action(actions[i])); break;
    case 2: std::swap(actions[i], actions[j]); break;
    case 3:
    case 4:
      if (i + 1 < actions.size()) std::swap(actions[i], actions[i + 1]);
      break;
    case 5: rename(random, actions[i]); break;
    case 6:
    case 7: change_operand(random, actions[i]); break;
    case 8: {
      const Action moved = actions[i];
      actions.erase(at(actions, i));
      actions.insert(at(actions, std::min(j, actions.size())), moved);
      break;
    }
    default:
      std::swap(actions[i], others[below(random, others.size())]);
      break;
  }
}

std::string random_bytes(Random& random, std::size_t n) {
  std::string bytes;
  for (std::size_t i = 0; i < n; ++i) bytes += static_cast<char>(random() % 256);
  return bytes;
}

void damage(Random& random, std::string& text) {
  static const std::string kPieces[] = {
      "s0", " m1", "u3 ", "k2", " to 1", "from", ",", "@", "wait ", ">=", "2147483648", "-1", "\n", "#", "\"", "\\x",
      "=", "..", "rank 0\n", "program x microbatches=1\n", "Forward", "SendForwardRecvBackward", std::string(1, '\0'),
      "\r", "\t"};
  const std::size_t at = random() % (text.size() + 1);
  const std::size_t n = std::min<std::size_t>(random() % 12, text.size() - at);
  switch (random() % 6) {
    case 0: text.erase(at, n); break;
    case 1: text.insert(at, kPieces[random() % std::size(kPieces)]); break;
    case 2: text.insert(at, text.substr(random() % (text.size() + 1), random() % 80)); break;
    case 3: text.replace(at, n, random_bytes(random, n)); break;
    case 4: text.insert(at, random_bytes(random, 1 + random() % 4)); break;
    default: text.resize(at); break;
  }
}

}  // namespace fem::ir::testing

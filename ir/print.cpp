#include <charconv>

#include "ir/text.hpp"

namespace fem::ir {
namespace {

class Printer {
 public:
  explicit Printer(std::size_t capacity) { out_.reserve(capacity); }

  std::string take() { return std::move(out_); }

  void plan(const Plan& plan) {
    text("femtotron plan v");
    number(Plan::kVersion);
    text("\n");
    settings(plan.settings);
    text("level ");
    text(name(plan.level));
    text("\n");
    for (std::size_t i = 0; i < plan.stages.size(); ++i) stage(i, plan.stages[i]);
    for (const Program& p : plan.programs) program(p);
  }

  // The halves of a batch are one action: its lane, condition, offsets, waits and label are those of the first half.
  void batch(std::span<const Action> batch, std::span<const ArenaOffset> offsets, std::span<const Wait> waits) {
    for (const Action& half : batch) text(name(half.kind));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (i > 0) text(",");
      operands(batch[i]);
    }
    const Action& first = batch.front();
    if (first.if_finite()) text(" if finite");
    if (first.lane != info(first.kind).lane) {
      text(" on ");
      text(name(first.lane));
    }
    for (std::size_t i = 0; i < offsets.size(); ++i) numbered(i == 0 ? " at " : ", ", offsets[i].offset);
    if (!waits.empty()) text(" wait");
    for (const Wait& wait : waits) {
      text(" ");
      text(name(wait.lane));
      text(">=");
      number(wait.count);
    }
    if (first.label != 0) numbered(" @", first.label);
  }

 private:
  void text(std::string_view s) { out_.append(s); }

  void number(std::int64_t value) {
    char buffer[24];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
    out_.append(buffer, result.ptr);
  }

  void numbered(std::string_view prefix, std::int64_t value) {
    text(prefix);
    number(value);
  }

  void operands(const Action& a) {
    const ActionInfo& row = info(a.kind);
    if (row.has(operand::kS)) numbered(" s", a.stage);
    if (row.has(operand::kM)) numbered(" m", a.microbatch);
    if (row.has(operand::kU) && a.unit != -1) numbered(" u", a.unit);
    if (row.has(operand::kSlot) && a.slot != -1) numbered(" k", a.slot);
    if (row.has(operand::kPeer)) numbered(is_send(a.kind) ? " to " : " from ", a.peer);
    if (row.has(operand::kG)) {
      text(" over ");
      text(name(a.group));
    }
  }

  void settings(const Settings& settings) {
    for (const SectionInfo& section : setting_sections()) {
      text(section.name);
      for (const SettingInfo& row : setting_table()) {
        if (row.section != section.name) continue;
        text(" ");
        text(row.key);
        text("=");
        text(setting_text(settings, row));
      }
      text("\n");
    }
  }

  void stage(std::size_t index, const Stage& stage) {
    numbered("stage ", static_cast<std::int64_t>(index));
    numbered(" pp=", stage.pp);
    numbered(" prev=", stage.prev);
    numbered(" next=", stage.next);
    numbered(" units=", stage.first_unit);
    numbered("..", stage.first_unit + stage.units - 1);
    if (stage.replica_of != -1) numbered(" replica_of=", stage.replica_of);
    text("\n");
  }

  void program(const Program& program) {
    text("program ");
    text(program.name);
    numbered(" microbatches=", program.microbatches);
    if (program.forward_only) text(" forward_only");
    text("\n");
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      numbered("rank ", static_cast<std::int64_t>(r));
      if (program.ranks[r].arena != 0) numbered(" arena=", program.ranks[r].arena);
      text("\n");
      rank(program.ranks[r]);
    }
  }

  // Takes from the front what belongs to actions before `end`.
  template <class T>
  static std::span<const T> take_before(std::span<const T>& rest, std::size_t end) {
    std::size_t n = 0;
    while (n < rest.size() && rest[n].action < end) ++n;
    const std::span<const T> taken = rest.first(n);
    rest = rest.subspan(n);
    return taken;
  }

  void rank(const RankProgram& rank) {
    const std::span<const Action> actions = rank.actions;
    std::span<const Wait> waits = rank.waits;
    std::span<const ArenaOffset> offsets = rank.offsets;
    for (std::size_t i = 0; i < actions.size();) {
      const std::size_t n = batch_size(actions, i);
      text("  ");
      const std::span<const ArenaOffset> at = take_before(offsets, i + n);
      batch(actions.subspan(i, n), at, take_before(waits, i + n));
      text("\n");
      i += n;
    }
  }

  std::string out_;
};

std::size_t estimated_size(const Plan& plan) {
  constexpr std::size_t kHeader = 4096, kLine = 28, kOffset = 12, kWait = 16;
  std::size_t bytes = kHeader;
  for (const Program& program : plan.programs) {
    for (const RankProgram& rank : program.ranks)
      bytes += kLine * rank.actions.size() + kOffset * rank.offsets.size() + kWait * rank.waits.size();
  }
  return bytes;
}

}  // namespace

std::string print_plan(const Plan& plan) {
  Printer printer(estimated_size(plan));
  printer.plan(plan);
  return printer.take();
}

std::string action_text(std::span<const Action> actions) {
  if (actions.empty()) return {};
  Printer printer(64);
  printer.batch(actions.first(batch_size(actions, 0)), {}, {});
  return printer.take();
}

std::uint64_t plan_digest(const Plan& plan) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits: offset basis and prime of its authors
  for (const char c : print_plan(plan)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace fem::ir

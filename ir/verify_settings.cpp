#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "ir/bytes.hpp"
#include "ir/replicas.hpp"
#include "ir/units.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

void check_limits(const Settings& settings, Report& report) {
  const auto wrong = [&](const SettingInfo& row, const std::string& text, const std::string& why) {
    report.settings(Code::V01, row.section,
                    std::string(row.section) + "." + std::string(row.key) + " = " + text + " " + why);
  };
  for (const SettingInfo& row : setting_table()) {
    const std::string text = setting_text(settings, row);
    if (!within_limits(settings, row)) wrong(row, text, "must be " + limit_text(row));
    if (row.allowed.choices.empty()) continue;
    Settings copy;
    if (const std::string reason = set_from_text(copy, row, text); !reason.empty()) wrong(row, text, "is " + reason);
  }
}

struct Quotient {
  std::string_view section;
  std::string dividend;
  std::int64_t a;
  std::string divisor;
  std::int64_t b;
};

// "; nearest: 2 or 4".
std::string nearest_divisors(const Settings& s) {
  std::int64_t below = std::min(s.parallel.shard, replicas(s)), above = s.parallel.shard;
  while (replicas(s) % below != 0) --below;
  while (above <= replicas(s) && replicas(s) % above != 0) ++above;
  return "; nearest: " + std::to_string(below) + (above <= replicas(s) ? " or " + std::to_string(above) : "");
}

void check_divisions(const Settings& s, Report& report) {
  const UnitDims d = unit_dims(s);
  const Quotient quotients[] = {
      {"model", "model.heads", d.heads, "model.kv_heads", d.kv_heads},
      {"model", "model.heads", d.heads, "parallel.tp", s.parallel.tp},
      {"model", "model.kv_heads", d.kv_heads, "parallel.tp", s.parallel.tp},
      {"model", "model.intermediate", d.intermediate, "parallel.tp", s.parallel.tp},
      {"parallel", "parallel.dp", s.parallel.dp, "parallel.ep", s.parallel.ep},
      {"batch", "batch.seq_len", s.batch.seq_len, "parallel.cp", s.parallel.cp},
  };
  for (const Quotient& q : quotients) {
    if (q.a % q.b == 0) continue;
    report.settings(Code::V01, q.section,
                    q.dividend + " = " + std::to_string(q.a) + " is not a multiple of " + q.divisor + " = " +
                        std::to_string(q.b));
  }
  if (s.parallel.shard > 0 && replicas(s) % s.parallel.shard != 0) {
    report.settings(Code::V01, "parallel", "parallel.shard = " + std::to_string(s.parallel.shard) +
                                               " does not divide parallel.dp * parallel.cp = " +
                                               std::to_string(replicas(s)) + nearest_divisors(s));
  }
  if (s.model.head_dim == 0 && s.model.hidden % s.model.heads != 0) {
    report.settings(Code::V01, "model",
                    "model.hidden = " + std::to_string(s.model.hidden) + " is not a multiple of model.heads = " +
                        std::to_string(s.model.heads) + " and model.head_dim is not set");
  } else if (d.head_dim % 2 != 0) {
    report.settings(Code::V01, "model", "the width of a head is " + std::to_string(d.head_dim) +
                                            ", but the rotary embedding turns pairs: it must be even");
  }
}

// Sizes in bytes and operations are computed in 64 bits everywhere else; here they are estimated without overflow.
void check_magnitude(const Settings& s, Report& report) {
  constexpr double kMost = 1152921504606846976.0;  // 2^60
  const double hidden = std::max({static_cast<double>(s.model.hidden), static_cast<double>(s.model.intermediate),
                                  static_cast<double>(s.model.heads) * static_cast<double>(unit_dims(s).head_dim)});
  const double tokens = static_cast<double>(s.batch.micro) * static_cast<double>(s.batch.seq_len);
  const double widest = std::max(hidden, static_cast<double>(s.model.vocab));
  const double parameters = 9 * hidden * hidden * static_cast<double>(s.model.layers) + 2 * widest * hidden;
  const double operations = 32 * tokens * hidden * (widest + static_cast<double>(s.batch.seq_len));
  if (parameters >= kMost) report.settings(Code::V01, "model", "the model's parameters do not fit into 64 bits");
  if (operations >= kMost) {
    report.settings(Code::V01, "batch", "the operations of one microbatch do not fit into 64 bits: batch.micro * "
                                        "batch.seq_len = " + std::to_string(s.batch.micro * s.batch.seq_len));
  }
  const auto& p = s.parallel;
  const double ranks = static_cast<double>(p.pp) * static_cast<double>(p.dp) * static_cast<double>(p.tp) *
                       static_cast<double>(p.cp);
  if (ranks > std::numeric_limits<std::int32_t>::max()) {
    report.settings(Code::V01, "parallel", "pp * dp * tp * cp = more than 2147483647 ranks");
  }
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

void check_microbatches(const Plan& plan, std::size_t index, Report& report) {
  const Program& program = plan.programs[index];
  if (program.microbatches < 1) {
    report.program(Code::V04, index, "microbatches = " + std::to_string(program.microbatches) + " must be at least 1");
    return;
  }
  const std::int64_t expected = microbatches(plan.settings);
  if (!program.forward_only && program.microbatches != expected) {
    report.program(Code::V04, index,
                   "microbatches = " + std::to_string(program.microbatches) +
                       ", but batch.global / (dp * batch.micro) = " + std::to_string(expected));
    return;
  }
  // A microbatch runs forward through the stages of one of at most two directions. A number that the actions cannot
  // cover is refused here, before it sizes any table.
  std::size_t actions = 0;
  for (const RankProgram& rank : program.ranks) actions += rank.actions.size();
  const std::size_t per_microbatch = std::max<std::size_t>(1, plan.stages.size() / 2);
  if (static_cast<std::size_t>(program.microbatches) * per_microbatch > actions) {
    report.program(Code::V04, index,
                   "microbatches = " + std::to_string(program.microbatches) + " over " +
                       std::to_string(plan.stages.size()) + " stages, but the program has only " +
                       std::to_string(actions) + " actions");
  }
}

// Gradients are multiplied and divided by these: anything but a power of two would change their bits.
void check_loss_scale(const Settings::PrecisionSettings& precision, Report& report) {
  const std::pair<std::string_view, std::int64_t> powers[] = {{"loss_scale", precision.loss_scale},
                                                              {"loss_scale_factor", precision.loss_scale_factor}};
  for (const auto& [key, value] : powers) {
    if (value < 1 || std::has_single_bit(static_cast<std::uint64_t>(value))) continue;
    const std::uint64_t below = std::bit_floor(static_cast<std::uint64_t>(value));
    report.settings(Code::V01, "precision",
                    "precision." + std::string(key) + " = " + std::to_string(value) +
                        " is not a power of two; nearest: " + std::to_string(below) + " or " +
                        std::to_string(2 * below));
  }
}

}  // namespace

void check_bytes(std::string_view section, std::string_view key, const std::string& value, Report& report) {
  if (value.empty() || parse_bytes(value)) return;
  report.settings(Code::V01, section,
                  std::string(section) + "." + std::string(key) + " = " + value +
                      " is not a number of bytes, as 80GiB or 512MB");
}

void check_memory_settings(const Settings::MemorySettings& memory, Report& report) {
  check_bytes("memory", "limit", memory.limit, report);
  if (memory.recompute == "fit" && memory.limit.empty()) {
    report.settings(Code::V01, "memory", "memory.recompute = fit needs a memory.limit to fit into");
  }
}

// Whether what the keys ask for exists; numbers have their limits above.
void check_parallel_settings(const Settings& settings, Report& report) {
  check_bytes("parallel", "resident", settings.parallel.resident, report);
  check_bytes("parallel", "bucket", settings.parallel.bucket, report);
  if (!settings.parallel.resident.empty() && !settings.overlap.lanes) {
    report.settings(Code::V01, "parallel",
                    "parallel.resident = " + settings.parallel.resident +
                        " needs overlap.lanes = true: without lanes all units share one buffer for what is gathered");
  }
}

void check_settings(const Plan& plan, Report& report) {
  check_limits(plan.settings, report);
  check_loss_scale(plan.settings.precision, report);
  check_memory_settings(plan.settings.memory, report);
  check_parallel_settings(plan.settings, report);
  check_bytes("overlap", "prefetch_budget", plan.settings.overlap.prefetch_budget, report);
  if (report.errors() > 0) return;
  check_divisions(plan.settings, report);
  check_magnitude(plan.settings, report);
}

void check_programs(const Plan& plan, Report& report) {
  const Settings& s = plan.settings;
  if (plan.programs.empty()) report.plan(Code::V04, "the plan has no program");
  if (s.batch.global % s.parallel.dp != 0 || s.batch.global / s.parallel.dp % s.batch.micro != 0) {
    report.settings(Code::V04, "batch",
                    "batch.global = " + std::to_string(s.batch.global) + " is not a multiple of dp * batch.micro = " +
                        std::to_string(s.parallel.dp) + " * " + std::to_string(s.batch.micro));
  }
  for (std::size_t i = 0; i < plan.programs.size(); ++i) {
    const Program& program = plan.programs[i];
    if (!is_name(program.name)) {
      report.program(Code::V04, i, "a program's name consists of letters, digits, '_', '-' and '.'");
    }
    if (plan.find(program.name) != &program) {
      report.program(Code::V04, i, "a second program of this name: runs choose programs by name");
    }
    if (program.ranks.size() != static_cast<std::size_t>(s.parallel.pp)) {
      report.program(Code::V04, i,
                     std::to_string(program.ranks.size()) + " ranks, but parallel.pp = " +
                         std::to_string(s.parallel.pp));
    }
    check_microbatches(plan, i, report);
  }
}

}  // namespace fem::ir::verifying

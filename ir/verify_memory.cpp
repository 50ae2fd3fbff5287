#include <algorithm>
#include <string>

#include "ir/bytes.hpp"
#include "ir/memory_blocks.hpp"
#include "ir/verify_checks.hpp"

namespace fem::ir::verifying {
namespace {

std::string text_of(std::int64_t bytes) { return bytes_text(bytes) + " (" + std::to_string(bytes) + " bytes)"; }

// "saved 3.10 GiB, optimizer 1.20 GiB": the kinds that weigh most.
std::string heaviest(const MemoryPeak& peak) {
  KindBytes sum = peak.persistent;
  for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += peak.blocks[k];
  std::string out;
  for (int n = 0; n < 3; ++n) {
    const auto most = static_cast<std::size_t>(std::max_element(sum.begin(), sum.end()) - sum.begin());
    if (sum[most] == 0) break;
    out += (n ? ", " : "") + std::string(name(static_cast<MemoryKind>(most))) + " " + bytes_text(sum[most]);
    sum[most] = 0;
  }
  return out;
}

}  // namespace

void check_memory(const Subject& subject, Report& report) {
  const std::optional<std::int64_t> limit = parse_bytes(subject.plan.settings.memory.limit);
  if (!limit || *limit == 0) return;
  for (std::size_t r = 0; r < subject.program().ranks.size(); ++r) {
    const MemoryPeak peak = memory_peak(subject.plan, subject.program(), r);
    if (peak.bytes() <= *limit) continue;
    report.action(Code::V28, {subject.index, r, peak.action},
                  "rank " + std::to_string(r) + " holds " + text_of(peak.bytes()) + " here, " +
                      text_of(peak.bytes() - *limit) + " more than memory.limit=" +
                      subject.plan.settings.memory.limit + "; most of it: " + heaviest(peak));
  }
}

}  // namespace fem::ir::verifying

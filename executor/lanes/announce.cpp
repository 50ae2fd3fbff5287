#include "executor/lanes/announce.hpp"

extern "C" {
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
}

namespace fem::exec {
namespace {

constexpr std::int64_t kGrain = 64;  // offsets are multiples of it

}  // namespace

Announcer::Announcer(const ir::Plan& plan, std::size_t program, std::size_t rank)
    : uses_(ir::lane_uses(plan, program, rank)), offsets_(plan.programs[program].ranks[rank].offsets) {
  const std::int64_t arena = plan.programs[program].ranks[rank].arena;
  resources_ = std::make_unique<std::uint64_t[]>(uses_.resources);
  arena_ = std::make_unique<std::uint64_t[]>(static_cast<std::size_t>(arena / kGrain + 1));
}

void Announcer::announce(std::size_t batch) const {
  const ir::BatchUses& uses = uses_.batches[batch];
  for (const std::uint32_t r : uses.reads) __tsan_read_range(&resources_[r], sizeof(std::uint64_t));
  for (const std::uint32_t r : uses.changes) __tsan_write_range(&resources_[r], sizeof(std::uint64_t));
  if (offsets_.empty()) return;
  const auto words = [&](std::uint32_t block) {
    return &arena_[static_cast<std::size_t>(offsets_[block].offset / kGrain)];
  };
  const auto bytes = [&](std::uint32_t block) {
    return static_cast<unsigned long>((uses_.blocks[block] + kGrain - 1) / kGrain) * sizeof(std::uint64_t);
  };
  for (const std::uint32_t b : uses.begins) __tsan_write_range(words(b), bytes(b));
  for (const std::uint32_t b : uses.ends) __tsan_read_range(words(b), bytes(b));
}

}  // namespace fem::exec

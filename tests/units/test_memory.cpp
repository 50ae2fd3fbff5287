// Memory of the units: workspace exactly as declared, no allocation by the units' own code, and LibTorch's own below
// what the table declares as hidden.
#include <gtest/gtest.h>

#include <cstdlib>

#include <c10/core/Allocator.h>

#include "heap.hpp"
#include "support.hpp"

namespace fem::exec::test {
namespace {

// Counts LibTorch's tensor memory while this lives.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : original_(c10::GetAllocator(c10::kCPU)) { c10::SetAllocator(c10::kCPU, this, kPriority); }
  ~CountingAllocator() override { c10::SetAllocator(c10::kCPU, original_, kPriority); }

  c10::DataPtr allocate(std::size_t bytes) override {
    ++allocations;
    live_ += static_cast<std::int64_t>(bytes);
    peak = std::max(peak, live_);
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)) + kHeader;
    *header(memory) = {this, static_cast<std::int64_t>(bytes)};
    return {memory, memory, &CountingAllocator::free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::free; }  // oneDNN takes plain addresses
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  std::int64_t allocations = 0, peak = 0;

 private:
  struct Header {
    CountingAllocator* owner;
    std::int64_t bytes;
  };
  static constexpr std::uint8_t kPriority = 255;
  static constexpr std::ptrdiff_t kHeader = 64;
  static Header* header(void* memory) { return reinterpret_cast<Header*>(static_cast<std::byte*>(memory) - kHeader); }
  static void free(void* memory) {
    header(memory)->owner->live_ -= header(memory)->bytes;
    std::free(header(memory));
  }
  c10::Allocator* original_;
  std::int64_t live_ = 0;
};

struct Allocations {
  std::int64_t heap, tensors, peak;
};

template <class Call>
Allocations count(Call call) {
  CountingAllocator counting;
  const auto before = heap_allocations();
  call();
  return {heap_allocations() - before, counting.allocations, counting.peak};
}

constexpr ir::Phase kPhases[] = {ir::Phase::forward, ir::Phase::backward_input, ir::Phase::backward_weight};

// What the second forward, backward_input and backward_weight of a unit allocate.
std::array<Allocations, 3> steady_state(const Shape& shape, std::int64_t unit, Arithmetic arithmetic) {
  const auto in = inputs_of(shape, unit);
  const auto grads = zero_grads(in);
  Unit own(settings_of(shape), unit, in.params, grads, arithmetic);
  const Blocks blocks(shape, unit, in);
  LossSum loss;
  const CallContext context{.train = true};
  std::array<Allocations, 3> counts{};
  for (int round = 0; round < 2; ++round)
    counts = {count([&] { own.forward(blocks.at(ir::Phase::forward), in.batch, &loss, context); }),
              count([&] { own.backward_input(blocks.at(ir::Phase::backward_input), context); }),
              count([&] { own.backward_weight(blocks.at(ir::Phase::backward_weight), context); })};
  return counts;
}

const Shape kShapes[] = {
    {.kv_heads = 2},
    {.kv_heads = 2, .dropout = 0.1},
    {.micro = 1, .seq_len = 9, .hidden = 96, .intermediate = 32, .heads = 2, .kv_heads = 2, .head_dim = 4,
     .dropout = 0.1},
    {},
    {.micro = 1, .seq_len = 1, .hidden = 8, .intermediate = 8, .heads = 2, .kv_heads = 1, .head_dim = 2, .vocab = 2},
    {.micro = 2, .seq_len = 200, .hidden = 64, .intermediate = 176, .heads = 8, .kv_heads = 2, .head_dim = 16,
     .vocab = 1000},
    {.micro = 1, .seq_len = 800, .hidden = 32, .intermediate = 40, .heads = 2, .kv_heads = 2, .head_dim = 8,
     .vocab = 300},
    {.micro = 3, .seq_len = 40, .hidden = 48, .intermediate = 1000, .heads = 2, .kv_heads = 1, .head_dim = 96,
     .vocab = 70'001},
};

class Memory : public ::testing::TestWithParam<std::tuple<std::int64_t, const char*, Shape>> {
 protected:
  std::int64_t unit() const { return std::get<0>(GetParam()); }
  Shape shape() const {
    auto shape = std::get<2>(GetParam());
    shape.compute = std::get<1>(GetParam());
    return shape;
  }
};

// The most that recording a phase takes, in one arithmetic or the other, is the declared figure to the byte.
TEST_P(Memory, WorkspaceIsExactlyAsDeclared) {
  const auto in = inputs_of(shape(), unit());
  const auto grads = zero_grads(in);
  const auto settings = settings_of(shape());
  std::int64_t used[3] = {};
  for (const auto arithmetic : {Arithmetic::Direct, Arithmetic::ThroughFloat32}) {
    const Unit own(settings, unit(), in.params, grads, arithmetic);
    const UnitPhases& p = own.phases();
    used[0] = std::max(used[0], p.forward.high_water());
    used[1] = std::max(used[1], p.backward_input.high_water());
    used[2] = std::max(used[2], p.backward_weight.high_water());
    EXPECT_LE(p.recompute.high_water(), p.forward.high_water());
    EXPECT_LE(p.recompute_cheap.high_water(), p.forward.high_water());
  }
  for (const auto phase : kPhases)
    EXPECT_EQ(used[static_cast<int>(phase)], ir::workspace_bytes(ir::unit_kind(settings, unit()), phase,
                                                                 ir::unit_dims(settings), ir::unit_formats(settings)))
        << "phase " << static_cast<int>(phase);
}

TEST_P(Memory, HiddenAllocationsStayBelowTheDeclaredFigure) {
  const auto settings = settings_of(shape());
  for (const auto arithmetic : {Arithmetic::Direct, Arithmetic::ThroughFloat32}) {
    const bool runs = arithmetic != Arithmetic::Direct || choose_arithmetic(compute_type(settings)) == arithmetic;
    if (!runs) continue;  // fp16, or this CPU does not multiply in bf16
    const auto counts = steady_state(shape(), unit(), arithmetic);
    for (const auto phase : kPhases)
      EXPECT_LE(counts[static_cast<std::size_t>(phase)].peak,
                ir::hidden_bytes(ir::unit_kind(settings, unit()), phase, ir::unit_dims(settings),
                                 ir::unit_formats(settings)))
          << "phase " << static_cast<int>(phase) << (arithmetic == Arithmetic::Direct ? " direct" : " through fp32");
  }
}

// LibTorch's objects that a call makes and releases, by operator: a sum or norm over a dimension makes views of its
// result; flash attention its outputs and buffers, the units the views of those.
constexpr std::int64_t kNorm = 5, kSum = 2, kFlash = 40, kFlashBackward = 64;

// In fp32 everything but those operators writes into memory that was there. (In bf16 each product allocates inside
// oneDNN where that multiplies, and copies to fp32 do: counted in bytes above.)
class MemoryInFp32 : public Memory {};

TEST_P(MemoryInFp32, SteadyStateAllocatesNothingElse) {
  const auto counts = steady_state(shape(), unit(), Arithmetic::Direct);
  const auto rows = ir::cross_entropy_rows(ir::unit_dims(settings_of(shape())));
  const auto blocks = (shape().micro * shape().seq_len + rows - 1) / rows;
  const std::int64_t heap[3][3] = {{0, 0, 0}, {2 * kNorm + kFlash, 4 * kSum + kFlashBackward, 0},
                                   {kNorm + blocks * kSum, 2 * kSum, 0}};
  const std::int64_t tensors[3][3] = {{0, 0, 0}, {4, 6, 0}, {0, 0, 0}};
  for (const auto phase : kPhases) {
    const auto p = static_cast<std::size_t>(phase);
    EXPECT_LE(counts[p].heap, heap[unit()][p]) << "phase " << p;
    EXPECT_LE(counts[p].tensors, tensors[unit()][p]) << "phase " << p;
  }
}

// The counters see what they should: a fresh tensor is an allocation of each kind.
TEST(Counting, SeesAFreshTensor) {
  const auto counts = count([] { at::empty({10}, at::kFloat); });
  EXPECT_EQ(counts.tensors, 1);
  EXPECT_EQ(counts.peak, 40);
  EXPECT_GE(counts.heap, 1);
}

std::string memory_name(const ::testing::TestParamInfo<Memory::ParamType>& info) {
  constexpr const char* units[] = {"embedding", "block", "head"};
  auto shape = std::get<2>(info.param);
  shape.compute = std::get<1>(info.param);
  return std::string(units[std::get<0>(info.param)]) + "_" + describe(shape);
}

INSTANTIATE_TEST_SUITE_P(Units, Memory,
                         ::testing::Combine(::testing::Values(kEmbedding, kBlock, kHead),
                                            ::testing::Values("fp32", "bf16", "fp16"), ::testing::ValuesIn(kShapes)),
                         memory_name);
INSTANTIATE_TEST_SUITE_P(Units, MemoryInFp32,
                         ::testing::Combine(::testing::Values(kEmbedding, kBlock, kHead), ::testing::Values("fp32"),
                                            ::testing::ValuesIn(kShapes)),
                         memory_name);

}  // namespace
}  // namespace fem::exec::test

// What every unit promises beside its mathematics: its bits, no hidden state, recomputing, a real B/W split.
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include "executor/error.hpp"
#include "support.hpp"

namespace fem::exec::test {
namespace {

class Contract : public ::testing::TestWithParam<std::tuple<std::int64_t, const char*>> {
 protected:
  std::int64_t unit() const { return std::get<0>(GetParam()); }
  Shape shape() const { return {.kv_heads = 2, .compute = std::get<1>(GetParam())}; }

  static void expect_same(const Results& a, const Results& b) {
    EXPECT_TRUE(same_bits(a.y, b.y));
    EXPECT_TRUE(same_bits(a.dx, b.dx));
    EXPECT_EQ(a.loss.loss, b.loss.loss);
    EXPECT_EQ(a.loss.tokens, b.loss.tokens);
    ASSERT_EQ(a.grads.size(), b.grads.size());
    for (std::size_t i = 0; i < a.grads.size(); ++i) EXPECT_TRUE(same_bits(a.grads[i], b.grads[i])) << "gradient " << i;
  }
};

// The bits of a composition of functional operators that allocates every tensor, in both arithmetics: results, saved
// tensors and weight work, each where the table says that it lies.
TEST_P(Contract, EqualsTheFunctionalComposition) {
  for (auto shape : {this->shape(), Shape{}, Shape{.micro = 1, .seq_len = 1, .hidden = 8, .intermediate = 8, .heads = 2,
                                                   .kv_heads = 1, .head_dim = 2, .vocab = 2},
                     Shape{.micro = 3, .seq_len = 33, .hidden = 72, .intermediate = 200, .kv_heads = 2, .head_dim = 18,
                           .vocab = 70'001},
                     Shape{.micro = 1, .seq_len = 200, .hidden = 128, .intermediate = 344, .heads = 8, .kv_heads = 2,
                           .head_dim = 16, .vocab = 1000}}) {
    shape.compute = std::get<1>(GetParam());
    auto in = inputs_of(shape, unit());
    in.batch.targets.view(-1).slice(0, 0, std::nullopt, 3).fill_(kIgnoredTarget);
    for (const auto arithmetic : {Arithmetic::Direct, Arithmetic::ThroughFloat32}) {
      SCOPED_TRACE(describe(shape) + (arithmetic == Arithmetic::Direct ? " direct" : " through fp32"));
      const auto got = run_unit(shape, unit(), in, arithmetic), want = run_functional(shape, unit(), in, arithmetic);
      expect_same(got, want);
      ASSERT_EQ(got.saved.size(), want.saved.size());
      ASSERT_EQ(got.work.size(), want.work.size());
      const auto& row = ir::info(ir::unit_kind(settings_of(shape), unit()));
      for (std::size_t i = 0; i < got.saved.size(); ++i)
        EXPECT_TRUE(same_bits(got.saved[i], want.saved[i])) << "saved " << row.saved[i].name;
      for (std::size_t i = 0; i < got.work.size(); ++i)
        EXPECT_TRUE(same_bits(got.work[i], want.work[i])) << "work " << row.work[i].name;
    }
  }
}

TEST_P(Contract, ForwardOnlyGivesTheSameBits) {
  const auto in = inputs_of(shape(), unit());
  const auto full = run_unit(shape(), unit(), in);
  const Blocks blocks(shape(), unit(), in);
  LossSum loss;
  make_unit(settings_of(shape()), unit(), {}, in.params, zero_grads(in))
      ->forward(blocks.at_discarding(), in.batch, &loss);
  EXPECT_TRUE(same_bits(blocks.output(), full.y));
  EXPECT_EQ(loss.loss, full.loss.loss);
  EXPECT_EQ(loss.tokens, full.loss.tokens);
  EXPECT_TRUE(blocks.guards_intact());
}

// After a forward that kept nothing, or not the cheap slots, recomputing gives what a forward would have kept.
TEST_P(Contract, RecomputingRestoresTheSavedTensors) {
  const auto in = inputs_of(shape(), unit());
  const auto full = run_unit(shape(), unit(), in);
  const auto grads = zero_grads(in);
  const auto own = make_unit(settings_of(shape()), unit(), {}, in.params, grads);
  for (const auto what : {Recompute::everything, Recompute::cheap}) {
    if (what == Recompute::cheap && !ir::saved_w_is_cheap(own->kind())) continue;
    const Blocks blocks(shape(), unit(), in);
    LossSum loss;
    own->forward(blocks.at_discarding(what == Recompute::cheap), in.batch, &loss);
    const auto y = blocks.output();
    if (y.defined()) blocks.y.view(0, y.sizes(), y.scalar_type()).fill_(7);
    own->recompute(blocks.at(ir::Phase::forward), in.batch, what);
    EXPECT_EQ(loss.tokens, full.loss.tokens) << "a token counted twice";
    if (y.defined()) {
      EXPECT_TRUE(blocks.output().eq(7).all().item<bool>()) << "recomputing wrote the output";
    }
    const auto saved = blocks.saved_tensors();
    for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_TRUE(same_bits(saved[i], full.saved[i])) << "slot " << i;
    own->backward_input(blocks.at(ir::Phase::backward_input));
    EXPECT_TRUE(same_bits(blocks.grad_input(), full.dx));
    EXPECT_TRUE(blocks.guards_intact());
  }
}

TEST_P(Contract, LeavesInputsAndParametersAlone) {
  const auto in = inputs_of(shape(), unit()), untouched = inputs_of(shape(), unit());
  run_unit(shape(), unit(), in);
  EXPECT_TRUE(same_bits(in.x, untouched.x));
  EXPECT_TRUE(same_bits(in.dy, untouched.dy));
  EXPECT_TRUE(same_bits(in.batch.tokens, untouched.batch.tokens));
  EXPECT_TRUE(same_bits(in.batch.targets, untouched.batch.targets));
  for (std::size_t i = 0; i < in.params.size(); ++i) {
    EXPECT_TRUE(same_bits(in.params[i], untouched.params[i]));
    EXPECT_FALSE(in.params[i].requires_grad());
  }
}

// A copy one element past an aligned address, as a view into a larger buffer.
at::Tensor elsewhere(const at::Tensor& t) {
  auto place = at::empty({t.numel() + 1}, t.options()).narrow(0, 1, t.numel()).view(t.sizes());
  return place.copy_(t);
}

// Parameters lie in flat buffers, and blocks where there is room: their addresses differ between layouts.
TEST_P(Contract, AddressesDoNotMatter) {
  const auto in = inputs_of(shape(), unit());
  auto moved = in;
  for (auto& p : moved.params) p = elsewhere(p);
  expect_same(run_unit(shape(), unit(), in), run_unit(shape(), unit(), moved, 5 * ir::kBufferAlignment));
}

// Two microbatches interleaved on one unit, as 1F1B and split backwards do, against each alone on a fresh unit.
TEST_P(Contract, MicrobatchesDoNotMeet) {
  const auto a = inputs_of(shape(), unit(), 1);
  auto b = inputs_of(shape(), unit(), 2);
  b.params = a.params;
  const auto grads = zero_grads(a);
  const auto own = make_unit(settings_of(shape()), unit(), {}, a.params, grads);
  const Blocks blocks[2] = {{shape(), unit(), a}, {shape(), unit(), b}};
  Results r[2];
  own->forward(blocks[0].at(ir::Phase::forward), a.batch, &r[0].loss);
  own->forward(blocks[1].at(ir::Phase::forward), b.batch, &r[1].loss);
  for (int i : {1, 0}) own->backward_input(blocks[i].at(ir::Phase::backward_input));
  for (int i : {0, 1}) {
    own->backward_weight(blocks[i].at(ir::Phase::backward_weight));
    r[i].y = blocks[i].output();
    r[i].dx = blocks[i].grad_input();
    for (const auto& grad : grads) {
      r[i].grads.push_back(grad.clone());
      grad.zero_();
    }
  }
  expect_same(r[0], run_unit(shape(), unit(), a));
  expect_same(r[1], run_unit(shape(), unit(), b));
}

TEST_P(Contract, WeightGradientsAdd) {
  const auto in = inputs_of(shape(), unit());
  const auto once = run_unit(shape(), unit(), in);
  const auto grads = zero_grads(in);
  for (const auto& grad : grads) grad.fill_(1);
  const auto own = make_unit(settings_of(shape()), unit(), {}, in.params, grads);
  const Blocks blocks(shape(), unit(), in);
  LossSum loss{.loss = 3, .tokens = 5};
  own->forward(blocks.at(ir::Phase::forward), in.batch, &loss);
  EXPECT_NEAR(loss.loss, once.loss.loss + 3, 1e-12 * (once.loss.loss + 3));
  EXPECT_EQ(loss.tokens, once.loss.tokens + 5);
  own->backward_input(blocks.at(ir::Phase::backward_input));
  own->backward_weight(blocks.at(ir::Phase::backward_weight));
  for (std::size_t i = 0; i < grads.size(); ++i) EXPECT_LE(relative_error(grads[i].sub(1), once.grads[i]), 1e-5);
}

// Fresh memory holds NaN while this lives.
class PoisonedMemory {
 public:
  PoisonedMemory() {
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~PoisonedMemory() { at::globalContext().setDeterministicAlgorithms(false, false); }
};

TEST_P(Contract, FreshMemoryIsNeverRead) {
  const auto in = inputs_of(shape(), unit());
  const auto plain = run_unit(shape(), unit(), in);
  const PoisonedMemory poisoned;
  ASSERT_TRUE(at::empty({4}, at::kFloat).isnan().all().item<bool>());
  expect_same(plain, run_unit(shape(), unit(), in));
}

TEST_P(Contract, AListThatDiffersFromTheTableIsRefused) {
  auto in = inputs_of(shape(), unit());
  const auto grads = zero_grads(in);
  in.params.pop_back();
  EXPECT_THROW(make_unit(settings_of(shape()), unit(), {}, in.params, grads), ExecutionError);
}

std::string contract_name(const ::testing::TestParamInfo<Contract::ParamType>& info) {
  constexpr const char* units[] = {"embedding", "block", "head"};
  return std::string(units[std::get<0>(info.param)]) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Units, Contract,
                         ::testing::Combine(::testing::Values(kEmbedding, kBlock, kHead),
                                            ::testing::Values("fp32", "bf16", "fp16")),
                         contract_name);

struct ProductCounts {
  int over_tokens = 0, over_features = 0;  // weight gradients sum over tokens, everything else over features
};

// Counts the matrix products of this thread by the dimension that they sum over, through the dispatcher's own records.
class ProductCounter {
 public:
  explicit ProductCounter(std::int64_t tokens) {
    counts_ = {};
    tokens_ = tokens;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&ProductCounter::record).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~ProductCounter() { at::removeCallback(handle_); }

  ProductCounts take() { return std::exchange(counts_, {}); }

 private:
  static std::unique_ptr<at::ObserverContext> record(const at::RecordFunction& call) {
    const std::string_view name = call.name();
    const std::size_t left = name == "aten::mm" ? 0 : name == "aten::addmm" || name == "aten::addmm_" ? 1 : 9;
    if (left == 9) return nullptr;
    ++(call.inputs()[left].toTensor().size(1) == tokens_ ? counts_.over_tokens : counts_.over_features);
    return nullptr;
  }

  static inline thread_local ProductCounts counts_;
  static inline thread_local std::int64_t tokens_ = 0;
  at::CallbackHandle handle_;
};

void expect_split(std::int64_t unit, int products, const char* compute) {
  const Shape shape{.micro = 1, .seq_len = 13, .kv_heads = 2, .compute = compute};  // 13 is no other dimension
  const auto in = inputs_of(shape, unit);
  const auto grads = zero_grads(in);
  const auto own = make_unit(settings_of(shape), unit, {}, in.params, grads);
  const Blocks blocks(shape, unit, in);
  LossSum loss;
  ProductCounter counter(13);
  own->forward(blocks.at(ir::Phase::forward), in.batch, &loss);
  auto count = counter.take();
  EXPECT_EQ(count.over_features, products);
  EXPECT_EQ(count.over_tokens, 0);
  own->backward_input(blocks.at(ir::Phase::backward_input));
  count = counter.take();
  EXPECT_EQ(count.over_features, products) << "input products in B";
  EXPECT_EQ(count.over_tokens, 0) << "weight products in B";
  own->backward_weight(blocks.at(ir::Phase::backward_weight));
  count = counter.take();
  EXPECT_EQ(count.over_features, 0) << "input products in W";
  EXPECT_EQ(count.over_tokens, products) << "weight products in W";
}

// A block has seven linear layers (q, k, v, o, gate, up, down), the head one, the embedding none.
TEST(Split, InputAndWeightProductsAreApart) {
  for (const char* compute : {"fp32", "bf16", "fp16"}) {
    expect_split(kBlock, 7, compute);
    expect_split(kHead, 1, compute);
    expect_split(kEmbedding, 0, compute);
  }
}

TEST(MakeUnit, RefusesWhatIsNotOfTheModel) {
  const auto settings = settings_of({});
  const auto in = inputs_of({}, kBlock);
  const auto grads = zero_grads(in);
  EXPECT_THROW(make_unit(settings, -1, {}, in.params, grads), ExecutionError);
  EXPECT_THROW(make_unit(settings, 3, {}, in.params, grads), ExecutionError);
  EXPECT_THROW(make_unit(settings, kBlock, {.tp = 2}, in.params, grads), ExecutionError);
}

TEST(Embedding, ATokenOutsideTheVocabularyIsNamed) {
  const Shape shape;
  auto in = inputs_of(shape, kEmbedding);
  in.batch.tokens.view(-1).narrow(0, 3, 1).fill_(257);
  const Blocks blocks(shape, kEmbedding, in);
  const auto own = make_unit(settings_of(shape), kEmbedding, {}, in.params, zero_grads(in));
  try {
    own->forward(blocks.at(ir::Phase::forward), in.batch, nullptr);
    FAIL();
  } catch (const ExecutionError& e) {
    EXPECT_NE(std::string(e.what()).find("token id 257 at token 3"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace fem::exec::test

// What every unit promises beside its mathematics: the lists of the unit table, no hidden state, a real B/W split.
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include "executor/error.hpp"
#include "executor/units/declaration.hpp"
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

// The expectation is spelled here from the table's rows, apart from the check inside the units.
void expect_rows(std::span<const at::Tensor> tensors, std::span<const ir::BufferInfo> rows, const Shape& shape) {
  const auto settings = settings_of(shape);
  ASSERT_EQ(tensors.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto want = rows[i].format == ir::Format::Compute   ? compute_type(settings)
                      : rows[i].format == ir::Format::Float32 ? at::kFloat
                                                              : at::kLong;
    EXPECT_EQ(tensors[i].numel(), rows[i].elements(ir::unit_dims(settings))) << rows[i].name;
    EXPECT_EQ(tensors[i].scalar_type(), want) << rows[i].name;
    EXPECT_TRUE(tensors[i].is_contiguous()) << rows[i].name;
  }
}

TEST_P(Contract, KeepsWhatTheTableDeclares) {
  const auto r = run_unit(shape(), unit(), inputs_of(shape(), unit()));
  const auto& row = ir::info(ir::unit_kind(settings_of(shape()), unit()));
  expect_rows(r.saved, row.saved, shape());
  expect_rows(r.work, row.work, shape());
}

// A saved tensor is not a view of something larger that it would keep alive.
TEST_P(Contract, KeepsNothingLarger) {
  const auto r = run_unit(shape(), unit(), inputs_of(shape(), unit()));
  for (const auto* list : {&r.saved, &r.work})
    for (std::size_t i = 0; i < list->size(); ++i)
      EXPECT_EQ((*list)[i].storage().nbytes(), (*list)[i].nbytes()) << "tensor " << i;
}

TEST_P(Contract, ForwardOnlyGivesTheSameBits) {
  const auto in = inputs_of(shape(), unit());
  const auto full = run_unit(shape(), unit(), in);
  LossSum loss;
  const auto y = make_unit(settings_of(shape()), unit(), {})->forward(in.params, in.x, in.batch, nullptr, &loss);
  EXPECT_TRUE(same_bits(y, full.y));
  EXPECT_EQ(loss.loss, full.loss.loss);
  EXPECT_EQ(loss.tokens, full.loss.tokens);
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
  if (!t.defined()) return t;
  auto place = at::empty({t.numel() + 1}, t.options()).narrow(0, 1, t.numel()).view(t.sizes());
  return place.copy_(t);
}

// Parameters lie in flat buffers and activations in receive buffers: their addresses differ between layouts.
TEST_P(Contract, AddressesDoNotMatter) {
  const auto in = inputs_of(shape(), unit());
  auto moved = in;
  moved.x = elsewhere(in.x);
  moved.dy = elsewhere(in.dy);
  for (auto& p : moved.params) p = elsewhere(p);
  expect_same(run_unit(shape(), unit(), in), run_unit(shape(), unit(), moved));
}

// Two microbatches interleaved on one unit, as 1F1B and split backwards do, against each alone on a fresh unit.
TEST_P(Contract, MicrobatchesDoNotMeet) {
  const auto a = inputs_of(shape(), unit(), 1), b = inputs_of(shape(), unit(), 2);
  const auto trio = make_unit(settings_of(shape()), unit(), {});
  Tensors saved[2], work[2], grads;
  Results r[2];
  r[0].y = trio->forward(a.params, a.x, a.batch, &saved[0], &r[0].loss);
  r[1].y = trio->forward(a.params, b.x, b.batch, &saved[1], &r[1].loss);
  r[1].dx = trio->backward_input(a.params, b.dy, &saved[1], &work[1]);
  r[0].dx = trio->backward_input(a.params, a.dy, &saved[0], &work[0]);
  for (int i : {0, 1}) {
    for (const auto& p : a.params) r[i].grads.push_back(at::zeros(p.sizes(), at::kFloat));
    trio->backward_weight(&work[i], r[i].grads);
  }
  expect_same(r[0], run_unit(shape(), unit(), a));
  auto alone = b;
  alone.params = a.params;
  expect_same(r[1], run_unit(shape(), unit(), alone));
}

TEST_P(Contract, WeightGradientsAdd) {
  const auto in = inputs_of(shape(), unit());
  const auto once = run_unit(shape(), unit(), in);
  const auto trio = make_unit(settings_of(shape()), unit(), {});
  Tensors saved, work, grads;
  LossSum loss{.loss = 3, .tokens = 5};
  trio->forward(in.params, in.x, in.batch, &saved, &loss);
  EXPECT_NEAR(loss.loss, once.loss.loss + 3, 1e-12 * (once.loss.loss + 3));
  EXPECT_EQ(loss.tokens, once.loss.tokens + 5);
  trio->backward_input(in.params, in.dy, &saved, &work);
  for (const auto& p : in.params) grads.push_back(at::ones(p.sizes(), at::kFloat));
  trio->backward_weight(&work, grads);
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
  const auto in = inputs_of(shape(), unit());
  const auto trio = make_unit(settings_of(shape()), unit(), {});
  Tensors saved, work;
  LossSum loss;
  trio->forward(in.params, in.x, in.batch, &saved, &loss);
  auto short_by_one = saved;
  short_by_one.pop_back();
  EXPECT_THROW(trio->backward_input(in.params, in.dy, &short_by_one, &work), ExecutionError);
  auto other_format = saved;
  other_format.back() = other_format.back().to(at::kDouble);
  EXPECT_THROW(trio->backward_input(in.params, in.dy, &other_format, &work), ExecutionError);
  auto undefined = saved;
  undefined.front().reset();
  EXPECT_THROW(trio->backward_input(in.params, in.dy, &undefined, &work), ExecutionError);
}

std::string contract_name(const ::testing::TestParamInfo<Contract::ParamType>& info) {
  constexpr const char* units[] = {"embedding", "block", "head"};
  return std::string(units[std::get<0>(info.param)]) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(Units, Contract,
                         ::testing::Combine(::testing::Values(kEmbedding, kBlock, kHead),
                                            ::testing::Values("fp32", "bf16")),
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
  const auto trio = make_unit(settings_of(shape), unit, {});
  Tensors saved, work, grads;
  LossSum loss;
  for (const auto& p : in.params) grads.push_back(at::zeros(p.sizes(), at::kFloat));
  ProductCounter counter(13);
  trio->forward(in.params, in.x, in.batch, &saved, &loss);
  auto count = counter.take();
  EXPECT_EQ(count.over_features, products);
  EXPECT_EQ(count.over_tokens, 0);
  trio->backward_input(in.params, in.dy, &saved, &work);
  count = counter.take();
  EXPECT_EQ(count.over_features, products) << "input products in B";
  EXPECT_EQ(count.over_tokens, 0) << "weight products in B";
  trio->backward_weight(&work, grads);
  count = counter.take();
  EXPECT_EQ(count.over_features, 0) << "input products in W";
  EXPECT_EQ(count.over_tokens, products) << "weight products in W";
}

// A block has seven linear layers (q, k, v, o, gate, up, down), the head one, the embedding none.
TEST(Split, InputAndWeightProductsAreApart) {
  for (const char* compute : {"fp32", "bf16"}) {
    expect_split(kBlock, 7, compute);
    expect_split(kHead, 1, compute);
    expect_split(kEmbedding, 0, compute);
  }
}

TEST(MakeUnit, RefusesWhatIsNotOfTheModel) {
  const auto settings = settings_of({});
  EXPECT_THROW(make_unit(settings, -1, {}), ExecutionError);
  EXPECT_THROW(make_unit(settings, 3, {}), ExecutionError);
  EXPECT_THROW(make_unit(settings, kBlock, {.tp = 2}), ExecutionError);
}

TEST(Embedding, ATokenOutsideTheVocabularyIsNamed) {
  const Shape shape;
  auto in = inputs_of(shape, kEmbedding);
  in.batch.tokens.view(-1).narrow(0, 3, 1).fill_(257);
  const auto trio = make_unit(settings_of(shape), kEmbedding, {});
  try {
    trio->forward(in.params, {}, in.batch, nullptr, nullptr);
    FAIL();
  } catch (const ExecutionError& e) {
    EXPECT_NE(std::string(e.what()).find("token id 257 at token 3"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace fem::exec::test

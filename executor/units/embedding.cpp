#include <cstring>

#include "executor/error.hpp"
#include "executor/units/formats.hpp"
#include "executor/units/llama_units.hpp"
#include "executor/units/loops.hpp"

namespace fem::exec {
namespace {

// Positions in the lists of ir/units.def.
namespace slot {
enum { tokens };
}
namespace work_slot {
enum { tokens, grad_output };
}

void check_tokens(const at::Tensor& tokens, const ir::UnitDims& dims) {
  FEM_CHECK(tokens.scalar_type() == at::kLong && tokens.numel() == dims.tokens,
            "a microbatch holds " + std::to_string(tokens.numel()) + " tokens, the plan says " +
                std::to_string(dims.tokens) + " int64");
  FEM_CHECK(tokens.is_contiguous(), "the tokens of a microbatch are not contiguous");
  const std::span ids(in<std::int64_t>(tokens), static_cast<std::size_t>(tokens.numel()));
  for (std::size_t t = 0; t < ids.size(); ++t)
    FEM_CHECK(ids[t] >= 0 && ids[t] < dims.vocab,
              "token id " + std::to_string(ids[t]) + " at token " + std::to_string(t) +
                  " of the microbatch is not below the vocabulary of " + std::to_string(dims.vocab));
}

void copy_rows(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& y) {
  const auto row = static_cast<std::size_t>(weight.size(1)) * weight.itemsize();
  const auto* ids = in<std::int64_t>(tokens);
  for (std::int64_t t = 0; t < tokens.numel(); ++t)
    std::memcpy(out<std::byte>(y) + static_cast<std::size_t>(t) * row,
                in<std::byte>(weight) + static_cast<std::size_t>(ids[t]) * row, row);
}

template <class T>
void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& grad, const Dropout& dropout) {
  const auto hidden = dy.size(1);
  const auto* ids = in<std::int64_t>(tokens);
  for (std::int64_t t = 0; t < tokens.numel(); ++t) {
    float* row = out<float>(grad) + ids[t] * hidden;
    if (dropout.active()) {
      dropout.add_row(row, in<T>(dy) + t * hidden, t * hidden, hidden);
    } else {
      loops::add(row, in<T>(dy) + t * hidden, hidden);
    }
  }
}

}  // namespace

void record_embedding(const Recording& r) {
  const auto d = r.memory.dims();
  const auto weight = r.params[0], grad = r.grads[0];
  const auto tokens = r.memory.saved(slot::tokens, {d.tokens});
  for (auto* sequence : {&r.phases.forward, &r.phases.recompute})
    sequence->add([d, tokens, call = &r.call] {
      over_memory(tokens, [&] {
        check_tokens(call->batch->tokens, d);
        std::memcpy(out<std::int64_t>(tokens), in<std::int64_t>(call->batch->tokens), tokens.nbytes());
      });
    });
  const Dropout dropout = make_dropout(r, DropoutPlace::embedding);
  r.phases.forward.add([tokens, weight, y = r.memory.y(), dropout] {
    over_memory(y, [&] {
      copy_rows(tokens, weight, y);
      dropout.apply(y, y);
    });
  });

  const auto kept = r.memory.work(work_slot::tokens, {d.tokens});
  const auto dy = r.memory.work(work_slot::grad_output, {d.tokens, d.hidden});
  by_format(r.memory.compute(), [&]<class T>(T*) {
    r.phases.backward_weight.add([kept, dy, grad, dropout] {
      over_memory(grad, [&] { add_rows<T>(kept, dy, grad, dropout); });
    });
  });
}

}  // namespace fem::exec

#include <cstring>

#include "executor/error.hpp"
#include "executor/units/cross_entropy.hpp"
#include "executor/units/formats.hpp"
#include "executor/units/llama_units.hpp"
#include "executor/units/rms_norm.hpp"

namespace fem::exec {
namespace {

// Positions in the lists of ir/units.def.
namespace param {
enum { norm, weight };
}
namespace slot {
enum { input, rstd, logits, lse, targets };
}
namespace work_slot {
enum { normed, grad_logits, grad_norm };
}

void take_targets(const at::Tensor& given, const at::Tensor& targets) {
  FEM_CHECK(given.scalar_type() == at::kLong && given.numel() == targets.numel(),
            "a microbatch holds " + std::to_string(given.numel()) + " targets, the plan says " +
                std::to_string(targets.numel()) + " int64");
  FEM_CHECK(given.is_contiguous(), "the targets of a microbatch are not contiguous");
  std::memcpy(out<std::int64_t>(targets), in<std::int64_t>(given), targets.nbytes());
}

}  // namespace

void record_head(const Recording& r) {
  const auto d = r.memory.dims();
  const auto x = r.memory.saved(slot::input, {d.tokens, d.hidden});
  const auto rstd = r.memory.saved(slot::rstd, {d.tokens});
  const auto& norm = r.params[param::norm];
  const auto& weight = r.params[param::weight];
  const CrossEntropyTensors loss{r.memory.saved(slot::logits, {d.tokens, d.vocab}),
                                 r.memory.saved(slot::targets, {d.tokens}), r.memory.saved(slot::lse, {d.tokens}),
                                 ir::cross_entropy_rows(d)};
  for (auto* s : {&r.phases.forward, &r.phases.recompute}) {
    s->add([call = &r.call, targets = loss.targets] {
      over_memory(targets, [&] { take_targets(call->batch->targets, targets); });
    });
    rms_norm_statistics(*s, x, r.settings.model.norm_eps, rstd);
    {
      const auto frame = s->frame();
      const auto normed = s->scratch({d.tokens, d.hidden}, r.memory.compute());
      rms_norm_apply(*s, x, rstd, norm, normed);
      r.linear.forward(*s, normed, weight, loss.logits);
    }
    cross_entropy_forward(*s, loss, &r.call.loss);
  }

  auto& b = r.phases.backward_input;
  const auto normed = r.memory.work(work_slot::normed, {d.tokens, d.hidden});
  const auto dlogits = r.memory.work(work_slot::grad_logits, {d.tokens, d.vocab});
  const auto dnorm = r.memory.work(work_slot::grad_norm, {d.hidden});
  cross_entropy_backward(b, loss, r.call.context);
  const auto frame = b.frame();
  const auto sum = b.scratch({d.tokens, d.hidden}, at::kFloat);
  r.linear.backward_input_sum(b, {{dlogits, weight}}, sum);
  rms_norm_backward(b, sum, x, rstd, norm, /*residual=*/{}, {normed, dnorm, r.memory.dx()});

  auto& w = r.phases.backward_weight;
  w.add([dw = r.grads[param::norm], dnorm]() mutable { dw.add_(dnorm); });
  r.linear.backward_weight(w, r.grads[param::weight], dlogits, normed);
}

}  // namespace fem::exec

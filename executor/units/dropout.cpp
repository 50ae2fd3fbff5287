#include "executor/units/dropout.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/error.hpp"
#include "executor/units/formats.hpp"
#include "executor/units/philox.hpp"

namespace fem::exec {
namespace {

using Count = std::int64_t;

// Keeps the numbers apart from those of the initial weights, which have the same key otherwise.
constexpr std::uint32_t kDomain = 0x64726f70;  // "drop"
constexpr Count kWords = 256;                  // made at a time

std::uint32_t threshold(double rate) {
  FEM_CHECK(rate >= 0 && rate < 1, "dropout of " + std::to_string(rate) + " is not at least 0 and below 1");
  return static_cast<std::uint32_t>(
      std::min(std::round(rate * 0x1p32), double{std::numeric_limits<std::uint32_t>::max()}));
}

}  // namespace

Dropout::Dropout(const DropoutSite& site, const CallContext& context)
    : site_(site),
      threshold_(threshold(site.rate)),
      scale_(static_cast<float>(1 / (1 - site.rate))),
      context_(&context) {}

// Calls use(first, elements, words) for pieces of [first, first + elements), a word for each element. Element e of the
// global batch has word e mod 4 of block e / 4.
template <class Use>
void Dropout::each(Count first, Count elements, Use use) const {
  const PhiloxKey key{static_cast<std::uint32_t>(site_.seed), static_cast<std::uint32_t>(site_.seed >> 32) ^ kDomain};
  const auto step = static_cast<std::uint32_t>(context_->step);
  const Count begin = context_->sample * site_.sample_elements + first;
  std::uint32_t words[kWords];
  for (Count done = 0; done < elements;) {
    const Count block = (begin + done) / 4, skip = (begin + done) % 4;
    const Count piece = std::min(elements - done, kWords - skip);
    for (Count b = 0; 4 * b < skip + piece; ++b) {
      const auto number = static_cast<std::uint64_t>(block + b);
      const PhiloxCounter random = philox(
          {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), step, site_.stream}, key);
      std::copy(random.begin(), random.end(), words + 4 * b);
    }
    use(done, piece, words + skip);
    done += piece;
  }
}

void Dropout::add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& y) const {
  const auto run = [&]<class T, class X>(T* to, const T* base, const X* from) {
    each(0, y.numel(), [&](Count first, Count elements, const std::uint32_t* words) {
      for (Count i = 0; i < elements; ++i) {
        const float kept = keeps(words[i]) ? static_cast<float>(from[first + i]) * scale_ : 0.0f;
        to[first + i] = static_cast<T>(static_cast<float>(base[first + i]) + kept);
      }
    });
  };
  over_memory(y, [&] {
    by_format(y.scalar_type(), [&]<class T>(T*) {
      if (x.scalar_type() == at::kFloat) {
        run(out<T>(y), in<T>(residual), in<float>(x));
      } else {
        run(out<T>(y), in<T>(residual), in<T>(x));
      }
    });
  });
}

void Dropout::apply(const at::Tensor& x, const at::Tensor& y) const {
  if (!active()) {
    if (!y.is_same(x)) y.copy_(x);
    return;
  }
  over_memory(y, [&] {
    by_format(y.scalar_type(), [&]<class T>(T*) {
      const T* from = in<T>(x);
      T* to = out<T>(y);
      each(0, y.numel(), [&](Count first, Count elements, const std::uint32_t* words) {
        for (Count i = first; i < first + elements; ++i)
          to[i] = keeps(words[i - first]) ? static_cast<T>(static_cast<float>(from[i]) * scale_) : T(0);
      });
    });
  });
}

template <class T>
void Dropout::add_row(float* sum, const T* x, Count first, Count elements) const {
  each(first, elements, [&](Count begin, Count count, const std::uint32_t* words) {
    for (Count i = 0; i < count; ++i)
      if (keeps(words[i])) sum[begin + i] += static_cast<float>(x[begin + i]) * scale_;
  });
}

template void Dropout::add_row(float*, const float*, Count, Count) const;
template void Dropout::add_row(float*, const c10::BFloat16*, Count, Count) const;
template void Dropout::add_row(float*, const c10::Half*, Count, Count) const;

}  // namespace fem::exec

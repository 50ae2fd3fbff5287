#include "executor/units/loops.hpp"

#include <algorithm>
#include <cmath>

namespace fem::exec::loops {

void inverse_rms(float* norm, Count rows, Count columns, float eps) {
  const auto n = static_cast<float>(columns);
  for (Count r = 0; r < rows; ++r) norm[r] = 1.0f / std::sqrt(norm[r] * norm[r] / n + eps);
}

template <class T>
void scale_rows(const T* __restrict x, const float* rstd, const T* __restrict w, T* __restrict y, Count rows,
                Count columns) {
  for (Count r = 0; r < rows; ++r, x += columns, y += columns) {
    const float scale = rstd[r];
    for (Count c = 0; c < columns; ++c)
      y[c] = static_cast<T>(static_cast<float>(x[c]) * scale * static_cast<float>(w[c]));
  }
}

template <class T>
void norm_products(const float* __restrict dy, const T* __restrict x, const float* rstd, const T* __restrict w,
                   T* __restrict y, float* __restrict product, Count rows, Count columns) {
  for (Count r = 0; r < rows; ++r, dy += columns, x += columns, y += columns, product += columns) {
    const float scale = rstd[r];
    for (Count c = 0; c < columns; ++c) {
      const float xhat = static_cast<float>(x[c]) * scale;
      y[c] = static_cast<T>(xhat * static_cast<float>(w[c]));
      product[c] = dy[c] * xhat;
    }
  }
}

template <class T>
void scale_columns(float* __restrict product, const T* __restrict w, Count rows, Count columns) {
  for (Count r = 0; r < rows; ++r, product += columns)
    for (Count c = 0; c < columns; ++c) product[c] *= static_cast<float>(w[c]);
}

template <class T>
void norm_gradient(const float* __restrict dy, const T* __restrict x, const float* rstd, const T* __restrict w,
                   const float* sum, const T* residual, T* dx, Count rows, Count columns) {
  const auto n = static_cast<float>(columns);
  for (Count r = 0; r < rows; ++r, dy += columns, x += columns, dx += columns) {
    const float scale = rstd[r], mean = sum[r] / n;
    const auto gradient = [&](Count c) {
      const float xhat = static_cast<float>(x[c]) * scale;
      return (dy[c] * static_cast<float>(w[c]) - xhat * mean) * scale;
    };
    if (residual) {
#pragma GCC ivdep  // at most the same element is read and written
      for (Count c = 0; c < columns; ++c) dx[c] = static_cast<T>(gradient(c) + static_cast<float>(residual[c]));
      residual += columns;
    } else {
      for (Count c = 0; c < columns; ++c) dx[c] = static_cast<T>(gradient(c));
    }
  }
}

template <class T>
void rotate(T* x, const float* cos, const float* sin, Count positions, Count heads, Count half) {
  for (Count p = 0; p < positions; ++p, cos += half, sin += half)
    for (Count h = 0; h < heads; ++h, x += 2 * half) {
      T* __restrict first = x;
      T* __restrict second = x + half;
      for (Count i = 0; i < half; ++i) {
        const auto a = static_cast<float>(first[i]), b = static_cast<float>(second[i]);
        first[i] = static_cast<T>(a * cos[i] - b * sin[i]);
        second[i] = static_cast<T>(b * cos[i] + a * sin[i]);
      }
    }
}

template <class T>
void add(float* __restrict sum, const T* __restrict x, Count elements) {
  for (Count i = 0; i < elements; ++i) sum[i] += static_cast<float>(x[i]);
}

void scale(float* x, float factor, Count elements) {
  for (Count i = 0; i < elements; ++i) x[i] *= factor;
}

void row_maxima(const float* x, float* largest, Count rows, Count columns) {
  constexpr Count kLanes = 16;  // independent maxima, which the compiler keeps in vectors
  for (Count r = 0; r < rows; ++r, x += columns) {
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, x[0]);
    Count c = 0;
    for (; c + kLanes <= columns; c += kLanes)
      for (Count i = 0; i < kLanes; ++i) lanes[i] = std::max(lanes[i], x[c + i]);
    float most = *std::max_element(lanes, lanes + kLanes);
    for (; c < columns; ++c) most = std::max(most, x[c]);
    largest[r] = most;
  }
}

void subtract_rows(const float* x, const float* c, float* y, Count rows, Count columns) {
  for (Count r = 0; r < rows; ++r, x += columns, y += columns) {
    const float value = c[r];
#pragma GCC ivdep  // at most the same element is read and written
    for (Count i = 0; i < columns; ++i) y[i] = x[i] - value;
  }
}

#define FEM_FOR_FORMAT(T)                                                                                          \
  template void scale_rows(const T*, const float*, const T*, T*, Count, Count);                                    \
  template void norm_products(const float*, const T*, const float*, const T*, T*, float*, Count, Count);           \
  template void scale_columns(float*, const T*, Count, Count);                                                     \
  template void norm_gradient(const float*, const T*, const float*, const T*, const float*, const T*, T*, Count,   \
                              Count);                                                                              \
  template void rotate(T*, const float*, const float*, Count, Count, Count);                                       \
  template void add(float*, const T*, Count);
FEM_FOR_FORMAT(float)
FEM_FOR_FORMAT(c10::BFloat16)
FEM_FOR_FORMAT(c10::Half)
#undef FEM_FOR_FORMAT

}  // namespace fem::exec::loops

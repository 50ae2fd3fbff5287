// Element-wise loops over contiguous rows, where LibTorch's operators would take several passes or allocate. Each
// operation rounds by itself, to fp32, in the order of the formulas here; T is float, c10::BFloat16 or
// c10::Half.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace fem::exec::loops {

using Count = std::int64_t;

// Norms of rows of `columns` elements to 1 / sqrt(norm^2 / columns + eps), in place.
void inverse_rms(float* norm, Count rows, Count columns, float eps);

// y = (x rstd) w, rounded once to T.
template <class T>
void scale_rows(const T* x, const float* rstd, const T* w, T* y, Count rows, Count columns);

// With xhat = x rstd: y = xhat w rounded to T, and product = dy xhat.
template <class T>
void norm_products(const float* dy, const T* x, const float* rstd, const T* w, T* y, float* product, Count rows,
                   Count columns);

// product = product w.
template <class T>
void scale_columns(float* product, const T* w, Count rows, Count columns);

// dx = (dy w - xhat (sum / columns)) rstd + residual, rounded once to T; residual nullptr: nothing is added. dx may be
// the residual's memory.
template <class T>
void norm_gradient(const float* dy, const T* x, const float* rstd, const T* w, const float* sum, const T* residual,
                   T* dx, Count rows, Count columns);

// Rotates x [positions, heads, 2 half] in place: (a, b) -> (a cos - b sin, b cos + a sin), with a of the first and b of
// the second half of a head; cos and sin [positions, half].
template <class T>
void rotate(T* x, const float* cos, const float* sin, Count positions, Count heads, Count half);

// sum += x.
template <class T>
void add(float* sum, const T* x, Count elements);

// x = x factor.
void scale(float* x, float factor, Count elements);

// Largest element of each row.
void row_maxima(const float* x, float* largest, Count rows, Count columns);

// y = x - c, c one value for each row; x may be y.
void subtract_rows(const float* x, const float* c, float* y, Count rows, Count columns);

}  // namespace fem::exec::loops

// What is done to one row at a time: norms, functions of its values, and the forms in which linears
// read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "pool.h"
#include "rows.h"
#include "simd.h"

namespace octavo {

// fn(row) for each row, a few at a time: one is little work.
template <class F>
void each_row(Team& team, int64_t rows, F&& fn) {
  team.each(rows, std::max<int64_t>(1, rows / (team.threads() * 4)), fn);
}

// to[i] = value(i, the lanes that count) for i = 0, W, ... and lanes up to `n` in all.
template <class F>
OCTAVO_INLINE void store_each(float* to, int64_t n, F value) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(to + i, value(i, W));
  if (i == n) return;
  const F32 rest = value(i, n - i);
  std::memcpy(to + i, &rest, (n - i) * sizeof(float));
}

// RMSNorm: x / sqrt(mean(x^2) + eps) (Zhang and Sennrich, 2019). LayerNorm: the same of x - mean(x)
// (Ba et al., 2016).
enum class NormKind { rms, layer };

// y = norm(x) * weight + bias, or += where `add`, all [n]; weight and bias may be null. y may be x.
void norm(NormKind kind, const float* x, const float* weight, const float* bias, int64_t n,
          float eps, bool add, float* y);

// Row `row` of `to` := values [to.width], in its form. Not for Form::f32, which has no other.
void to_form(const Rows& to, int64_t row, const float* values);

// Row `row` of `to` := row `at` of `from`, which is in the same form and as wide.
void copy_row(const Rows& to, int64_t row, const Rows& from, int64_t at);

// Bytes of all arrays of `rows` rows in one form.
int64_t form_bytes(Form form, int64_t rows, int64_t width);

// Rows of `width` values in one form, their arrays cut from `memory` of form_bytes() bytes.
Rows cut_rows(Form form, int64_t rows, int64_t width, uint8_t* memory);

}  // namespace octavo

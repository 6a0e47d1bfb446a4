#include "row_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace octavo {
namespace {

constexpr float kLeast = 1e-30f;  // a group with less is zero: its inverse scale must be finite
constexpr int64_t HALF = BLOCK / 2;
constexpr int kFactors = 16;  // q times factor times code must stay exact in fp32

OCTAVO_INLINE void store_part(float* to, F32 v, int64_t count) {
  if (count >= W) [[likely]]
    store(to, v);
  else
    for (int64_t i = 0; i < count; i++) to[i] = v[i];
}

// The largest |x| of a group. NaN where one is no finite number; 0 where 1 / largest is not.
// Bits are ordered as the sizes that they stand for are, NaN above them all.
float largest_size(const float* x, int64_t n) {
  I32 most{};
  for (int64_t i = 0; i < n; i += W) {
    const I32 size = (I32)abs(load_part(x + i, n - i));
    most = most > size ? most : size;
  }
  const int32_t bits = largest(most);
  const float found = std::bit_cast<float>(bits);
  return bits >= 0x7f800000 ? NAN : found < kLeast ? 0.f : found;
}

// q = the nearest integers to x * inverse, [padded]; returns their sum.
int32_t quantise(const float* x, int64_t n, int64_t padded, float inverse, int8_t* q) {
  I32 all{};
  for (int64_t i = 0; i < padded; i += W) {
    const I32 nearest = to_int(load_part(x + i, n > i ? n - i : 0) * inverse);
    store_bytes(q + i, nearest);
    all += nearest;
  }
  return sum(all);
}

void to_bf16(const float* x, int64_t n, int64_t padded, uint16_t* to) {
  for (int64_t i = 0; i < padded; i += W)
    store_bf16(to + i, load_part(x + i, n > i ? n - i : 0));
}

// A block has one scale; a half whose values are smaller counts less, from a sixteenth on.
void to_q8(const Rows& to, int64_t row, int64_t block, const float* x) {
  const int64_t at = row * to.blocks() + block;
  float most[2];
  int64_t count[2];
  for (int h = 0; h < 2; h++) {
    count[h] = std::clamp<int64_t>(to.width - block * BLOCK - h * HALF, 0, HALF);
    most[h] = largest_size(x + h * HALF, count[h]);
  }
  const float both = most[0] + most[1];
  const bool sound = both > 0.f;  // else it is 0 or NaN, and so are all products with the block
  const float larger = sound ? std::max(most[0], most[1]) : 1.f;
  const float share = kFactors / larger;
  int32_t sums[2];
  for (int h = 0; h < 2; h++) {
    const int shared = sound ? static_cast<int>(std::ceil(most[h] * share)) : 1;
    const int32_t factor = std::clamp(shared, 1, kFactors);
    sums[h] = factor * quantise(x + h * HALF, sound ? count[h] : 0, HALF, 127.f * share / factor,
                                to.q8 + at * BLOCK + h * HALF);
    to.factors[2 * at + h] = factor * 0x10001;
  }
  to.scales[at] = sound ? larger * (1.f / (kFactors * 127)) : both;
  to.sums[at] = (sums[0] & 0xffff) | sums[1] << 16;
}

// One scale for the row.
void to_q8_row(const Rows& to, int64_t row, const float* values) {
  const float most = largest_size(values, to.width);
  const bool sound = most > 0.f;
  to.scales[row] = most / 127.f;
  to.sums[row] = quantise(values, sound ? to.width : 0, to.padded(), sound ? 127.f / most : 0.f,
                          to.q8 + row * to.padded());
}

}  // namespace

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* y) {
  F32 squares{};
  for (int64_t i = 0; i < n; i += W) {
    const F32 v = load_part(x + i, n - i);
    squares = fma(v, v, squares);
  }
  const F32 scale = splat(1.f / std::sqrt(sum(squares) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += W)
    store_part(y + i, load_part(x + i, n - i) * scale * load_part(weight + i, n - i), n - i);
}

void to_form(const Rows& to, int64_t row, const float* values) {
  switch (to.form) {
    case Form::f32:
      break;
    case Form::bf16:
      to_bf16(values, to.width, to.padded(), to.bf16 + row * to.padded());
      break;
    case Form::q8:
      for (int64_t b = 0; b < to.blocks(); b++) to_q8(to, row, b, values + b * BLOCK);
      break;
    case Form::q8_row:
      to_q8_row(to, row, values);
      break;
  }
}

int64_t form_bytes(Form form, int64_t rows, int64_t width) {
  const Rows shape{.width = width};
  switch (form) {
    case Form::f32:
      return rows * shape.padded() * 4;
    case Form::bf16:
      return rows * shape.padded() * 2;
    case Form::q8:
      return rows * (shape.padded() + shape.blocks() * 16);
    default:
      return rows * (shape.padded() + 8);
  }
}

Rows cut_rows(Form form, int64_t rows, int64_t width, uint8_t* memory) {
  Rows cut{.form = form, .width = width};
  const int64_t groups = form == Form::q8 ? cut.blocks() : 1;
  if (form == Form::f32) cut.f32 = reinterpret_cast<float*>(memory);
  if (form == Form::bf16) cut.bf16 = reinterpret_cast<uint16_t*>(memory);
  if (form == Form::q8 || form == Form::q8_row) {
    cut.q8 = reinterpret_cast<int8_t*>(memory);
    cut.scales = reinterpret_cast<float*>(memory + rows * cut.padded());
    cut.sums = reinterpret_cast<int32_t*>(cut.scales + rows * groups);
    cut.factors = cut.sums + rows * groups;
  }
  return cut;
}

}  // namespace octavo

#include "row_ops.h"

#include <cmath>

namespace octavo {
namespace {

// The first `count` lanes from memory, zeros behind.
OCTAVO_INLINE F32 load_part(const float* from, int64_t count) {
  if (count >= W) return load(from);
  F32 v{};
  std::memcpy(&v, from, count * sizeof(float));
  return v;
}

OCTAVO_INLINE void store_part(float* to, F32 v, int64_t count) {
  std::memcpy(to, &v, (count < W ? count : W) * sizeof(float));
}

float largest_size(const float* x, int64_t n) {
  F32 most{};
  bool whole = true;
  for (int64_t i = 0; i < n; i += W) {
    const F32 size = abs(load_part(x + i, n - i));
    most = max(most, size);
    whole &= sum(size - size) == 0.f;
  }
  return whole ? largest(most) : NAN;  // max() alone would lose a NaN
}

// q = the nearest integers to x / scale, [padded]; returns their sum.
int32_t quantise(const float* x, int64_t n, int64_t padded, float inverse, int8_t* q) {
  I32 total{};
  for (int64_t i = 0; i < padded; i += W) {
    const I32 rounded = to_int(load_part(x + i, n > i ? n - i : 0) * inverse);
    total += rounded;
    for (int lane = 0; lane < W; lane++) q[i + lane] = static_cast<int8_t>(rounded[lane]);
  }
  int32_t all = 0;
  for (int lane = 0; lane < W; lane++) all += total[lane];
  return all;
}

// One scale for n values, padded to `padded`. A value that is no number makes the scale NaN.
// sums[i] is of part i of q, of so many equal ones.
void quantise_group(const float* x, int64_t n, int64_t padded, int8_t* q, float* scale,
                    int64_t parts, int32_t* sums) {
  const float most = largest_size(x, n);
  const bool sound = most > 0.f && most <= 3.4e38f;
  *scale = most == 0.f || sound ? most / 127.f : NAN;
  const int64_t part = padded / parts;
  for (int64_t i = 0; i < padded; i += part)
    sums[i / part] = quantise(x + i, sound ? n - i : 0, part, sound ? 127.f / most : 0.f, q + i);
}

void to_bf16(const float* x, int64_t n, int64_t padded, uint16_t* to) {
  for (int64_t i = 0; i < padded; i += W)
    store_bf16(to + i, load_part(x + i, n > i ? n - i : 0));
}

void to_q8(const Rows& to, int64_t row, const float* values) {
  for (int64_t b = 0; b < to.blocks(); b++) {
    const int64_t left = to.width - b * BLOCK;
    const int64_t at = row * to.blocks() + b;
    int32_t halves[2];
    quantise_group(values + b * BLOCK, left < BLOCK ? left : BLOCK, BLOCK, to.q8 + at * BLOCK,
                   to.scales + at, 2, halves);
    to.sums[at] = (halves[0] & 0xffff) | halves[1] << 16;
  }
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
      to_q8(to, row, values);
      break;
    case Form::q8_row:
      quantise_group(values, to.width, to.padded(), to.q8 + row * to.padded(), to.scales + row, 1,
                     to.sums + row);
      break;
  }
}

int64_t form_bytes(Form form, int64_t rows, int64_t width) {
  const Rows shape{.width = width};
  const int64_t groups = form == Form::q8 ? shape.blocks() : 1;
  switch (form) {
    case Form::f32:
      return rows * shape.padded() * 4;
    case Form::bf16:
      return rows * shape.padded() * 2;
    default:
      return rows * (shape.padded() + groups * 8);
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
  }
  return cut;
}

}  // namespace octavo

#include "row_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "block_dot.h"
#include "quantise.h"

namespace octavo {
namespace {

constexpr int64_t HALF = BLOCK / 2;
constexpr float kFactors = 16.f;  // q times factor times code must stay exact in fp32

OCTAVO_INLINE U32 plus(U32 a, U32 b) { return a + b; }

void to_bf16(const float* x, int64_t n, int64_t padded, uint16_t* to) {
  for (int64_t i = 0; i < padded; i += W)
    store_bf16(to + i, load_part(x + i, n > i ? n - i : 0));
}

// As int16, in the order of a step of codes in words: of each four 0 and 2, then 1 and 3.
OCTAVO_INLINE void store_words(int16_t* to, I32 v) {
  const I32 order = (iota() & ~3) | ((iota() & 1) << 1) | ((iota() & 2) >> 1);
  typedef int16_t Words __attribute__((vector_size(2 * W)));
  const Words words = __builtin_convertvector(__builtin_shuffle(v, order), Words);
  std::memcpy(to, &words, sizeof words);
}

// Two of each, as bytes, where W inputs of both halves of a block meet: see block_dot.h.
OCTAVO_INLINE void store_meeting(int8_t* to, I32 first, I32 second) {
  typedef uint64_t Twos __attribute__((vector_size(4 * W)));
  typedef int32_t Part __attribute__((vector_size(2 * W)));
  Twos both = (Twos)((first & 0xff) | (second & 0xff) << 16);  // bytes: first, 0, second, 0
  both |= both >> 24;                                          // the next lane's go in between
  const I32 met = __builtin_shuffle((I32)both, iota() * 2);
  Part low;
  std::memcpy(&low, &met, sizeof low);
  std::memcpy(to, &low, sizeof low);
}

// W halves of blocks, lane by lane: the scale of the block, the factor of the half, and what a value
// is multiplied with before it is rounded. A block has one scale; a half whose values are smaller
// counts less, from a sixteenth on.
struct Halves {
  F32 scale, inverse;
  I32 factor;
  I32 sound;  // else the block is 0 or NaN, and so are all products with it

  explicit Halves(F32 most) {
    const F32 other = swapped(most, 1), both = most + other;
    sound = both > F32{};
    const F32 larger = sound ? max(most, other) : splat(1.f), share = kFactors / larger;
    const F32 shared = most * share, nearest = to_float(to_int(shared));
    const F32 least = max(nearest < shared ? nearest + 1.f : nearest, splat(1.f));
    const F32 parts = sound ? min(least, splat(kFactors)) : splat(1.f);
    scale = sound ? larger * (1.f / (kFactors * 127)) : both;
    inverse = sound ? 127.f * share / parts : F32{};
    factor = to_int(parts);
  }
};

constexpr int TOGETHER = W / 2;  // blocks that are made q8 at a time: a lane for each half

// `blocks` of x, at most TOGETHER; all of them are there to be read.
OCTAVO_INLINE void to_q8(const float* x, int64_t blocks, int8_t* q, Scale* scales) {
  I32 sizes[W];
#pragma GCC unroll 16
  for (int h = 0; h < W; h++) sizes[h] = sizes_of(x + h * HALF, HALF);
  const Halves halves(size_of_bits(each_combined(sizes, larger_of)));
  U32 integers[W] = {};  // what is no number is no integer either: their sum may go round
  float inverse[W];
  store(inverse, halves.inverse);
#pragma GCC unroll 8
  for (int b = 0; b < TOGETHER; b++) {
#pragma GCC unroll 2
    for (int i = 0; i < HALF; i += W) {
      I32 nearest[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) {
        const float* from = x + b * BLOCK + h * HALF + i;
        nearest[h] = to_int(load(from) * inverse[2 * b + h]);
        integers[2 * b + h] += (U32)nearest[h];
        if constexpr (!HALVES_MEET) store_bytes(q + b * BLOCK + h * HALF + i, nearest[h]);
      }
      if constexpr (HALVES_MEET) store_meeting(q + b * BLOCK + 2 * i, nearest[0], nearest[1]);
    }
  }
  const I32 sums = halves.factor * ((I32)each_combined(integers, plus) & halves.sound);
  const I32 whole = sums + swapped(sums, 1);
  const F32 whole_value = halves.scale * to_float(whole);
  const I32 pairs = (sums & 0xffff) | swapped(sums, 1) << 16;
  const I32 factors = halves.factor | swapped(halves.factor, 1) << 16;
#pragma GCC unroll 8
  for (int b = 0; b < TOGETHER; b++)
    if (b < blocks)
      scales[b] = {halves.scale[2 * b], whole_value[2 * b], whole[2 * b], pairs[2 * b],
                   factors[2 * b]};
}

void to_q8(const Rows& to, int64_t row, const float* values) {
  constexpr int64_t ALL = TOGETHER * BLOCK;
  int8_t* q = to.q8 + row * to.padded();
  Scale* scales = to.scales + row * to.blocks();
  int64_t at = 0;
  for (; at + ALL <= to.width; at += ALL, scales += TOGETHER)
    to_q8(values + at, TOGETHER, q + at, scales);
  if (at == to.width) return;
  float rest[ALL] = {};
  int8_t codes[ALL];
  std::copy_n(values + at, to.width - at, rest);
  to_q8(rest, (to.padded() - at) / BLOCK, codes, scales);
  std::copy_n(codes, to.padded() - at, q + at);
}

// The largest number that int16 rows have: a block's products with codes of 8 bits fit in int32.
constexpr float kWord = 32767.f;

void to_q16(const Rows& to, int64_t row, int64_t block, const float* x) {
  const int64_t at = row * to.blocks() + block, count = std::min(BLOCK, to.width - block * BLOCK);
  to.scales[at] = quantise(x, count, BLOCK, kWord, [&](int64_t i, I32 nearest) {
    store_words(to.q16 + at * BLOCK + i, nearest);
  });
}

// One scale for the row.
void to_q8_row(const Rows& to, int64_t row, const float* values) {
  const int64_t begin = row * to.padded();
  to.scales[row] = quantise(values, to.width, to.padded(), 127.f, [&](int64_t i, I32 nearest) {
    if constexpr (WHOLE_BYTES) store_bytes(to.q8 + begin + i, nearest);
    else store_words(to.q16 + begin + i, nearest);
  });
}

}  // namespace

namespace {

// What one norm takes off every value, and then multiplies it with.
struct Normaliser {
  float mean, scale;

  Normaliser(NormKind kind, const float* x, int64_t n, float eps) {
    const auto count = static_cast<float>(n);
    F32 sums{}, squares{};
    if (kind == NormKind::layer)
      for (int64_t i = 0; i < n; i += W) sums += load_part(x + i, n - i);
    mean = sum(sums) / count;
    for (int64_t i = 0; i < n; i += W) {
      const F32 v = load_part(x + i, n - i, mean) - mean;
      squares = fma(v, v, squares);
    }
    scale = 1.f / std::sqrt(sum(squares) / count + eps);
  }
};

}  // namespace

void norm(NormKind kind, const float* x, const float* weight, const float* bias, int64_t n,
          float eps, bool add, float* y) {
  const Normaliser all(kind, x, n, eps);
  store_each(y, n, [&](int64_t i, int64_t count) {
    F32 v = (load_part(x + i, count) - all.mean) * all.scale;
    if (weight != nullptr) v *= load_part(weight + i, count);
    if (bias != nullptr) v += load_part(bias + i, count);
    return add ? load_part(y + i, count) + v : v;
  });
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
    case Form::q16:
      for (int64_t b = 0; b < to.blocks(); b++) to_q16(to, row, b, values + b * BLOCK);
      break;
    case Form::q8_row:
      to_q8_row(to, row, values);
      break;
  }
}

namespace {

// Bytes of one value.
int64_t value_size(Form form) {
  switch (form) {
    case Form::f32:
      return 4;
    case Form::bf16:
    case Form::q16:
      return 2;
    case Form::q8:
      return 1;
    default:
      return WHOLE_BYTES ? 1 : 2;
  }
}

int64_t scales_of_row(Form form, const Rows& rows) {
  if (form == Form::f32 || form == Form::bf16) return 0;
  return form == Form::q8_row ? 1 : rows.blocks();
}

}  // namespace

void copy_row(const Rows& to, int64_t row, const Rows& from, int64_t at) {
  const int64_t n = to.padded(), scales = scales_of_row(to.form, to);
  if (to.f32 != nullptr) std::copy_n(from.f32 + at * n, n, to.f32 + row * n);
  if (to.bf16 != nullptr) std::copy_n(from.bf16 + at * n, n, to.bf16 + row * n);
  if (to.q8 != nullptr) std::copy_n(from.q8 + at * n, n, to.q8 + row * n);
  if (to.q16 != nullptr) std::copy_n(from.q16 + at * n, n, to.q16 + row * n);
  if (scales > 0) std::copy_n(from.scales + at * scales, scales, to.scales + row * scales);
}

int64_t form_bytes(Form form, int64_t rows, int64_t width) {
  const Rows shape{.width = width};
  return rows * (shape.padded() * value_size(form) +
                 scales_of_row(form, shape) * static_cast<int64_t>(sizeof(Scale)));
}

Rows cut_rows(Form form, int64_t rows, int64_t width, uint8_t* memory) {
  Rows cut{.form = form, .width = width};
  const int64_t size = value_size(form);
  if (form == Form::f32) cut.f32 = reinterpret_cast<float*>(memory);
  else if (form == Form::bf16) cut.bf16 = reinterpret_cast<uint16_t*>(memory);
  else if (size == 1) cut.q8 = reinterpret_cast<int8_t*>(memory);
  else cut.q16 = reinterpret_cast<int16_t*>(memory);
  if (scales_of_row(form, cut) > 0)
    cut.scales = reinterpret_cast<Scale*>(memory + rows * cut.padded() * size);
  return cut;
}

}  // namespace octavo

// A group of values as integers that share one scale.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rows.h"
#include "simd.h"

namespace octavo {

// A group with less is zero: its inverse scale must be finite.
inline constexpr float kLeast = 1e-30f;

// Bits are ordered as the sizes that they stand for are, NaN above them all. NaN where a size is no
// finite number; 0 where 1 / size is not.
OCTAVO_INLINE F32 size_of_bits(I32 bits) {
  const F32 size = (F32)bits;
  const F32 finite = size < splat(kLeast) ? F32{} : size;
  return bits >= 0x7f800000 ? splat(NAN) : finite;
}

OCTAVO_INLINE I32 larger_of(I32 a, I32 b) { return a > b ? a : b; }

// The sizes of x[0..count), for each lane the largest, as bits.
OCTAVO_INLINE I32 sizes_of(const float* x, int64_t count) {
  I32 most{};
  for (int64_t i = 0; i < count; i += W)
    most = larger_of(most, (I32)abs(load_part(x + i, count - i)));
  return most;
}

// The largest |x| of a group.
inline float largest_size(const float* x, int64_t n) {
  return size_of_bits(splat(largest(sizes_of(x, n))))[0];
}

// The nearest integers to x * inverse, lane by lane; 0 from `count` on.
OCTAVO_INLINE I32 quantised(const float* x, int64_t count, float inverse) {
  return to_int(load_part(x, std::max<int64_t>(count, 0)) * inverse);
}

// `count` values and zeros up to `padded` as integers of at most `limit` with one scale.
template <class Store>
Scale quantise(const float* x, int64_t count, int64_t padded, float limit, Store store) {
  const float most = largest_size(x, count);
  const bool sound = most > 0.f;
  const float inverse = sound ? limit / most : 0.f;
  I32 all{};
  for (int64_t i = 0; i < padded; i += W) {
    const I32 nearest = quantised(x + i, sound ? count - i : 0, inverse);
    store(i, nearest);
    all += nearest;
  }
  return {.scale = most / limit, .whole = sum(all)};
}

}  // namespace octavo

// The largest of many floats without sorting them.
//
// The values are cut into groups (each lane of each tile is one). The k-th largest group maximum
// is reached by at least k values, so those that reach it hold the k largest: few of many, and in
// their order. All values are numbers or -inf; equals stay together.
#pragma once

#include <cstdint>

#include "simd.h"

namespace octavo {

inline constexpr int64_t TILE = 1024;  // values

inline int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }

OCTAVO_INLINE bool any(I32 mask) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)mask) != 0;
#else
  int32_t found = 0;
  for (int i = 0; i < W; i++) found |= mask[i];
  return found != 0;
#endif
}

// put(at, i) for every value that keep(value) is true of, with `at` counting them: 0, 1, ... It is
// called for others too, with the same `at` as the next one, so that nothing is to be predicted.
// `keep` takes vectors as well. Returns how many there are.
template <class Keep, class Put>
OCTAVO_INLINE int64_t gather(const float* values, int64_t n, Keep keep, Put put) {
  int64_t at = 0;
  for (int64_t i = 0; i < n; i += W) {
    if (!any(keep(load_part(values + i, n - i, 0)))) continue;
    const int64_t end = i + W < n ? i + W : n;
    for (int64_t j = i; j < end; j++) {
      put(at, j);
      at += keep(values[j]);
    }
  }
  return at;
}

// The largest value, or NaN if one is among them; groups[tiles * W] get the largest of each group,
// -inf where it is empty.
float group_maxima(const float* values, int64_t n, float* groups);

// The index of the first value equal to `largest`, which is what group_maxima returned.
int64_t first_of(float largest, const float* values, int64_t n, const float* groups);

// A bound that at least k of the n values reach, and not many more if they lie in no special
// order; -inf where k is more than the groups can tell. Reorders `groups`.
float bound_of(int64_t k, int64_t n, float* groups);

// The k-th largest of n values, k <= n. Fills `scratch` [n].
float nth_largest(int64_t k, const float* values, int64_t n, float* scratch);

// The largest cut such that the values from it up sum to `mass` or more, of n values in [0, 1]
// that sum to `total`; the smallest one above 0 if rounding keeps them from it. Fills `scratch`
// [n].
//
// Radix selection (Alabi et al., "Fast k-selection algorithms for graphics processing units", JEA
// 2012): the bits of positive floats are in their order, so each round finds one digit of the cut
// and keeps the values that have it; but here they are added up instead of counted.
float mass_cut(const float* values, int64_t n, double total, double mass, float* scratch);

}  // namespace octavo

// Integer dot products of unsigned weight codes with signed activations, 4 inputs a step, as each
// instruction set does them.
//
// A run of steps adds up in a RunSum; close() turns that into int32, each half of the block times
// its factor. Where the machine adds up in 16 bits, a run must end before it can overflow, and the
// halves of the block meet in each step: its first two inputs are of the first half, the others of
// the second, so that one instruction multiplies both with their factors.
#pragma once

#include "rows.h"
#include "simd.h"

namespace octavo {

typedef uint16_t U16 __attribute__((vector_size(4 * W)));

// In each int32 lane, the sum of the products of its two int16.
OCTAVO_INLINE I32 dot_pairs(I32 a, I32 b) {
#if defined(__AVX512BW__)
  return (I32)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (I32)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  return ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}

OCTAVO_INLINE I32 add_pairs(I32 sum, I32 codes, I32 x) {
  return computed(sum + dot_pairs(codes, x));
}

#if defined(__AVX512VNNI__)

inline constexpr bool HALVES_MEET = false;
using RunSum = I32;

// Steps of a run for codes of so many bits: half a block.
constexpr int run_steps(int) { return 4; }

OCTAVO_INLINE RunSum add_products(RunSum sum, I32 codes, I32 x) {
  return (I32)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)x);
}

// `factors`: an int16 for each half in each int32.
OCTAVO_INLINE I32 close(RunSum sum, I32 factors, int half) {
  return sum * (half == 0 ? factors << 16 >> 16 : factors >> 16);
}

#else

inline constexpr bool HALVES_MEET = true;
using RunSum = I16;

// So that 2 * steps * (2^bits - 1) * 127 < 2^15.
constexpr int run_steps(int bits) { return bits == 6 ? 2 : bits == 5 ? 4 : 8; }

OCTAVO_INLINE RunSum add_products(RunSum sum, I32 codes, I32 x) {
#if defined(__AVX512BW__)
  return computed(sum + (I16)_mm512_maddubs_epi16((__m512i)codes, (__m512i)x));
#elif defined(__AVX2__)
  return computed(sum + (I16)_mm256_maddubs_epi16((__m256i)codes, (__m256i)x));
#else
  sum += ((I16)codes & int16_t{0xff}) * ((I16)((U16)x << 8) >> 8);
  return sum + (I16)((U16)codes >> 8) * ((I16)x >> 8);
#endif
}

OCTAVO_INLINE I32 close(RunSum sum, I32 factors, int) { return dot_pairs((I32)sum, factors); }

#endif

}  // namespace octavo

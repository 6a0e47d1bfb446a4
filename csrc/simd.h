// Vectors of W fp32 lanes, the same words for every instruction set. Built on GCC's vector
// extensions, so that most code is plain operators; intrinsics only where a rounding or an
// instruction matters. Compiled with -ffp-contract=off: an FMA is where fma() is written.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define OCTAVO_INLINE inline __attribute__((always_inline))

namespace octavo {

#if defined(__AVX2__) && !defined(__AVX512F__)
inline constexpr int W = 8;
#else
inline constexpr int W = 16;  // portable code too: the compiler splits a vector over registers
#endif

inline constexpr int PANEL = 16;             // outputs of a linear, tokens of a block: one panel
inline constexpr int VECTORS = PANEL / W;    // fp32 vectors in a panel

typedef float F32 __attribute__((vector_size(4 * W)));
typedef int32_t I32 __attribute__((vector_size(4 * W)));
typedef uint32_t U32 __attribute__((vector_size(4 * W)));
typedef int16_t I16 __attribute__((vector_size(4 * W)));    // 2 W lanes
typedef int8_t I8 __attribute__((vector_size(4 * W)));      // 4 W lanes
typedef uint8_t U8 __attribute__((vector_size(4 * W)));     // 4 W lanes
typedef uint16_t U16Half __attribute__((vector_size(2 * W)));  // W lanes

template <class V, class T>
OCTAVO_INLINE V load_as(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

OCTAVO_INLINE F32 load(const float* from) { return load_as<F32>(from); }
OCTAVO_INLINE void store(float* to, F32 v) { std::memcpy(to, &v, sizeof v); }
OCTAVO_INLINE F32 splat(float x) { return x - F32{}; }  // 0 + x is not x where x is -0: an addition
OCTAVO_INLINE I32 splat(int32_t x) { return I32{} + x; }
OCTAVO_INLINE F32 min(F32 a, F32 b) { return a < b ? a : b; }
OCTAVO_INLINE F32 max(F32 a, F32 b) { return a > b ? a : b; }
OCTAVO_INLINE F32 abs(F32 a) { return (F32)((U32)a & 0x7fffffffu); }
OCTAVO_INLINE F32 to_float(I32 a) { return __builtin_convertvector(a, F32); }

// The first `count` lanes from memory, `rest` behind them.
OCTAVO_INLINE F32 load_part(const float* from, int64_t count, float rest = 0.f) {
  if (count >= W) [[likely]]
    return load(from);
  F32 v = splat(rest);
  for (int64_t i = 0; i < count; i++) v[i] = from[i];
  return v;
}

// The first `count` lanes to memory.
OCTAVO_INLINE void store_part(float* to, F32 v, int64_t count) {
  if (count >= W) [[likely]]
    store(to, v);
  else
    for (int64_t i = 0; i < count; i++) to[i] = v[i];
}

// As store(), past the caches: for what is not read again soon. `to` is aligned to a whole vector.
// Other threads may read it after streamed().
OCTAVO_INLINE void stream(float* to, F32 v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, v);
#elif defined(__AVX2__)
  _mm256_stream_ps(to, v);
#else
  store(to, v);
#endif
}

OCTAVO_INLINE void streamed() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

// Lane i is i.
OCTAVO_INLINE I32 iota() {
  I32 v;
  for (int i = 0; i < W; i++) v[i] = i;
  return v;
}

// Have `v` computed here, in a register: GCC would put off many sums until later, and keep what they
// need in memory.
template <class V>
OCTAVO_INLINE V computed(V v) {
#if defined(__AVX2__)
  asm("" : "+v"(v));
#endif
  return v;
}

// a * b + c in one rounding where the machine has it.
OCTAVO_INLINE F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

// Nearest integer, ties to even; |a| < 2^22.
OCTAVO_INLINE I32 to_int(F32 a) {
#if defined(__AVX512F__)
  return (I32)_mm512_cvtps_epi32(a);
#elif defined(__AVX2__)
  return (I32)_mm256_cvtps_epi32(a);
#else
  const float shift = 12582912.f;  // 1.5 * 2^23: what is added here is rounded away
  return __builtin_convertvector((a + shift) - shift, I32);
#endif
}

// Lanes i and i ^ distance trade places.
template <class V>
OCTAVO_INLINE V swapped(V v, int distance) {
  return __builtin_shuffle(v, iota() ^ distance);
}

// Over all lanes, in a fixed tree.
template <class V>
OCTAVO_INLINE auto sum(V v) {
#pragma GCC unroll 4
  for (int distance = W / 2; distance > 0; distance /= 2) v += swapped(v, distance);
  return v[0];
}

template <class V>
OCTAVO_INLINE auto largest(V v) {
#pragma GCC unroll 4
  for (int distance = W / 2; distance > 0; distance /= 2) {
    const V other = swapped(v, distance);
    v = v > other ? v : other;
  }
  return v[0];
}

// In lane j, all lanes of v[j] combined.
template <class V, class Combine>
OCTAVO_INLINE V each_combined(V (&v)[W], Combine combine) {
#pragma GCC unroll 4
  for (int distance = W / 2; distance > 0; distance /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < distance; i++) {
      const I32 upper = (iota() & distance) != 0;
      const V a = v[i], b = v[i + distance];
      v[i] = combine(upper ? b : a, swapped(upper ? a : b, distance));
    }
  return v[0];
}

// The low byte of each lane.
OCTAVO_INLINE void store_bytes(int8_t* to, I32 v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
  const __m256i first = _mm256_set1_epi32(0x0c080400);  // of each four lanes: their low bytes
  const __m256i packed = _mm256_shuffle_epi8((__m256i)v, first);
  const __m128i low = _mm256_castsi256_si128(packed), high = _mm256_extracti128_si256(packed, 1);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(low, high));
#else
  typedef int8_t Bytes __attribute__((vector_size(W)));
  const Bytes bytes = __builtin_convertvector(v, Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
#endif
}

OCTAVO_INLINE F32 load_int8(const int8_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  typedef int8_t Bytes __attribute__((vector_size(W)));
  return __builtin_convertvector(load_as<Bytes>(from), F32);
#endif
}

// e^a with a relative error below 2e-7; 0 below -87.3 (and for -inf), no overflow up to 88. NaN
// stays, as max() gives its second argument then.
// Range reduction by ln 2 in two parts, then a polynomial (coefficients: Cephes expf).
OCTAVO_INLINE F32 exp(F32 a) {
  const F32 bounded = max(splat(-126.f), a);
  const I32 n = to_int(bounded * 1.44269504088896341f);
  const F32 whole = to_float(n);
  F32 r = fma(whole, splat(-0.693359375f), bounded);
  r = fma(whole, splat(2.12194440e-4f), r);
  F32 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.f;
  const F32 power = (F32)((n + 127) << 23);
  return a < splat(-87.3f) ? F32{} : p * power;
}

// ---- 16-bit floats ----

// Two bfloat16 lie in a 32-bit lane, the one of lower index in the low half.
OCTAVO_INLINE F32 low_bf16(U32 pairs) { return (F32)(pairs << 16); }
OCTAVO_INLINE F32 high_bf16(U32 pairs) { return (F32)(pairs & 0xffff0000u); }

OCTAVO_INLINE F32 load_bf16(const uint16_t* from) {
  return (F32)(__builtin_convertvector(load_as<U16Half>(from), U32) << 16);
}

// Round to nearest even; NaN stays NaN.
OCTAVO_INLINE U32 bf16_bits(F32 v) {
  const U32 bits = (U32)v;
  const U32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (U32)(v != v) ? (bits >> 16) | 0x40u : rounded;
}

OCTAVO_INLINE void store_bf16(uint16_t* to, F32 v) {
  const U16Half half = __builtin_convertvector(bf16_bits(v), U16Half);
  std::memcpy(to, &half, sizeof half);
}

OCTAVO_INLINE F32 load_f16(const uint16_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  const U32 half = __builtin_convertvector(load_as<U16Half>(from), U32);
  const U32 size = (half & 0x7fffu) << 13;
  const F32 finite = (F32)size * 0x1p112f;  // the exponent's bias is 112 less; exact, denormals too
  const U32 special = size | 0x7f800000u;
  const U32 bits = size >= 0x0f800000u ? special : (U32)finite;
  return (F32)(bits | ((half & 0x8000u) << 16));
#endif
}

// Round to nearest even; overflow to infinity, NaN stays NaN.
OCTAVO_INLINE void store_f16(uint16_t* to, F32 v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(v, 0));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, 0));
#else
  const U32 bits = (U32)v, sign = bits & 0x80000000u, size = bits ^ sign;
  // Denormals of f16: adding 0.5 puts their bits at the bottom, rounded.
  const U32 tiny = (U32)((F32)size + 0.5f) - 0x3f000000u;
  const U32 normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
  const U32 huge = size > 0x7f800000u ? U32{} + 0x7e00u : U32{} + 0x7c00u;
  U32 half = size < 0x38800000u ? tiny : normal;
  half = size >= 0x477ff000u ? huge : half;
  const U16Half packed = __builtin_convertvector(half | (sign >> 16), U16Half);
  std::memcpy(to, &packed, sizeof packed);
#endif
}

// acc + the products of two pairs of bfloat16 in each lane.
OCTAVO_INLINE F32 dot_bf16(F32 acc, U32 a, U32 b) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
#else
  acc = fma(low_bf16(a), low_bf16(b), acc);
  return fma(high_bf16(a), high_bf16(b), acc);
#endif
}

}  // namespace octavo

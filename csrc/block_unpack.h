// One block of a packed panel in the form that the kernel multiplies: codes as bytes, scales as
// fp32. It stays in L1 while all rows pass over it.
#pragma once

#include "block_dot.h"
#include "block_layout.h"

namespace octavo {

struct alignas(64) Block {
  uint8_t codes[2 * STEPS][STEP_BYTES];  // of 8 bits: the low halves, then the high ones; or whole
  float scale[PANEL];
  float minimum[PANEL];
  int32_t half_scales[2][PANEL];  // q6_k: twice the same int16
  int32_t both_scales[PANEL];     // q6_k: of the first half and of the second, an int16 each
};

// W bytes, an int32 each.
OCTAVO_INLINE I32 widen(const uint8_t* from) {
#if defined(__AVX512F__)
  return (I32)_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#elif defined(__AVX2__)
  return (I32)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#else
  I32 v;
  for (int i = 0; i < W; i++) v[i] = from[i];
  return v;
#endif
}

template <class T, class V>
OCTAVO_INLINE void store(T* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// Bits `from`.. of each byte, moved to `to`..; the neighbours' bits are for the caller to mask.
OCTAVO_INLINE U32 move_bits(U32 v, int from, int to) {
  return to >= from ? v << (to - from) : v >> (from - to);
}

template <int BITS>
OCTAVO_INLINE void unpack_codes(const uint8_t* from, Block& block) {
  constexpr int HIGH = BITS == 8 ? 0 : BITS - 4;
  constexpr int LOW_ROWS = BITS == 8 ? 8 : 4;
  constexpr uint32_t HIGH_MASK = 0x10101010u * ((1 << HIGH) - 1);
#pragma GCC unroll 2
  for (int at = 0; at < STEP_BYTES; at += 4 * W) {
#pragma GCC unroll 8
    for (int s = 0; s < LOW_ROWS; s++) {
      const U32 both = load_as<U32>(from + s * STEP_BYTES + at);
      U32 low = both & 0x0f0f0f0fu, high = (both >> 4) & 0x0f0f0f0fu;
      if constexpr (HIGH > 0) {
        auto above = [&](int step) {
          const int bit = step * HIGH;
          const U32 plane = load_as<U32>(from + (LOW_ROWS + bit / 8) * STEP_BYTES + at);
          return move_bits(plane, bit % 8, 4) & HIGH_MASK;
        };
        low |= above(s);
        high |= above(s + 4);
      }
      if constexpr (BITS == 8 && WHOLE_BYTES) {
        store(block.codes[s] + at, both);
      } else {
        store(block.codes[s] + at, low);
        store(block.codes[s + LOW_ROWS] + at, high);
      }
    }
  }
}

// `group` begins with the d that its blocks share, `bytes` are the scales of this one.
template <Format FORMAT>
OCTAVO_INLINE void unpack_scales(const uint8_t* group, const uint8_t* bytes, Block& block) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  const auto* d = reinterpret_cast<const uint16_t*>(group);
  for (int v = 0; v < PANEL; v += W) {
    F32 scale = load_f16(d + v), minimum{};
    if constexpr (LAYOUT.minimum) minimum = load_f16(d + PANEL + v);
    if constexpr (FORMAT == Format::q6_k) {
      const I32 first = widen(bytes + v) << 24 >> 24, second = widen(bytes + PANEL + v) << 24 >> 24;
      store(block.half_scales[0] + v, twice(first));
      store(block.half_scales[1] + v, twice(second));
      store(block.both_scales + v, (first & 0xffff) | (second << 16));
    } else if constexpr (LAYOUT.byte_scales) {
      scale *= to_float(widen(bytes + v));
      minimum *= -to_float(widen(bytes + PANEL + v));
    }
    store(block.scale + v, scale);
    if constexpr (LAYOUT.minimum) store(block.minimum + v, minimum);
  }
}

// Block `index` of a panel. What lies `ahead` bytes behind it is fetched meanwhile.
template <Format FORMAT>
OCTAVO_INLINE void unpack_block(const uint8_t* panel, int64_t index, int64_t ahead, Block& block) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  const uint8_t* group = panel + index / LAYOUT.blocks * LAYOUT.group_bytes();
  const uint8_t* codes =
      group + LAYOUT.head_bytes() + index % LAYOUT.blocks * LAYOUT.block_bytes();
  for (int64_t line = 0; line < LAYOUT.block_bytes(); line += 64)
    __builtin_prefetch(codes + ahead + line);
  unpack_codes<LAYOUT.bits>(codes, block);
  if constexpr (LAYOUT.has_d) unpack_scales<FORMAT>(group, codes + LAYOUT.code_bytes(), block);
}

}  // namespace octavo

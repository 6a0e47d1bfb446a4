// One block of a packed panel in the form that the kernel multiplies: codes as bytes, scales as
// fp32. It stays in L1 while all rows pass over it.
#pragma once

#include "block_dot.h"
#include "block_layout.h"

namespace octavo {

struct alignas(64) Block {
  // By step; of 8 bits unless WHOLE_BYTES: their values as int16, [16 outputs][2] inputs, 0 and 2 of
  // a step, then 1 and 3.
  uint8_t codes[2 * STEPS][STEP_BYTES];
  float scale[PANEL];
  float minimum[PANEL];
  int32_t half_scales[PANEL];  // q6_k: of the first half and of the second, an int16 each
};

// Whether codes are kept and multiplied as int16.
constexpr bool in_words(Format format) { return block_layout(format).bits == 8 && !WHOLE_BYTES; }

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

// Codes of 8 bits, `at` bytes into each step.
OCTAVO_INLINE void unpack_bytes(const uint8_t* from, int at, Block& block) {
#pragma GCC unroll 8
  for (int s = 0; s < STEPS; s++) {
    const U32 step = load_as<U32>(from + s * STEP_BYTES + at);
    if constexpr (WHOLE_BYTES) {
      store(block.codes[s] + at, step);
    } else {
      store(block.codes[2 * s] + at, (I16)(step & 0x00ff00ffu) - int16_t{128});
      store(block.codes[2 * s + 1] + at, (I16)((step >> 8) & 0x00ff00ffu) - int16_t{128});
    }
  }
}

// table[code] for each byte, which are below 16.
OCTAVO_INLINE U32 look_up(const uint8_t* table, U32 codes) {
#if defined(__AVX512BW__)
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (U32)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), (__m512i)codes);
#elif defined(__AVX2__)
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return (U32)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), (__m256i)codes);
#else
  U8 bytes = (U8)codes;
  for (int i = 0; i < 4 * W; i++) bytes[i] = table[bytes[i]];
  return (U32)bytes;
#endif
}

// Codes of 4, 5 or 6 bits, or what they stand for. Where halves shall not meet, they are parted: the first half's steps, then
// the second's.
template <Format FORMAT>
OCTAVO_INLINE void unpack_halves(const uint8_t* from, int at, Block& block) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  constexpr int HIGH = LAYOUT.high_bits(), HALF = STEPS / 2;
  constexpr uint32_t HIGH_MASK = 0x10101010u * ((1 << HIGH) - 1);
  U32 steps[STEPS];
#pragma GCC unroll 4
  for (int s = 0; s < HALF; s++) {
    const U32 both = load_as<U32>(from + s * STEP_BYTES + at);
    steps[s] = both & 0x0f0f0f0fu;
    steps[s + HALF] = (both >> 4) & 0x0f0f0f0fu;
    if constexpr (HIGH > 0) {
      auto above = [&](int step) {
        const int bit = step * HIGH;
        const U32 plane = load_as<U32>(from + (HALF + bit / 8) * STEP_BYTES + at);
        return move_bits(plane, bit % 8, 4) & HIGH_MASK;
      };
      steps[s] |= above(s);
      steps[s + HALF] |= above(s + HALF);
    }
    if constexpr (LAYOUT.e2m1) {
      steps[s] = look_up(kE2m1, steps[s]);
      steps[s + HALF] = look_up(kE2m1, steps[s + HALF]);
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < STEPS; s += 2) {
    if constexpr (HALVES_MEET) {
      store(block.codes[s] + at, steps[s]);
      store(block.codes[s + 1] + at, steps[s + 1]);
    } else {
      store(block.codes[s / 2] + at, (steps[s] & 0xffffu) | (steps[s + 1] << 16));
      store(block.codes[s / 2 + HALF] + at, (steps[s] >> 16) | (steps[s + 1] & 0xffff0000u));
    }
  }
}

template <Format FORMAT>
OCTAVO_INLINE void unpack_codes(const uint8_t* from, Block& block) {
#pragma GCC unroll 2
  for (int at = 0; at < STEP_BYTES; at += 4 * W) {
    if constexpr (block_layout(FORMAT).bits == 8) unpack_bytes(from, at, block);
    else unpack_halves<FORMAT>(from, at, block);
  }
}

// The code of input `i`, output `lane`, less its offset.
template <Format FORMAT>
int code_at(const Block& block, int64_t i, int64_t lane) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  if constexpr (in_words(FORMAT)) {
    int16_t value;
    std::memcpy(&value, block.codes[i / 4 * 2 + i % 2] + lane * 4 + i % 4 / 2 * 2, sizeof value);
    return value;
  }
  if (HALVES_MEET) return block.codes[i % 16 / 2][lane * 4 + i / 16 * 2 + i % 2] - LAYOUT.offset;
  return block.codes[i / 4][lane * 4 + i % 4] - LAYOUT.offset;
}

// W powers of 2 by their exponents, as e8m0 has them; half of each, as codes have twice their values.
OCTAVO_INLINE F32 load_half_e8m0(const uint8_t* from) {
  const I32 exponents = widen(from);
  return (F32)(exponents < 2 ? 0x200000 * (exponents + 1) : (exponents - 1) << 23);
}

// `group` begins with the d that its blocks share, `bytes` are the scales of this one.
template <Format FORMAT>
OCTAVO_INLINE void unpack_scales(const uint8_t* group, const uint8_t* bytes, Block& block) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  const auto* d = reinterpret_cast<const uint16_t*>(group);
  for (int v = 0; v < PANEL; v += W) {
    F32 scale, minimum{};
    if constexpr (LAYOUT.d_bytes == 1) scale = load_half_e8m0(group + v);
    else scale = load_f16(d + v);
    if constexpr (LAYOUT.minimum) minimum = load_f16(d + PANEL + v);
    if constexpr (FORMAT == Format::q6_k) {
      const I32 first = widen(bytes + v) << 24 >> 24, second = widen(bytes + PANEL + v) << 24 >> 24;
      store(block.half_scales + v, (first & 0xffff) | (second << 16));
    } else if constexpr (LAYOUT.byte_scales) {
      scale *= to_float(widen(bytes + v));
      minimum *= -to_float(widen(bytes + PANEL + v));
    }
    store(block.scale + v, scale);
    if constexpr (LAYOUT.minimum) store(block.minimum + v, minimum);
  }
}

// Block `index` of a panel.
template <Format FORMAT>
OCTAVO_INLINE void unpack_block(const uint8_t* panel, int64_t index, Block& block) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  const uint8_t* group = panel + index / LAYOUT.blocks * LAYOUT.group_bytes();
  const uint8_t* codes =
      group + LAYOUT.head_bytes() + index % LAYOUT.blocks * LAYOUT.block_bytes();
  unpack_codes<FORMAT>(codes, block);
  if constexpr (LAYOUT.d_bytes > 0) unpack_scales<FORMAT>(group, codes + LAYOUT.code_bytes(), block);
}

}  // namespace octavo

// V where it is a part of K: taken out of a sub-block of keys, into the layout of values.
//
// Keys lie token beside token, values number beside number (kv_pages.h): squares of W x W units of
// 32 bits change rows and columns. What was never written is moved too, and not read.
#pragma once

#include "attention_tile.h"

namespace octavo {

// Units of a sub-block of values, for each column.
template <KVFormat F>
inline constexpr int kUnits = PANEL / kTogether<F>;

// Lane j of v[i] and lane i of v[j] trade places.
OCTAVO_INLINE void transpose(U32 (&v)[W]) {
#pragma GCC unroll 4
  for (int distance = 1; distance < W; distance *= 2)
#pragma GCC unroll 16
    for (int i = 0; i < W; i++) {
      if (i & distance) continue;
      const I32 upper = (iota() & distance) != 0;
      const U32 a = v[i], b = v[i + distance];
      v[i] = __builtin_shuffle(a, b, upper ? iota() + (W - distance) : iota());
      v[i + distance] = __builtin_shuffle(a, b, upper ? iota() + W : iota() + distance);
    }
}

// Number `line` of W tokens: of one column (f32), or of two.
template <KVFormat F>
OCTAVO_INLINE U32 load_line(const Unit<F>* keys, int line) {
  if constexpr (F == KVFormat::f16) {
    const U32 first = __builtin_convertvector(load_as<U16Half>(keys + 2 * line * PANEL), U32);
    return first | __builtin_convertvector(load_as<U16Half>(keys + (2 * line + 1) * PANEL), U32)
                       << 16;
  } else {
    return load_as<U32>(keys + line * PANEL);
  }
}

OCTAVO_INLINE void store_lanes(void* to, U32 v, int count) {
  if (count >= W) std::memcpy(to, &v, sizeof v);
  else if (count > 0) std::memcpy(to, &v, count * sizeof(uint32_t));
}

// `count` lines of W tokens, a token a vector, to `values`, of which each token has `dim`.
template <KVFormat F>
OCTAVO_INLINE void store_tokens(const U32 (&tokens)[W], int count, int dim, Unit<F>* values) {
  for (int t = 0; t < W; t++) {
    if constexpr (F != KVFormat::bf16) {
      store_lanes(values + t * dim, tokens[t], count);
    } else if (t % 2 == 0) {
      const U32 even = (tokens[t] & 0xffffu) | tokens[t + 1] << 16;
      const U32 odd = tokens[t] >> 16 | (tokens[t + 1] & 0xffff0000u);
      const I32 order = (iota() >> 1) + (iota() & 1) * W;
      Unit<F>* const to = values + t / 2 * dim;
      store_lanes(to, __builtin_shuffle(even, odd, order), 2 * count);
      store_lanes(to + W, __builtin_shuffle(even, odd, order + W / 2), 2 * count - W);
    }
  }
}

// values := columns first .. first + dim - 1 of `keys`, both even unless F is f32.
template <KVFormat F>
void values_of_keys(const Unit<F>* keys, int first, int dim, Unit<F>* values) {
  constexpr int columns = F == KVFormat::f32 ? 1 : 2;  // of a line
  keys += first / kTogether<F> * PANEL;
  for (int t = 0; t < PANEL; t += W)
    for (int line = 0; line < dim / columns; line += W) {
      const int count = dim / columns - line < W ? dim / columns - line : W;
      U32 square[W] = {};
      for (int i = 0; i < W; i++)
        if (i < count) square[i] = load_line<F>(keys + t, line + i);
      transpose(square);
      store_tokens<F>(square, count, dim,
                      values + t / kTogether<F> * dim + line * columns);
    }
}

}  // namespace octavo

// The product of rows with panels in block formats: a block is unpacked once and multiplied with
// all rows, a register tile of them at a time.
#include "block_panel.h"

#include <algorithm>

#include "block_unpack.h"

namespace octavo {
namespace {

// Rows of the tallest tile: what the registers hold.
#if defined(__AVX512F__)
constexpr int TALL = 8;
#elif defined(__AVX2__)
constexpr int TALL = 4;
#else
constexpr int TALL = 1;
#endif

constexpr int64_t CHUNK = 16;    // blocks unpacked at a time: they stay in L1
constexpr int64_t AHEAD = 2048;  // bytes to fetch ahead of the block that is multiplied

// Packed bytes to fetch from memory while others are multiplied, a line at a time.
struct Lines {
  const uint8_t* next;
  const uint8_t* end;

  OCTAVO_INLINE void fetch() {
    if (next < end) __builtin_prefetch(next);
    next += 64;
  }
};

template <Format FORMAT>
using Value = std::conditional_t<in_words(FORMAT), int16_t, int8_t>;

// Rows in a form of integers, from one row and one block on.
template <Format FORMAT>
struct Codes {
  const Value<FORMAT>* values;
  const Scale* scales;
  int64_t blocks;  // from here to the end of a row
  int64_t stride;  // blocks of a row

  Codes(const Rows& rows, int64_t row) : blocks(rows.blocks()), stride(rows.padded() / BLOCK) {
    if constexpr (in_words(FORMAT)) values = rows.q16 + row * rows.padded();
    else values = rows.q8 + row * rows.padded();
    scales = rows.scales + row * stride;  // int8 has one for a row: scale_rows() finds it
  }

  Codes at(int64_t rows, int64_t block) const {
    Codes moved = *this;
    moved.values += (rows * stride + block) * BLOCK;
    moved.scales += rows * stride + block;
    moved.blocks -= block;
    return moved;
  }
};

// add(m, v, codes, inputs) for steps begin .. end - 1 of a block: what vector v of the panel and row
// m have there, `x` being values of the first row.
template <int M, class X, class Add>
OCTAVO_INLINE void each_step(const Block& w, int begin, int end, const X* x, int64_t stride,
                             Add add) {
#pragma GCC unroll 16
  for (int s = begin; s < end; s++) {
    I32 codes[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) codes[v] = load_as<I32>(w.codes[s] + 4 * W * v);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      int32_t inputs;
      std::memcpy(&inputs, x + m * stride + s * (4 / sizeof(X)), sizeof inputs);
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; v++) add(m, v, codes[v], splat(inputs));
    }
  }
}

// dot[m][v] += sum of code * x over a block of each of M rows, halves times their factors (q6_k:
// and their scales).
template <Format FORMAT, int M>
OCTAVO_INLINE void multiply_block(const Block& w, const Value<FORMAT>* x, const Scale* scales,
                                  int64_t blocks, I32 (&dot)[M][VECTORS]) {
  const int64_t stride = blocks * BLOCK;
  if constexpr (in_words(FORMAT)) {
    each_step<M>(w, 0, 2 * STEPS, x, stride, [&](int m, int v, I32 codes, I32 inputs) {
      dot[m][v] = add_pairs(dot[m][v], codes, inputs);
    });
  } else if constexpr (FORMAT == Format::int8) {
    each_step<M>(w, 0, STEPS, x, stride, [&](int m, int v, I32 codes, I32 inputs) {
      dot[m][v] = add_products(dot[m][v], codes, inputs);
    });
  } else {
    constexpr int RUN = run_steps(block_layout(FORMAT).multiplied_bits());
#pragma GCC unroll 4
    for (int begin = 0; begin < STEPS; begin += RUN) {
      RunSum sums[M][VECTORS] = {};
      each_step<M>(w, begin, begin + RUN, x, stride,
                   [&](int m, int v, I32 codes, I32 inputs) {
                     sums[m][v] = add_products(sums[m][v], codes, inputs);
                   });
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        const I32 factors = splat(scales[m * blocks].factors);
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
          I32 scaled = factors;
          if constexpr (FORMAT == Format::q6_k)
            scaled = (I32)((I16)load_as<I32>(w.half_scales + v * W) * (I16)factors);
          dot[m][v] += close(sums[m][v], scaled, begin * 2 / STEPS);
        }
      }
    }
  }
}

// What the codes' offset takes from the integer sums of a row.
template <Format FORMAT>
OCTAVO_INLINE I32 offset_part(const Block& w, const Scale& x, int v) {
  constexpr int OFFSET = block_layout(FORMAT).offset;
  if constexpr (FORMAT == Format::q6_k)
    return OFFSET * dot_pairs(splat(x.halves), load_as<I32>(w.half_scales + v * W));
  else
    return OFFSET * splat(x.whole);
}

// c[m][..] (+)= the products of M rows with the first `blocks` blocks of a panel, at(b) each.
template <Format FORMAT, int M, class At>
void multiply_tile(const At& at, int64_t blocks, bool first, Codes<FORMAT> x, float* c, int64_t ldc,
                   Lines& lines) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  using Sum = std::conditional_t<FORMAT == Format::int8, I32, F32>;
  Sum y[M][VECTORS] = {};
  if (!first)
    for (int m = 0; m < M; m++)
      for (int v = 0; v < VECTORS; v++) y[m][v] = load_as<Sum>(c + m * ldc + v * W);
  for (int64_t b = 0; b < blocks; b++) {
    const Block& w = at(b);
    lines.fetch();
    if constexpr (FORMAT == Format::int8) {
      multiply_block<FORMAT, M>(w, x.values, x.scales, x.stride, y);
    } else {
      I32 dot[M][VECTORS] = {};
      multiply_block<FORMAT, M>(w, x.values, x.scales, x.stride, dot);
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        const Scale& scale = x.scales[m * x.stride];
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
          if constexpr (LAYOUT.offset != 0 && !in_words(FORMAT))
            dot[m][v] -= offset_part<FORMAT>(w, scale, v);
          y[m][v] = fma(load(w.scale + v * W) * splat(scale.scale), to_float(dot[m][v]), y[m][v]);
          if constexpr (LAYOUT.minimum)
            y[m][v] = fma(load(w.minimum + v * W), splat(scale.whole_value), y[m][v]);
        }
      }
    }
    x.values += BLOCK;
    x.scales++;
  }
  for (int m = 0; m < M; m++)
    for (int v = 0; v < VECTORS; v++) store(c + m * ldc + v * W, y[m][v]);
}

// All rows in tiles, each half as tall as the one before when the rows run out.
template <Format FORMAT, int M = TALL, class At>
void multiply_rows(const At& at, int64_t blocks, bool first, Codes<FORMAT> x, int64_t rows, float* c,
                   int64_t ldc, Lines& lines) {
  for (; rows >= M; rows -= M) {
    multiply_tile<FORMAT, M>(at, blocks, first, x, c, ldc, lines);
    x = x.at(M, 0);
    c += M * ldc;
  }
  if constexpr (M > 1) multiply_rows<FORMAT, M / 2>(at, blocks, first, x, rows, c, ldc, lines);
}

// int8: the integer sums in c, with the offset taken out, times both scales.
void scale_rows(const float* scales, const Scale* x, int64_t rows, float* c, int64_t ldc) {
  constexpr int OFFSET = in_words(Format::int8) ? 0 : block_layout(Format::int8).offset;
  for (int64_t r = 0; r < rows; r++)
    for (int v = 0; v < PANEL; v += W) {
      float* at = c + r * ldc + v;
      const I32 sum = load_as<I32>(at) - OFFSET * x[r].whole;
      store(at, to_float(sum) * (load(scales + v) * x[r].scale));
    }
}

// Of a panel, what its group shares included.
constexpr int64_t bytes_of_block(Format format) {
  return block_layout(format).group_bytes() / block_layout(format).blocks;
}

const float* output_scales(const Packed& w, int64_t panel) {
  return reinterpret_cast<const float*>(w.panel(panel + 1)) - PANEL;
}

// Each block is used as soon as it is unpacked, so that memory never waits.
template <Format FORMAT>
void multiply_few(const uint8_t* panel, const Codes<FORMAT>& x, int64_t rows, float* c,
                  int64_t ldc) {
  constexpr int64_t BYTES = bytes_of_block(FORMAT);
  Block block;
  Lines none{nullptr, nullptr};
  auto unpacked = [&](int64_t b) -> const Block& {
    for (int64_t line = 0; line < BYTES; line += 64)
      __builtin_prefetch(panel + b * BYTES + AHEAD + line);
    unpack_block<FORMAT>(panel, b, block);
    return block;
  };
  multiply_rows<FORMAT>(unpacked, x.blocks, true, x, rows, c, ldc, none);
}

// What comes next is fetched while the blocks at hand are multiplied.
template <Format FORMAT>
void multiply_many(const uint8_t* panel, const Codes<FORMAT>& x, int64_t rows, float* c,
                   int64_t ldc) {
  constexpr int64_t BYTES = bytes_of_block(FORMAT);
  Block unpacked[CHUNK];
  for (int64_t begin = 0; begin < x.blocks; begin += CHUNK) {
    const int64_t blocks = std::min(CHUNK, x.blocks - begin);
    for (int64_t b = 0; b < blocks; b++) unpack_block<FORMAT>(panel, begin + b, unpacked[b]);
    const uint8_t* next = panel + (begin + blocks) * BYTES;
    Lines lines{next, next + CHUNK * BYTES};
    multiply_rows<FORMAT>([&](int64_t b) -> const Block& { return unpacked[b]; }, blocks, begin == 0,
                          x.at(0, begin), rows, c, ldc, lines);
  }
}

template <Format FORMAT>
void multiply_panel(const Packed& w, int64_t panel, const Rows& x, int64_t row, int64_t rows,
                    float* c, int64_t ldc) {
  const Codes<FORMAT> codes(x, row);
  if (rows <= TALL)
    multiply_few<FORMAT>(w.panel(panel), codes, rows, c, ldc);
  else
    multiply_many<FORMAT>(w.panel(panel), codes, rows, c, ldc);
  if constexpr (FORMAT == Format::int8)
    scale_rows(output_scales(w, panel), x.scales + row, rows, c, ldc);
}

// The value of one code, computed in fp32 in the order that GGUF states.
template <Format FORMAT>
float value_of(const Block& block, int64_t i, int64_t lane) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  const auto code = static_cast<float>(code_at<FORMAT>(block, i, lane));
  if constexpr (FORMAT == Format::int8) return code;
  float scale = block.scale[lane];
  if constexpr (FORMAT == Format::q6_k) {
    const int32_t halves = block.half_scales[lane];
    scale *= static_cast<float>(i < BLOCK / 2 ? static_cast<int16_t>(halves) : halves >> 16);
  }
  return LAYOUT.minimum ? scale * code + block.minimum[lane] : scale * code;
}

}  // namespace

int64_t block_panel_bytes(Format format, int64_t k) {
  const BlockLayout layout = block_layout(format);
  const int64_t blocks = (k + BLOCK - 1) / BLOCK;
  const int64_t groups = (blocks + layout.blocks - 1) / layout.blocks;
  return groups * layout.group_bytes() + (layout.d_bytes > 0 ? 0 : PANEL * sizeof(float));
}

void block_panel_product(const Packed& w, int64_t panel, int64_t panels, const Rows& x, int64_t row,
                         int64_t rows, float* c, int64_t ldc) {
  with_block_format(w.format, [&](auto format) {
    for (int64_t p = 0; p < panels; p++)
      multiply_panel<format()>(w, panel + p, x, row, rows, c + p * PANEL, ldc);
  });
}

void block_unpack_row(const Packed& w, int64_t index, float* values) {
  const int64_t panel = index / PANEL, lane = index % PANEL;
  with_block_format(w.format, [&](auto format) {
    Block block;
    for (int64_t i = 0; i < w.k; i++) {
      if (i % BLOCK == 0) unpack_block<format()>(w.panel(panel), i / BLOCK, block);
      values[i] = value_of<format()>(block, i % BLOCK, lane);
      if (format() == Format::int8) values[i] *= output_scales(w, panel)[lane];
    }
  });
}

}  // namespace octavo

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
constexpr int64_t AHEAD = 2048;  // bytes to fetch ahead of those that are unpacked

// Rows in Form::q8 or q8_row, from one row and one block on.
struct Codes {
  const Rows& rows;
  int64_t row;
  int64_t block;

  const int8_t* values(int m, int64_t b) const {
    return rows.q8 + (row + m) * rows.padded() + (block + b) * BLOCK;
  }
  int64_t scale_index(int m, int64_t b) const { return (row + m) * rows.blocks() + block + b; }
  // Of one half of the block; made for dot_pairs.
  I32 factor(int m, int64_t b, int half) const {
    return splat(rows.factors[2 * scale_index(m, b) + half]);
  }
};

// What the sum of a run that begins at step `begin` of the codes counts.
template <Format FORMAT>
OCTAVO_INLINE I32 weight_of_run(const Block& w, const Codes& x, int m, int64_t b, int begin,
                                int v) {
  constexpr int HALF = STEPS / 2;
  const int half = begin % STEPS / HALF;
  const I32 plane = twice(splat(begin < STEPS ? 1 : 16));
  if constexpr (FORMAT == Format::int8)
    return plane;
  else if constexpr (FORMAT == Format::q6_k)
    return (I32)((I16)load_as<I32>(w.half_scales[half] + v * W) * (I16)x.factor(m, b, half));
  else
    return (I32)((I16)x.factor(m, b, half) * (I16)plane);
}

// dot[m][v] += sum of code * x over a block of each of M rows, halves times their factors (q6_k:
// and their scales).
template <Format FORMAT, int M>
OCTAVO_INLINE void multiply_block(const Block& w, const Codes& x, int64_t b,
                                  I32 (&dot)[M][VECTORS]) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  constexpr int RUN = std::min(run_steps(LAYOUT.bits), FORMAT == Format::int8 ? STEPS : STEPS / 2);
  constexpr int ALL = LAYOUT.bits == 8 && !WHOLE_BYTES ? 2 * STEPS : STEPS;
#pragma GCC unroll 8
  for (int begin = 0; begin < ALL; begin += RUN) {
    RunSum sums[M][VECTORS] = {};
#pragma GCC unroll 8
    for (int s = begin; s < begin + RUN; s++) {
      U8 codes[VECTORS];
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; v++) codes[v] = load_as<U8>(w.codes[s] + 4 * W * v);
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        int32_t four;
        std::memcpy(&four, x.values(m, b) + s % STEPS * 4, sizeof four);
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++)
          sums[m][v] = add_products(sums[m][v], codes[v], splat(four));
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++)
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; v++)
        dot[m][v] += close(sums[m][v], weight_of_run<FORMAT>(w, x, m, b, begin, v));
  }
}

// What the codes' offset takes from the integer sums of a row; `halves` are the row's two sums.
template <Format FORMAT>
OCTAVO_INLINE I32 offset_part(const Block& w, I32 halves, int v) {
  constexpr int OFFSET = block_layout(FORMAT).offset;
  if constexpr (FORMAT == Format::q6_k)
    return OFFSET * dot_pairs(halves, load_as<I32>(w.both_scales + v * W));
  else
    return dot_pairs(halves, twice(splat(OFFSET)));
}

// c[m][..] (+)= the products of M rows with some blocks of a panel, at(b) each.
template <Format FORMAT, int M, class At>
void multiply_tile(const At& at, int64_t blocks, const Codes& x, float* c, int64_t ldc) {
  using Sum = std::conditional_t<FORMAT == Format::int8, I32, F32>;
  Sum y[M][VECTORS] = {};
  if (x.block > 0)
    for (int m = 0; m < M; m++)
      for (int v = 0; v < VECTORS; v++) y[m][v] = load_as<Sum>(c + m * ldc + v * W);
  for (int64_t b = 0; b < blocks; b++) {
    const Block& w = at(b);
    if constexpr (FORMAT == Format::int8) {
      multiply_block<FORMAT, M>(w, x, b, y);
      continue;
    } else {
      I32 dot[M][VECTORS] = {};
      multiply_block<FORMAT, M>(w, x, b, dot);
#pragma GCC unroll 8
      for (int m = 0; m < M; m++) {
        const int64_t at_row = x.scale_index(m, b);
        const float dx = x.rows.scales[at_row];
        const int32_t halves = x.rows.sums[at_row];
        const float shift = dx * static_cast<float>(static_cast<int16_t>(halves) + (halves >> 16));
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
          if constexpr (block_layout(FORMAT).offset != 0)
            dot[m][v] -= offset_part<FORMAT>(w, splat(halves), v);
          y[m][v] = fma(load(w.scale + v * W) * dx, to_float(dot[m][v]), y[m][v]);
          if constexpr (block_layout(FORMAT).minimum)
            y[m][v] = fma(load(w.minimum + v * W), splat(shift), y[m][v]);
        }
      }
    }
  }
  for (int m = 0; m < M; m++)
    for (int v = 0; v < VECTORS; v++) store(c + m * ldc + v * W, y[m][v]);
}

// All rows in tiles, each half as tall as the one before when the rows run out.
template <Format FORMAT, int M = TALL, class At>
void multiply_rows(const At& at, int64_t blocks, Codes x, int64_t rows, float* c, int64_t ldc) {
  for (; rows >= M; rows -= M) {
    multiply_tile<FORMAT, M>(at, blocks, x, c, ldc);
    x.row += M;
    c += M * ldc;
  }
  if constexpr (M > 1) multiply_rows<FORMAT, M / 2>(at, blocks, x, rows, c, ldc);
}

// int8: the integer sums in c, with the offset taken out, times both scales.
void scale_rows(const float* scales, const Rows& x, int64_t row, int64_t rows, float* c,
                int64_t ldc) {
  for (int64_t r = 0; r < rows; r++)
    for (int v = 0; v < PANEL; v += W) {
      float* at = c + r * ldc + v;
      const I32 sum = load_as<I32>(at) - 128 * x.sums[row + r];
      store(at, to_float(sum) * (load(scales + v) * x.scales[row + r]));
    }
}

const float* output_scales(const Packed& w, int64_t panel) {
  return reinterpret_cast<const float*>(w.panel(panel + 1)) - PANEL;
}

// Each block is used as soon as it is unpacked, so that memory never waits.
template <Format FORMAT>
void multiply_few(const uint8_t* panel, const Codes& x, int64_t rows, float* c, int64_t ldc) {
  Block block;
  auto unpacked = [&](int64_t b) -> const Block& {
    unpack_block<FORMAT>(panel, b, AHEAD, block);
    return block;
  };
  multiply_rows<FORMAT>(unpacked, x.rows.blocks(), x, rows, c, ldc);
}

template <Format FORMAT>
void multiply_many(const uint8_t* panel, Codes x, int64_t rows, float* c, int64_t ldc) {
  Block unpacked[CHUNK];
  for (; x.block < x.rows.blocks(); x.block += CHUNK) {
    const int64_t blocks = std::min(CHUNK, x.rows.blocks() - x.block);
    for (int64_t b = 0; b < blocks; b++)
      unpack_block<FORMAT>(panel, x.block + b, AHEAD, unpacked[b]);
    multiply_rows<FORMAT>([&](int64_t b) -> const Block& { return unpacked[b]; }, blocks, x, rows,
                          c, ldc);
  }
}

template <Format FORMAT>
void multiply_panel(const Packed& w, int64_t panel, const Rows& x, int64_t row, int64_t rows,
                    float* c, int64_t ldc) {
  const Codes codes{x, row, 0};
  if (rows <= TALL)
    multiply_few<FORMAT>(w.panel(panel), codes, rows, c, ldc);
  else
    multiply_many<FORMAT>(w.panel(panel), codes, rows, c, ldc);
  if constexpr (FORMAT == Format::int8)
    scale_rows(output_scales(w, panel), x, row, rows, c, ldc);
}

// The value of one code, computed in fp32 in the order that GGUF states.
template <Format FORMAT>
float value_of(const Block& block, int64_t i, int64_t lane) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  const int64_t at = lane * 4 + i % 4;
  int code = block.codes[i / 4][at];
  if (LAYOUT.bits == 8 && !WHOLE_BYTES) code += 16 * block.codes[STEPS + i / 4][at];
  if constexpr (FORMAT == Format::int8) return static_cast<float>(code - LAYOUT.offset);
  float scale = block.scale[lane];
  if constexpr (FORMAT == Format::q6_k)
    scale *= static_cast<float>(block.half_scales[i / 16][lane] >> 16);
  const float value = scale * static_cast<float>(code - LAYOUT.offset);
  return LAYOUT.minimum ? value + block.minimum[lane] : value;
}

}  // namespace

int64_t block_panel_bytes(Format format, int64_t k) {
  const BlockLayout layout = block_layout(format);
  const int64_t blocks = (k + BLOCK - 1) / BLOCK;
  const int64_t groups = (blocks + layout.blocks - 1) / layout.blocks;
  return groups * layout.group_bytes() + (layout.has_d ? 0 : PANEL * sizeof(float));
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
      if (i % BLOCK == 0) unpack_block<format()>(w.panel(panel), i / BLOCK, 0, block);
      values[i] = value_of<format()>(block, i % BLOCK, lane);
      if (format() == Format::int8) values[i] *= output_scales(w, panel)[lane];
    }
  });
}

}  // namespace octavo

// The product of rows with panels of floats: one register tile, written once for all of them.
#include "float_panel.h"

#include <algorithm>

namespace octavo {
namespace {

// Rows of the tallest tile, and how many vectors of sums one of several panels may have.
#if defined(__AVX512F__)
constexpr int TALL = 12, SUMS = 24;
#elif defined(__AVX2__)
constexpr int TALL = 6, SUMS = 8;  // these hide an FMA's latency; more would spill
#else
constexpr int TALL = 3, SUMS = 2;  // each takes four registers
#endif

constexpr int64_t CHUNK = 256;   // values of k: a panel's part stays in L1 for all row tiles
constexpr int64_t AHEAD = 2048;  // bytes to prefetch ahead where a panel is read once

// ---- One pair of k in a panel, for each format. An even k comes before an odd one. ----

struct Float32 {
  static constexpr int64_t BYTES = 128;
  using X = float;
  static constexpr int STEPS = 2;
  static F32 get(const uint8_t* pair, int step, int v) {
    return load(reinterpret_cast<const float*>(pair) + step * PANEL + v * W);
  }
  static F32 add(F32 sum, X x, F32 w) { return fma(splat(x), w, sum); }
};

struct Float16 {
  static constexpr int64_t BYTES = 64;
  using X = float;
  static constexpr int STEPS = 2;
  static F32 get(const uint8_t* pair, int step, int v) {
    return load_f16(reinterpret_cast<const uint16_t*>(pair) + step * PANEL + v * W);
  }
  static F32 add(F32 sum, X x, F32 w) { return fma(splat(x), w, sum); }
};

#if defined(__AVX512BF16__)
struct Bfloat16 {
  static constexpr int64_t BYTES = 64;
  using X = uint32_t;
  static constexpr int STEPS = 1;
  static U32 get(const uint8_t* pair, int, int v) { return load_as<U32>(pair + v * sizeof(U32)); }
  static F32 add(F32 sum, X x, U32 w) { return dot_bf16(sum, U32{} + x, w); }
};
#else
struct Bfloat16 {
  static constexpr int64_t BYTES = 64;
  using X = float;
  static constexpr int STEPS = 2;
  static F32 get(const uint8_t* pair, int step, int v) {
    // An odd k lies two bytes further: no mask to keep in a register. What is read beyond the last
    // panel is shifted out, and lies in Buffer's room to align.
    return low_bf16(load_as<U32>(pair + v * sizeof(U32) + step * 2));
  }
  static F32 add(F32 sum, X x, F32 w) { return fma(splat(x), w, sum); }
};
#endif

// ---- The register tile ----

// Where a tile works: a part of K of adjacent panels, and rows.
template <class Weight>
struct Tile {
  const uint8_t* w;
  int64_t panel_bytes;
  int64_t pairs;
  const typename Weight::X* x;
  int64_t x_stride;
  float* c;
  int64_t ldc;
  bool first;     // of the parts of K: c holds nothing yet
  int64_t ahead;  // bytes from w to what is prefetched meanwhile
  int64_t pace;   // bytes to go on in it with each pair
};

// M rows x P panels.
template <class Weight, int M, int P>
void multiply_tile(Tile<Weight> t) {
  constexpr int COLUMNS = P * VECTORS;
  F32 sums[M][COLUMNS];
#pragma GCC unroll 16
  for (int m = 0; m < M; m++)
#pragma GCC unroll 16
    for (int v = 0; v < COLUMNS; v++)
      sums[m][v] = t.first ? F32{} : load(t.c + m * t.ldc + v * W);

  const uint8_t* pair = t.w;
  const uint8_t* ahead = t.w + t.ahead;
  const auto* x = t.x;
  for (int64_t i = 0; i < t.pairs; i++) {
#pragma GCC unroll 4
    for (int p = 0; p < P; p++)
#pragma GCC unroll 2
      for (int64_t line = 0; line < Weight::BYTES; line += 64)
        __builtin_prefetch(ahead + p * t.panel_bytes + line);
#pragma GCC unroll 2
    for (int step = 0; step < Weight::STEPS; step++) {
      decltype(Weight::get(pair, 0, 0)) w[COLUMNS];
#pragma GCC unroll 16
      for (int v = 0; v < COLUMNS; v++)
        w[v] = Weight::get(pair + v / VECTORS * t.panel_bytes, step, v % VECTORS);
#pragma GCC unroll 16
      for (int m = 0; m < M; m++)
#pragma GCC unroll 16
        for (int v = 0; v < COLUMNS; v++)
          sums[m][v] = Weight::add(sums[m][v], x[m * t.x_stride + step], w[v]);
    }
    pair += Weight::BYTES;
    ahead += t.pace;
    x += Weight::STEPS;
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; m++)
#pragma GCC unroll 16
    for (int v = 0; v < COLUMNS; v++) store(t.c + m * t.ldc + v * W, sums[m][v]);
}

constexpr bool fits(int64_t rows, int64_t panels) { return rows * panels * VECTORS <= SUMS; }

// The tile of this many rows and of 1, 2 or 4 panels.
template <class Weight, int M = TALL, int P = 4>
void multiply(int64_t rows, int64_t panels, const Tile<Weight>& t) {
  if constexpr (M > 1)
    if (rows < M) return multiply<Weight, M - 1, P>(rows, panels, t);
  if constexpr (P > 1)
    if (panels < P) return multiply<Weight, M, P / 2>(rows, panels, t);
  if constexpr (P == 1 || fits(M, P)) multiply_tile<Weight, M, P>(t);
}

// As many panels side by side as the registers hold.
int64_t panels_beside(int64_t rows, int64_t panels) {
  if (panels >= 4 && fits(rows, 4)) return 4;
  return panels >= 2 && fits(rows, 2) ? 2 : 1;
}

// Rows in tiles of nearly equal height; K in chunks, whose sums so far are kept in c. What the
// next chunk needs of the weights is prefetched, evenly, while this one is computed.
template <class Weight>
void product(const uint8_t* w, int64_t panel_bytes, int64_t all_pairs, int64_t panels,
             const typename Weight::X* x, int64_t x_stride, int64_t rows, float* c, int64_t ldc) {
  const int64_t tiles = (rows + TALL - 1) / TALL, tallest = (rows + tiles - 1) / tiles;
  const int64_t chunk = tiles == 1 ? all_pairs : CHUNK / 2;
  for (int64_t begin = 0; begin < all_pairs; begin += chunk) {
    const int64_t pairs = std::min(chunk, all_pairs - begin), bytes = pairs * Weight::BYTES;
    for (int64_t p = 0, beside; p < panels; p += beside) {
      beside = panels_beside(tallest, panels - p);
      const int64_t next = p + beside < panels ? beside * panel_bytes : bytes - p * panel_bytes;
      for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t row = rows * tile / tiles, end = rows * (tile + 1) / tiles;
        multiply<Weight>(end - row, beside,
                         {.w = w + p * panel_bytes + begin * Weight::BYTES,
                          .panel_bytes = panel_bytes,
                          .pairs = pairs,
                          .x = x + row * x_stride + begin * Weight::STEPS,
                          .x_stride = x_stride,
                          .c = c + row * ldc + p * PANEL,
                          .ldc = ldc,
                          .first = begin == 0,
                          .ahead = tiles == 1 ? AHEAD : next + bytes * tile / tiles,
                          .pace = Weight::BYTES / tiles});
      }
    }
  }
}

}  // namespace

bool is_float(Format format) {
  return format == Format::f32 || format == Format::bf16 || format == Format::f16;
}

int64_t float_panel_bytes(Format format, int64_t k) {
  return (k + BLOCK - 1) / BLOCK * BLOCK * PANEL * (format == Format::f32 ? 4 : 2);
}

void float_panel_product(const Packed& w, int64_t panel, int64_t panels, const Rows& x,
                         int64_t row, int64_t rows, float* c, int64_t ldc) {
  auto multiply_with = [&]<class Weight>(Weight, const auto* values) {
    const int64_t stride = x.padded() * Weight::STEPS / 2;
    const auto* from = reinterpret_cast<const typename Weight::X*>(values) + row * stride;
    product<Weight>(w.panel(panel), w.panel_bytes(), (w.k + 1) / 2, panels, from, stride, rows, c,
                    ldc);
  };
  if (w.format == Format::f32) return multiply_with(Float32{}, x.f32);
  if (w.format == Format::f16) return multiply_with(Float16{}, x.f32);
  if (form_for(Format::bf16) == Form::bf16) return multiply_with(Bfloat16{}, x.bf16);
  multiply_with(Bfloat16{}, x.f32);
}

}  // namespace octavo

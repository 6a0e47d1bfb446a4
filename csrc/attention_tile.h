// The kernel of attention: a few query rows against one chunk of one KV head.
//
// Scores and outputs are both products of broadcast factors with whole vectors, one accumulator
// chain per element, ascending: over head_dim, then over the chunk's tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "activation.h"
#include "attention.h"
#include "kv_pages.h"
#include "simd.h"

namespace octavo {

inline constexpr int kSubBlocks = kChunk / PANEL;  // in a chunk

// ---- a format's numbers ----

// Pairs lie in one 32-bit unit; both are multiplied in one step.
template <KVFormat F>
inline constexpr int kTogether = F == KVFormat::bf16 ? 2 : 1;

template <KVFormat F>
using Unit = std::conditional_t<
    F == KVFormat::f32, float,
    std::conditional_t<F == KVFormat::bf16, uint32_t,
                       std::conditional_t<F == KVFormat::f16, uint16_t, int8_t>>>;

template <KVFormat F>
using Units = std::conditional_t<F == KVFormat::bf16, U32, F32>;

// Vectors that a tile of `rows` rows accumulates at once: enough chains to hide the latency of
// fma, few enough for the register file.
constexpr int tile_vectors(int rows) {
#if defined(__AVX512F__)
  return rows <= 3 ? 8 : 4;
#elif defined(__AVX2__)
  return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
#else
  return rows > 0 ? 1 : 0;
#endif
}

// Whether factors are rounded to bf16 and multiplied in pairs.
#if defined(__AVX512BF16__)
template <KVFormat F>
inline constexpr bool kPairs = F == KVFormat::bf16;
#else
template <KVFormat F>
inline constexpr bool kPairs = false;
#endif

// Factors of a row, each a float in size, for one unit.
template <KVFormat F>
inline constexpr int kFactors = kPairs<F> ? 1 : kTogether<F>;

template <KVFormat F>
OCTAVO_INLINE Units<F> load_units(const Unit<F>* from, int count) {
  Unit<F> part[W] = {};
  if (count < W) {
    std::memcpy(part, from, count * sizeof(Unit<F>));
    from = part;
  }
  if constexpr (F == KVFormat::f16) return load_f16(from);
  else if constexpr (F == KVFormat::int8) return load_int8(from);
  else return load_as<Units<F>>(from);
}

// The first (k = 0) or second of the numbers in each unit.
template <KVFormat F>
OCTAVO_INLINE F32 number(Units<F> units, int k) {
  if constexpr (F != KVFormat::bf16) return units;
  else return low_bf16(k == 0 ? units : computed(units >> 16));  // a mask would take a register
}

// Units that a product reads, in N vectors of which each RUN lie side by side, and what is to be
// read next of as many bytes.
template <KVFormat F, int N, int RUN>
struct Stream {
  const Unit<F>* units[N];
  const Unit<F>* next[N];
  int64_t stride;  // from a unit to the next of its sum

  OCTAVO_INLINE void fetch(int64_t at) const {
    for (int n = 0; n < N; n++)
      if (n % RUN * W * sizeof(Unit<F>) % 64 == 0) __builtin_prefetch(next[n] + at);
  }
};

// acc[m][n] += factors of row m * numbers of vector n, over units begin..end - 1. Factor number k
// of row m is at a[k * AK + m * AM]. Lanes past `count` are zeros. The order of loops is the one in
// which the compiler spills no sums.
template <KVFormat F, int M, int N, int RUN, int AK, int AM>
OCTAVO_INLINE void multiply(F32 (&acc)[M][N], const float* a, const Stream<F, N, RUN>& b,
                            int begin, int end, int count = W) {
  constexpr int K = kFactors<F>;
  a += begin * K * AK;
  for (int64_t at = begin * b.stride; at < end * b.stride; at += b.stride) {
    b.fetch(at);
    for (int k = 0; k < K; k++, a += AK) {
      if constexpr (kPairs<F>) {
        for (int n = 0; n < N; n++) {
          const U32 pairs = load_units<F>(b.units[n] + at, count);
          for (int m = 0; m < M; m++)
            acc[m][n] = dot_bf16(acc[m][n], U32{} + load_as<uint32_t>(a + m * AM), pairs);
        }
      } else if constexpr (M < N) {
        F32 rows[M];
        for (int m = 0; m < M; m++) rows[m] = splat(a[m * AM]);
        for (int n = 0; n < N; n++) {
          const F32 numbers = number<F>(load_units<F>(b.units[n] + at, count), k);
          for (int m = 0; m < M; m++) acc[m][n] = computed(fma(rows[m], numbers, acc[m][n]));
        }
      } else {
        F32 numbers[N];
        for (int n = 0; n < N; n++)
          numbers[n] = number<F>(load_units<F>(b.units[n] + at, count), k);
        for (int m = 0; m < M; m++) {
          const F32 row = splat(a[m * AM]);
          for (int n = 0; n < N; n++) acc[m][n] = fma(row, numbers[n], acc[m][n]);
        }
      }
    }
  }
}

// ---- a tile ----

struct Span {
  int begin, end;  // tokens, counted from the chunk's first
  bool empty() const { return end <= begin; }
};

// One chunk of one KV head. Only sub-blocks that some row sees need be there.
template <KVFormat F>
struct Chunk {
  const Unit<F>* keys[kSubBlocks];
  const Unit<F>* values[kSubBlocks];
  const Unit<F>* next[kSubBlocks];  // keys that are read after these values
  int head_dim, v_head_dim;
  float scale, soft_cap;
};

// A row's queries lie interleaved with those of the tile's other rows, [head_dim][M] floats, or
// [head_dim / 2][M] pairs.
template <KVFormat F, int M, int J>
OCTAVO_INLINE void score_sub_blocks(const float* q, const Chunk<F>& chunk, int sub,
                                    float (*scores)[kChunk]) {
  constexpr int N = J * VECTORS;
  Stream<F, N, VECTORS> keys{{}, {}, PANEL};
  for (int n = 0; n < N; n++) {
    keys.units[n] = chunk.keys[sub + n / VECTORS] + n % VECTORS * W;
    keys.next[n] = chunk.values[sub + n / VECTORS] + n % VECTORS * W;
  }
  F32 acc[M][N] = {};
  multiply<F, M, N, VECTORS, M, 1>(acc, q, keys, 0, chunk.head_dim / kTogether<F>);
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) store(scores[m] + sub * PANEL + n * W, acc[m][n]);
}

template <KVFormat F, int M>
OCTAVO_INLINE void score(const float* q, const Chunk<F>& chunk, Span subs,
                         float (*scores)[kChunk]) {
  constexpr int J = tile_vectors(M) > VECTORS ? tile_vectors(M) / VECTORS : 1;
  int sub = subs.begin;
  for (; sub + J <= subs.end; sub += J) score_sub_blocks<F, M, J>(q, chunk, sub, scores);
  for (; sub < subs.end; sub++) score_sub_blocks<F, M, 1>(q, chunk, sub, scores);
}

// What belongs to each token times its scale. `codes`: of the chunk's sub-blocks, `dim` a token.
inline void scale_tokens(float* x, const int8_t* const* codes, int dim, Span subs) {
  for (int sub = subs.begin; sub < subs.end; sub++) {
    const auto* scales = reinterpret_cast<const float*>(codes[sub] + scales_at(dim));
    for (int t = 0; t < PANEL; t += W)
      store(x + sub * PANEL + t, load(x + sub * PANEL + t) * load(scales + t));
  }
}

// 2^a with a relative error below 3e-7 for -126 <= a < 128; 0 below -126.5, -inf too. NaN stays.
// The polynomial is that of Cephes exp2f.
OCTAVO_INLINE F32 exp2(F32 a) {
  const F32 least = splat(-127.f);
  a = least > a ? least : a;
  const I32 n = to_int(a);
  const F32 r = a - to_float(n);
  F32 p = splat(1.535336188319500e-4f);
  p = fma(p, r, splat(1.339887440266574e-3f));
  p = fma(p, r, splat(9.618437357674640e-3f));
  p = fma(p, r, splat(5.550332471162809e-2f));
  p = fma(p, r, splat(2.402264791363012e-1f));
  p = fma(p, r, splat(6.931472028550421e-1f));
  p = fma(p, r, splat(1.f));
  return p * (F32)((n + 127) << 23);
}

inline constexpr float kLog2E = 1.44269504088896341f;

inline void cap(float* scores, Span tokens, float scale, float soft_cap) {
  for (int t = tokens.begin; t < tokens.end; t += W)
    store(scores + t, soft_cap * tanh(load(scores + t) * (scale / soft_cap)));
}

// Scores of `tokens` (whole sub-blocks) become weights 2^(scale * score - maximum), zero outside
// `seen`. `scale` is positive.
template <KVFormat F>
OCTAVO_INLINE void softmax(float* scores, Span tokens, Span seen, float scale,
                           const SoftmaxState& state) {
  constexpr float least = -std::numeric_limits<float>::infinity();
  for (int t = tokens.begin; t < seen.begin; t++) scores[t] = least;
  for (int t = seen.end; t < tokens.end; t++) scores[t] = least;
  F32 most = splat(least);
  for (int t = tokens.begin; t < tokens.end; t += W) most = max(most, load(scores + t));
  const float maximum = largest(most) * scale;
  F32 total{};
  for (int t = tokens.begin; t < tokens.end; t += W) {
    const F32 weight = exp2(fma(load(scores + t), splat(scale), splat(-maximum)));
    total += weight;
    if constexpr (kPairs<F>) store_bf16(reinterpret_cast<uint16_t*>(scores) + t, weight);
    else store(scores + t, weight);
  }
  *state.maximum = maximum;
  *state.sum = sum(total);
}

// out[columns] += weights * V for N vectors of columns, over steps that all rows see.
template <KVFormat F, int M, int N>
OCTAVO_INLINE void weigh_columns(const float* weights, const Chunk<F>& chunk, Span steps,
                                 int column, int count, const SoftmaxState* states) {
  constexpr int per_sub = PANEL / kTogether<F>;
  F32 acc[M][N];
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) acc[m][n] = load(states[m].out + column + n * W);
  for (int sub = steps.begin / per_sub; sub * per_sub < steps.end; sub++) {
    Stream<F, N, N> values{{}, {}, chunk.v_head_dim};
    for (int n = 0; n < N; n++) {
      values.units[n] = chunk.values[sub] + column + n * W;
      values.next[n] = chunk.next[sub] + column + n * W;
    }
    const int first = sub * per_sub;
    const int begin = steps.begin > first ? steps.begin - first : 0;
    const int end = steps.end - first < per_sub ? steps.end - first : per_sub;
    multiply<F, M, N, N, 1, kChunk>(acc, weights + first * kFactors<F>, values, begin, end, count);
  }
  for (int m = 0; m < M; m++)
    for (int n = 0; n < N; n++) store(states[m].out + column + n * W, acc[m][n]);
}

// The same for one row and any steps; of a pair, only what the row sees is multiplied.
template <KVFormat F>
void weigh_alone(const float* weights, const Chunk<F>& chunk, Span steps, Span seen,
                 const SoftmaxState& state) {
  constexpr int per_sub = PANEL / kTogether<F>;
  for (int step = steps.begin; step < steps.end; step++) {
    const Unit<F>* values = chunk.values[step / per_sub] + step % per_sub * chunk.v_head_dim;
    for (int column = 0; column < chunk.v_head_dim; column += W) {
      Units<F> units = load_units<F>(values + column, chunk.v_head_dim - column);
      if constexpr (kTogether<F> == 2) {
        if (2 * step < seen.begin) units &= 0xffff0000u;
        if (2 * step + 1 >= seen.end) units &= 0xffffu;
      }
      F32 acc = load(state.out + column);
      if constexpr (kPairs<F>) {
        acc = dot_bf16(acc, U32{} + load_as<uint32_t>(weights + step), units);
      } else {
        for (int k = 0; k < kTogether<F>; k++)
          acc = fma(splat(weights[step * kTogether<F> + k]), number<F>(units, k), acc);
      }
      store(state.out + column, acc);
    }
  }
}

template <KVFormat F, int M>
OCTAVO_INLINE void weigh(const float (*scores)[kChunk], const Chunk<F>& chunk, const Span* seen,
                         const SoftmaxState* states) {
  constexpr int K = kTogether<F>, N = tile_vectors(M);
  Span common{0, kChunk};  // steps that all rows see whole
  for (int m = 0; m < M; m++) {
    const int begin = (seen[m].begin + K - 1) / K, end = seen[m].end / K;
    common = {begin > common.begin ? begin : common.begin, end < common.end ? end : common.end};
    for (int j = 0; j < chunk.v_head_dim; j += W) store(states[m].out + j, F32{});
  }
  const int whole = chunk.v_head_dim / W * W;
  if (common.empty()) common = {kChunk, kChunk};
  for (int m = 0; m < M; m++) {
    const int end = (seen[m].end + K - 1) / K;
    const Span before{seen[m].begin / K, end < common.begin ? end : common.begin};
    weigh_alone<F>(scores[m], chunk, before, seen[m], states[m]);
  }
  int column = 0;
  for (; column + N * W <= whole; column += N * W)
    weigh_columns<F, M, N>(scores[0], chunk, common, column, W, states);
  for (; column < whole; column += W)
    weigh_columns<F, M, 1>(scores[0], chunk, common, column, W, states);
  if (whole < chunk.v_head_dim)
    weigh_columns<F, M, 1>(scores[0], chunk, common, whole, chunk.v_head_dim - whole, states);
  for (int m = 0; m < M; m++) {
    const Span after{common.end, (seen[m].end + K - 1) / K};
    weigh_alone<F>(scores[m], chunk, after, seen[m], states[m]);
  }
}

// The softmax of M rows over one chunk. `seen`: the tokens of the chunk that each row sees; the
// state of a row that sees none is left undefined.
template <KVFormat F, int M>
void attend_tile(const float* q, const Chunk<F>& chunk, const Span* seen,
                 const SoftmaxState* states) {
  Span tokens{kChunk, 0};
  for (int m = 0; m < M; m++) {
    if (seen[m].empty()) continue;
    if (seen[m].begin < tokens.begin) tokens.begin = seen[m].begin;
    if (seen[m].end > tokens.end) tokens.end = seen[m].end;
  }
  if (tokens.empty()) return;
  const Span subs{tokens.begin / PANEL, (tokens.end + PANEL - 1) / PANEL};
  tokens = {subs.begin * PANEL, subs.end * PANEL};
  alignas(64) float scores[M][kChunk];
  score<F, M>(q, chunk, subs, scores);
  for (int m = 0; m < M; m++) {
    if (seen[m].empty()) continue;
    if constexpr (F == KVFormat::int8) scale_tokens(scores[m], chunk.keys, chunk.head_dim, subs);
    if (chunk.soft_cap != 0.f) cap(scores[m], tokens, chunk.scale, chunk.soft_cap);
    const float scale = chunk.soft_cap != 0.f ? 1.f : chunk.scale;
    softmax<F>(scores[m], tokens, seen[m], scale * kLog2E, states[m]);
    if constexpr (F == KVFormat::int8) scale_tokens(scores[m], chunk.values, chunk.v_head_dim, subs);
  }
  weigh<F, M>(scores, chunk, seen, states);
}

}  // namespace octavo

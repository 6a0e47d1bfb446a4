// The kernel of attention: a few query rows against one chunk of one KV head.
//
// Scores and outputs are both products of broadcast factors with whole vectors, one accumulator
// chain per element, ascending: over head_dim, then over the chunk's tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "attention.h"
#include "kv_pages.h"
#include "simd.h"

namespace octavo {

inline constexpr int kSubBlocks = kChunk / PANEL;  // in a chunk

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

// ---- a format's numbers ----

// Pairs lie in one 32-bit unit; both are multiplied in one step.
template <KVFormat F>
inline constexpr int kTogether = F == KVFormat::bf16 ? 2 : 1;

template <KVFormat F>
using Unit = std::conditional_t<
    F == KVFormat::f32, float,
    std::conditional_t<F == KVFormat::bf16, uint32_t, uint16_t>>;

template <KVFormat F>
using Units = std::conditional_t<F == KVFormat::bf16, U32, F32>;

// Whether factors are rounded to bf16 and multiplied in pairs.
#if defined(__AVX512BF16__)
template <KVFormat F>
inline constexpr bool kPairs = F == KVFormat::bf16;
#else
template <KVFormat F>
inline constexpr bool kPairs = false;
#endif

// Floats between the factors of one step and those of the next, in units of one row's.
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
  else return load_as<Units<F>>(from);
}

// acc[m][n] += factors of row m * units n. Factor number k of row m is at a[k * AK + m * AM].
template <KVFormat F, int M, int N, int AK, int AM>
OCTAVO_INLINE void multiply_step(F32 (&acc)[M][N], const float* a, const Units<F> (&b)[N]) {
  if constexpr (kPairs<F>) {
    for (int m = 0; m < M; m++)
      for (int n = 0; n < N; n++)
        acc[m][n] = dot_bf16(acc[m][n], U32{} + load_as<uint32_t>(a + m * AM), b[n]);
  } else {
    for (int k = 0; k < kTogether<F>; k++) {
      F32 values[N];
      for (int n = 0; n < N; n++) {
        if constexpr (F == KVFormat::bf16) values[n] = k == 0 ? low_bf16(b[n]) : high_bf16(b[n]);
        else values[n] = b[n];
      }
      for (int m = 0; m < M; m++) {
        const F32 factor = splat(a[k * AK + m * AM]);
        for (int n = 0; n < N; n++) acc[m][n] = fma(factor, values[n], acc[m][n]);
      }
    }
  }
}

// Steps begin..end - 1. Unit number i of vector n is at b[n] + step * stride + i; lanes past
// `count` are zeros.
template <KVFormat F, int M, int N, int AK, int AM>
OCTAVO_INLINE void multiply(F32 (&acc)[M][N], const float* a, const Unit<F>* const (&b)[N],
                            int64_t stride, int begin, int end, int count = W) {
  for (int step = begin; step < end; step++) {
    Units<F> units[N];
    for (int n = 0; n < N; n++) units[n] = load_units<F>(b[n] + step * stride, count);
    multiply_step<F, M, N, AK, AM>(acc, a + step * kFactors<F> * AK, units);
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
  int head_dim, v_head_dim;
  float scale, soft_cap;
};

// A row's queries lie interleaved with those of the tile's other rows, [head_dim][M] floats, or
// [head_dim / 2][M] pairs.
template <KVFormat F, int M, int J>
OCTAVO_INLINE void score_sub_blocks(const float* q, const Chunk<F>& chunk, int sub,
                                    float (*scores)[kChunk]) {
  constexpr int N = J * VECTORS;
  const Unit<F>* keys[N];
  for (int n = 0; n < N; n++) keys[n] = chunk.keys[sub + n / VECTORS] + n % VECTORS * W;
  F32 acc[M][N] = {};
  multiply<F, M, N, M, 1>(acc, q, keys, PANEL, 0, chunk.head_dim / kTogether<F>);
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

// tanh by exp; an absolute error of 1e-7 is far below what a logit can show.
OCTAVO_INLINE F32 tanh(F32 x) {
  const F32 bounded = min(max(x, splat(-10.f)), splat(10.f));
  return 1.f - 2.f / (exp(bounded + bounded) + 1.f);
}

inline void cap(float* scores, Span tokens, float scale, float soft_cap) {
  for (int t = tokens.begin; t < tokens.end; t += W)
    store(scores + t, soft_cap * tanh(load(scores + t) * (scale / soft_cap)));
}

// Scores of `tokens` (whole sub-blocks) become weights, zero outside `seen`.
template <KVFormat F>
OCTAVO_INLINE void softmax(float* scores, Span tokens, Span seen, float scale, const SoftmaxState& state) {
  constexpr float least = -std::numeric_limits<float>::infinity();
  for (int t = tokens.begin; t < seen.begin; t++) scores[t] = least;
  for (int t = seen.end; t < tokens.end; t++) scores[t] = least;
  F32 most = splat(least);
  for (int t = tokens.begin; t < tokens.end; t += W) most = max(most, load(scores + t));
  const float maximum = largest(most) * scale;
  F32 total{};
  for (int t = tokens.begin; t < tokens.end; t += W) {
    const F32 weight = exp(load(scores + t) * scale - maximum);
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
    const Unit<F>* values[N];
    for (int n = 0; n < N; n++) values[n] = chunk.values[sub] + column + n * W;
    const int first = sub * per_sub;
    const int begin = steps.begin > first ? steps.begin - first : 0;
    const int end = steps.end - first < per_sub ? steps.end - first : per_sub;
    multiply<F, M, N, 1, kChunk>(acc, weights + first * kFactors<F>, values, chunk.v_head_dim,
                                 begin, end, count);
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
      Units<F> units[1] = {load_units<F>(values + column, chunk.v_head_dim - column)};
      if constexpr (kTogether<F> == 2) {
        if (2 * step < seen.begin) units[0] &= 0xffff0000u;
        if (2 * step + 1 >= seen.end) units[0] &= 0xffffu;
      }
      F32 acc[1][1] = {{load(state.out + column)}};
      multiply_step<F, 1, 1, 1, kChunk>(acc, weights + step * kFactors<F>, units);
      store(state.out + column, acc[0][0]);
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
void attend_tile(const float* q, const Chunk<F>& chunk, const Span* seen, const SoftmaxState* states) {
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
    if (chunk.soft_cap != 0.f) cap(scores[m], tokens, chunk.scale, chunk.soft_cap);
    softmax<F>(scores[m], tokens, seen[m], chunk.soft_cap != 0.f ? 1.f : chunk.scale, states[m]);
  }
  weigh<F, M>(scores, chunk, seen, states);
}

}  // namespace octavo

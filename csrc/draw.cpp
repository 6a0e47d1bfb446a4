#include "draw.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace octavo {
namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

typedef double F64 __attribute__((vector_size(4 * W)));  // W / 2 lanes

F64 low_half(F32 v) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm512_castps512_ps256(v));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_castps256_ps128(v));
#else
  F64 half;
  for (int i = 0; i < W / 2; i++) half[i] = v[i];
  return half;
#endif
}

F64 high_half(F32 v) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
#else
  F64 half;
  for (int i = 0; i < W / 2; i++) half[i] = v[i + W / 2];
  return half;
#endif
}

double total(const double* sums, int64_t n) {
  return std::accumulate(sums, sums + n, 0.0);
}

// sums[tile] = the sum of its weights; weights_at(i) gives those from i on, 0 from n on.
template <class F>
OCTAVO_INLINE void sum_tiles(int64_t n, double* sums, F weights_at) {
  for (int64_t tile = 0; tile < tiles_of(n); tile++) {
    const int64_t end = std::min(n, (tile + 1) * TILE);
    F64 low = {}, high = {};
    for (int64_t i = tile * TILE; i < end; i += W) {
      const F32 weights = weights_at(i);
      low += low_half(weights);
      high += high_half(weights);
    }
    low += high;
    sums[tile] = total(reinterpret_cast<const double*>(&low), W / 2);
  }
}

// Weights of n logits.
struct Weights {
  Weights(const float* logits, int64_t n, const Source& from)
      : logits(logits), n(n), peak(from.peak), inverse(1 / static_cast<float>(from.temperature)) {}

  // Of the vector from i on; 0 behind the last.
  OCTAVO_INLINE F32 at(int64_t i) const {
    return exp((load_part(logits + i, n - i, -INF) - peak) * inverse);
  }

  const float* logits;
  int64_t n;
  float peak, inverse;
};

// As mass(), and weights[i], 0 below min_p.
double weigh(const float* logits, int64_t n, const Source& from, float min_p, float* weights,
             double* sums) {
  const Weights all(logits, n, from);
  sum_tiles(n, sums, [=](int64_t i) {
    const F32 weight = all.at(i);
    const F32 kept = weight < splat(min_p) ? F32{} : weight;
    store(weights + i, kept);
    return kept;
  });
  return total(sums, tiles_of(n));
}

double drop_below(float cut, int64_t n, Scratch& s) {
  sum_tiles(n, s.sums.get(), [&](int64_t i) {
    const F32 weight = load(&s.weights[i]);
    const F32 kept = weight < splat(cut) ? F32{} : weight;
    store(&s.weights[i], kept);
    return kept;
  });
  return total(s.sums.get(), tiles_of(n));
}

// The first index at which the sum of the weights so far is above noise * their total. Of the tile
// where that is, weights_of(begin, end) gives the weights.
template <class F>
int64_t invert(double noise, int64_t n, double kept, const double* sums, F weights_of) {
  const int64_t tiles = tiles_of(n);
  const double target = noise * kept;
  int64_t tile = 0;
  double sum = 0;
  while (tile + 1 < tiles && sum + sums[tile] <= target) sum += sums[tile++];
  const int64_t begin = tile * TILE, end = std::min(n, begin + TILE);
  const float* weights = weights_of(begin, end);
  int64_t last = begin;
  for (int64_t i = begin; i < end; i++) {
    if (weights[i - begin] == 0) continue;
    last = i;
    sum += weights[i - begin];
    if (sum > target) break;
  }
  return last;  // one by one the weights may sum to a little less than the tile did
}

// The smallest of n logits whose weight is `cut` or more.
float floor_of(const float* logits, const float* weights, int64_t n, float cut) {
  F32 smallest = splat(INF);
  for (int64_t i = 0; i < n; i += W) {
    const F32 x = load_part(logits + i, n - i, INF);
    smallest = min(smallest, load_part(weights + i, n - i) < splat(cut) ? splat(INF) : x);
  }
  return -largest(-smallest);
}

// Where the nucleus of all weights ends that sums to `mass`. As a rule it lies among the likeliest
// tokens, of which three quarters of the groups have one at least. s.groups are those of the
// source's logits.
float nucleus_cut(double mass, const Source& from, Scratch& s) {
  const float* weights = s.weights.get();
  const float logit = bound_of(tiles_of(from.n) * W * 3 / 4, from.n, s.groups.get());
  const float bound = Weights(&logit, 1, from).at(0)[0];
  const int64_t found = gather(weights, from.n, [&](auto w) { return w >= bound; },
                               [&](int64_t at, int64_t i) { s.values[at] = weights[i]; });
  const double sum = std::accumulate(&s.values[0], &s.values[found], 0.0);
  if (sum < mass) return mass_cut(weights, from.n, from.kept, mass, s.spare.get());
  return mass_cut(s.values.get(), found, sum, mass, s.spare.get());
}

// The index of one of n logits, drawn by noise alone.
int64_t draw_any(const float* logits, int64_t n, double noise, Scratch& s, Source& from) {
  from.kept = mass(logits, n, from, s.sums.get());
  if (n == from.n) from.all = from.kept;
  return invert(noise, n, from.kept, s.sums.get(), [&](int64_t begin, int64_t end) {
    double sum;
    weigh(logits + begin, end - begin, from, 0, s.weights.get(), &sum);
    return s.weights.get();
  });
}

// The index of one of n logits, drawn by min_p, top_p and noise: of all logits, or of those in
// s.values, which top_k left.
int64_t draw_among(const float* logits, int64_t n, const Controls& c, Scratch& s, Source& from) {
  float cut = static_cast<float>(c.min_p);
  if (cut == 0 && c.top_p == 1) return draw_any(logits, n, c.noise, s, from);
  float* weights = s.weights.get();
  from.kept = weigh(logits, n, from, cut, weights, s.sums.get());
  if (n == from.n && cut == 0) from.all = from.kept;
  if (c.top_p < 1) {
    const double goal = c.top_p * from.kept;
    const float end = logits == from.logits ? nucleus_cut(goal, from, s)
                                            : mass_cut(weights, n, from.kept, goal, s.spare.get());
    cut = std::max(cut, end);
    from.kept = drop_below(cut, n, s);
  }
  if (c.processed != 0) from.floor = std::max(from.floor, floor_of(logits, weights, n, cut));
  return invert(c.noise, n, from.kept, s.sums.get(),
                [&](int64_t begin, int64_t) { return weights + begin; });
}

}  // namespace

double mass(const float* logits, int64_t n, const Source& from, double* sums) {
  const Weights all(logits, n, from);
  sum_tiles(n, sums, [=](int64_t i) { return all.at(i); });
  return total(sums, tiles_of(n));
}

int64_t draw(const Controls& c, Scratch& s, Source& from) {
  if (c.temperature == 0) return first_of(from.peak, from.logits, from.n, s.groups.get());
  if (c.top_k == 0 || c.top_k >= static_cast<double>(from.n))
    return draw_among(from.logits, from.n, c, s, from);
  const int64_t k = static_cast<int64_t>(c.top_k);
  const float bound = bound_of(k, from.n, s.groups.get());
  const int64_t found = gather(from.logits, from.n, [&](auto x) { return x >= bound; },
                               [&](int64_t at, int64_t i) {
                                 s.ids[at] = static_cast<int32_t>(i);
                                 s.values[at] = from.logits[i];
                               });
  const float kth = nth_largest(k, s.values.get(), found, s.spare.get());
  int64_t count = 0;
  for (int64_t i = 0; i < found; i++) {
    s.ids[count] = s.ids[i];
    s.values[count] = s.values[i];
    count += s.values[i] >= kth;
  }
  from.floor = std::max(from.floor, kth);
  return s.ids[draw_among(s.values.get(), count, c, s, from)];
}

}  // namespace octavo

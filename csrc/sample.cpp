#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>

#include "select.h"

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

// What a thread needs to draw a row.
struct Scratch {
  explicit Scratch(int64_t vocab)
      : edited(new float[vocab]), values(new float[vocab]), weights(new float[vocab + W]),
        ids(new int32_t[vocab]), groups(new float[tiles_of(vocab) * W]),
        sums(new double[tiles_of(vocab)]), uses(new int32_t[vocab]()) {}

  std::unique_ptr<float[]> edited;   // a row's logits, where it has edits or penalties
  std::unique_ptr<float[]> values;   // candidates for the draw
  std::unique_ptr<float[]> weights;  // theirs
  std::unique_ptr<int32_t[]> ids;    // theirs
  std::unique_ptr<float[]> groups;   // see select.h
  std::unique_ptr<double[]> sums;    // of a tile's weights
  std::unique_ptr<int32_t[]> uses;   // of a token in a row; all 0 between rows
};

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

// weights[i] = e^((logits[i] - peak) / temperature), 0 below min_p; sums of their tiles.
void weigh(const float* logits, int64_t n, float peak, float temperature, float min_p,
           float* weights, double* sums) {
  const float inverse = 1 / temperature;
  sum_tiles(n, sums, [&](int64_t i) {
    const F32 weight = exp((load_part(logits + i, n - i, -INF) - peak) * inverse);
    const F32 kept = weight < splat(min_p) ? F32{} : weight;
    store(weights + i, kept);
    return kept;
  });
}

void drop_below(float cut, int64_t n, Scratch& s) {
  sum_tiles(n, s.sums.get(), [&](int64_t i) {
    const F32 weight = load(&s.weights[i]);
    const F32 kept = weight < splat(cut) ? F32{} : weight;
    store(&s.weights[i], kept);
    return kept;
  });
}

// The first index at which the sum of the weights so far is above noise * their total.
int64_t invert(double noise, int64_t n, const Scratch& s) {
  const int64_t tiles = tiles_of(n);
  const double target = noise * total(s.sums.get(), tiles);
  int64_t tile = 0;
  double sum = 0;
  while (tile + 1 < tiles && sum + s.sums[tile] <= target) sum += s.sums[tile++];
  int64_t last = 0;
  for (int64_t i = tile * TILE; i < std::min(n, (tile + 1) * TILE); i++) {
    if (s.weights[i] == 0) continue;
    last = i;
    sum += s.weights[i];
    if (sum > target) break;
  }
  return last;  // one by one the weights may sum to a little less than the tile did
}

int64_t draw_among(const float* logits, int64_t n, float peak, const Controls& c, Scratch& s) {
  float* weights = s.weights.get();
  weigh(logits, n, peak, static_cast<float>(c.temperature), static_cast<float>(c.min_p), weights,
        s.sums.get());
  if (c.top_k > 0 && c.top_k < n)
    drop_below(rank_cut(weights, n, static_cast<int64_t>(c.top_k), s.values.get()), n, s);
  if (c.top_p < 1) {
    const double all = total(s.sums.get(), tiles_of(n));
    drop_below(mass_cut(weights, n, all, c.top_p * all, s.values.get()), n, s);
  }
  return invert(c.noise, n, s);
}

int64_t draw(const float* logits, int64_t vocab, float peak, const Controls& c, Scratch& s) {
  if (c.temperature == 0) return first_of(peak, logits, vocab, s.groups.get());
  if (c.top_k == 0) return draw_among(logits, vocab, peak, c, s);
  const float bound = bound_of(static_cast<int64_t>(c.top_k), vocab, s.groups.get());
  const int64_t count = gather(logits, vocab, [&](auto x) { return x >= bound; },
                               [&](int64_t at, int64_t i) {
                                 s.ids[at] = static_cast<int32_t>(i);
                                 s.values[at] = logits[i];
                               });
  return s.ids[draw_among(s.values.get(), count, peak, c, s)];
}

float scaled(float logit, float scale) { return logit > 0 ? logit / scale : logit * scale; }

// Each token once, however often it is there.
void penalise(const SampleJob& job, const Controls& c, float* logits, int32_t* uses) {
  const std::span known(job.tokens + static_cast<int64_t>(c.known),
                        job.tokens + static_cast<int64_t>(c.end));
  const auto generated = known.subspan(static_cast<size_t>(c.generated - c.known));
  if (c.repetition != 1) {
    const float scale = static_cast<float>(c.repetition);
    for (int32_t token : known)
      if (uses[token]++ == 0) logits[token] = scaled(logits[token], scale);
    for (int32_t token : known) uses[token] = 0;
  }
  for (int32_t token : generated) uses[token]++;
  for (int32_t token : generated) {
    if (uses[token] == 0) continue;
    logits[token] -= static_cast<float>(c.frequency * uses[token] + c.presence);
    uses[token] = 0;
  }
}

// The row's logits with its edits and penalties.
const float* adjust(const SampleJob& job, int64_t row, Scratch& s) {
  const float* logits = job.logits + row * job.vocab;
  const Controls& c = job.controls[row];
  const auto [begin, end] = std::equal_range(
      job.edits, job.edits + job.num_edits, Edit{static_cast<double>(row), 0, 0},
      [](const Edit& a, const Edit& b) { return a.row < b.row; });
  if (begin == end && c.known == c.end) return logits;
  std::copy_n(logits, job.vocab, s.edited.get());
  for (const Edit* edit = begin; edit != end; edit++)
    s.edited[static_cast<int64_t>(edit->token)] += static_cast<float>(edit->shift);
  penalise(job, c, s.edited.get(), s.uses.get());
  return s.edited.get();
}

// ids[0..count) get the likeliest tokens, likeliest first, equals by lower id. s.groups are those
// of `logits`.
const int32_t* likeliest(const float* logits, int64_t vocab, int64_t count, Scratch& s) {
  int32_t* ids = s.ids.get();
  const float bound = bound_of(count, vocab, s.groups.get());
  const int64_t found = gather(logits, vocab, [&](auto x) { return x >= bound; },
                               [&](int64_t at, int64_t i) { ids[at] = static_cast<int32_t>(i); });
  std::partial_sort(ids, ids + count, ids + found, [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  return ids;
}

void tell_logprobs(const SampleJob& job, int64_t row, int64_t count, Scratch& s) {
  const float* logits = job.logits + row * job.vocab;
  Drawn& drawn = job.drawn[row];
  const float mine = logits[static_cast<int64_t>(drawn.token)];
  const float peak = group_maxima(logits, job.vocab, s.groups.get());
  I32 larger = {};
  sum_tiles(job.vocab, s.sums.get(), [&](int64_t i) {
    const F32 x = load_part(logits + i, job.vocab - i, -INF);
    larger -= x > splat(mine);  // true is -1
    return exp(x - peak);
  });
  const double norm = peak + std::log(total(s.sums.get(), tiles_of(job.vocab)));
  drawn.logprob = mine - norm;
  drawn.rank = 1;
  for (int i = 0; i < W; i++) drawn.rank += larger[i];
  if (count == 0) return;
  const int32_t* ids = likeliest(logits, job.vocab, count, s);
  for (int64_t i = 0; i < count; i++)
    job.likely[row * job.width + i] = {static_cast<double>(ids[i]), logits[ids[i]] - norm};
}

void sample_row(const SampleJob& job, int64_t row, Scratch& s) {
  const Controls& c = job.controls[row];
  const float* logits = adjust(job, row, s);
  const float peak = group_maxima(logits, job.vocab, s.groups.get());
  job.drawn[row] = {-1, peak, 0, 0};
  if (!std::isfinite(peak)) return;
  job.drawn[row].token = static_cast<double>(draw(logits, job.vocab, peak, c, s));
  if (c.logprobs >= 0)
    tell_logprobs(job, row, std::min(static_cast<int64_t>(c.logprobs), job.vocab), s);
}

}  // namespace

void sample(Team& team, const SampleJob& job) {
  Scratch s(job.vocab);
  team.each(job.rows, 1, [&](int64_t row) { sample_row(job, row, s); });
}

}  // namespace octavo

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
constexpr float LOWEST = std::numeric_limits<float>::lowest();

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
        spare(new float[vocab]), ids(new int32_t[vocab]), groups(new float[tiles_of(vocab) * W]),
        sums(new double[tiles_of(vocab)]) {}

  std::unique_ptr<float[]> edited;   // a row's logits, where it has edits or penalties
  std::unique_ptr<float[]> values;   // candidates for the draw
  std::unique_ptr<float[]> weights;  // theirs
  std::unique_ptr<float[]> spare;    // for select.h
  std::unique_ptr<int32_t[]> ids;    // of candidates
  std::unique_ptr<float[]> groups;   // see select.h
  std::unique_ptr<double[]> sums;    // of a tile's weights
  std::unique_ptr<int32_t[]> uses;   // of a token in a row; all 0 between rows; made when needed
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

// What a row is drawn from: logits divided by a temperature. A token's weight is
// e^((logit - peak) / temperature).
struct Source {
  const float* logits;
  int64_t n;
  float peak;          // the largest
  double temperature;
  float floor;         // the smallest that survived the cuts
  double all;          // the sum of all weights; 0 where it was not needed
  double kept;         // of the survivors'
};

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

// The sum of the weights of n logits, and the sums of their tiles.
double mass(const float* logits, int64_t n, const Source& from, double* sums) {
  const Weights all(logits, n, from);
  sum_tiles(n, sums, [=](int64_t i) { return all.at(i); });
  return total(sums, tiles_of(n));
}

// The same, and weights[i], 0 below min_p.
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

// Where the nucleus of all weights ends that sums to `mass`. It lies as a rule among the likeliest,
// which a quarter of the groups have one of each. s.groups are those of the source's logits.
float nucleus_cut(double mass, const Source& from, Scratch& s) {
  const float* weights = s.weights.get();
  const float logit = bound_of(tiles_of(from.n) * W / 4, from.n, s.groups.get());
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

// s.groups are those of the source's logits.
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

std::span<const int32_t> ids_between(const SampleJob& job, double begin, double end) {
  return {job.ids + static_cast<int64_t>(begin), job.ids + static_cast<int64_t>(end)};
}

float scaled(float logit, float scale) { return logit > 0 ? logit / scale : logit * scale; }

// Each token once, however often it is there.
void penalise(const SampleJob& job, const Controls& c, float* logits, Scratch& s) {
  if (c.known == c.allowed) return;
  if (!s.uses) s.uses = std::make_unique<int32_t[]>(static_cast<size_t>(job.vocab));
  int32_t* uses = s.uses.get();
  const std::span known = ids_between(job, c.known, c.allowed);
  const std::span generated = ids_between(job, c.generated, c.allowed);
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

// to[i] = logits[i] for those allowed, else -inf: added, not set, so that a NaN stays visible.
void allow(const float* logits, int64_t n, std::span<const int32_t> allowed, float* to) {
  for (int64_t i = 0; i < n; i++) to[i] = logits[i] - INF;
  for (int32_t token : allowed) to[token] = logits[token];
}

// The logits that the row draws from: as they came, or with its edits and penalties.
const float* adjust(const SampleJob& job, int64_t row, Scratch& s) {
  const Controls& c = job.controls[row];
  const float* logits = c.work < 0 ? job.logits + row * job.vocab
                                   : job.work + static_cast<int64_t>(c.work) * job.vocab;
  const auto [begin, end] = std::equal_range(
      job.edits, job.edits + job.num_edits, Edit{static_cast<double>(row), 0, 0},
      [](const Edit& a, const Edit& b) { return a.row < b.row; });
  if (begin == end && c.known == c.named) return logits;
  float* edited = s.edited.get();
  if (c.allowed == c.named)
    std::copy_n(logits, job.vocab, edited);
  else
    allow(logits, job.vocab, ids_between(job, c.allowed, c.named), edited);
  for (const Edit* edit = begin; edit != end; edit++)
    edited[static_cast<int64_t>(edit->token)] += static_cast<float>(edit->shift);
  penalise(job, c, edited, s);
  return edited;
}

// ids[0..count) get the likeliest tokens, likeliest first, equals by lower id. s.groups are those
// of `logits`.
const int32_t* likeliest(const float* logits, int64_t vocab, int64_t count, Scratch& s) {
  int32_t* ids = s.ids.get();
  const float bound = bound_of(count, vocab, s.groups.get());
  const int64_t found = gather(logits, vocab, [&](auto x) { return x >= bound; },
                               [&](int64_t at, int64_t i) { ids[at] = static_cast<int32_t>(i); });
  const auto comes_first = [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::nth_element(ids, ids + count - 1, ids + found, comes_first);
  std::sort(ids, ids + count, comes_first);
  return ids;
}

// The logits as they came. Fills s.groups.
Source untouched(const SampleJob& job, int64_t row, Scratch& s) {
  const float* logits = job.logits + row * job.vocab;
  const float peak = group_maxima(logits, job.vocab, s.groups.get());
  return {logits, job.vocab, peak, 1, -INF, 0, 0};
}

double rank_of(float mine, const float* logits, int64_t n) {
  I32 larger = {};
  for (int64_t i = 0; i < n; i += W)
    larger -= load_part(logits + i, n - i, -INF) > splat(mine);  // true is -1
  double rank = 1;
  for (int i = 0; i < W; i++) rank += larger[i];
  return rank;
}

// What there is to tell of a row's token. s.groups are those of the source's logits.
void tell(const SampleJob& job, int64_t row, Source from, Scratch& s) {
  const Controls& c = job.controls[row];
  Drawn& drawn = job.drawn[row];
  if (from.all == 0) from.all = mass(from.logits, from.n, from, s.sums.get());
  if (from.kept == 0) from.kept = from.all;
  drawn.log_mass = std::min(0.0, std::log(from.kept / from.all));
  const double norm = std::log(from.kept);
  const auto logprob = [&](int64_t token) {
    const float x = from.logits[token];
    return x < from.floor ? -INF : (static_cast<double>(x) - from.peak) / from.temperature - norm;
  };
  const int64_t token = static_cast<int64_t>(drawn.token);
  drawn.logprob = logprob(token);
  drawn.rank = rank_of(from.logits[token], from.logits, from.n);
  const int64_t count = static_cast<int64_t>(c.logprobs);
  Likely* likely = job.likely + static_cast<int64_t>(c.likely);
  if (count > 0) {
    const int32_t* ids = likeliest(from.logits, from.n, count, s);
    int64_t told = 0;
    for (; told < count && from.logits[ids[told]] >= from.floor; told++)
      likely[told] = {static_cast<double>(ids[told]), logprob(ids[told])};
    drawn.told = static_cast<double>(told);
  }
  likely += count;
  for (int32_t named : ids_between(job, c.named, c.end))
    *likely++ = {static_cast<double>(named), logprob(named)};
}

// The logits as they came, to tell of. `from` is what was drawn from.
Source as_they_came(const SampleJob& job, int64_t row, const Source& from, Scratch& s) {
  if (from.logits != job.logits + row * job.vocab) return untouched(job, row, s);
  const double all = from.temperature == 1 ? from.all : 0;
  return {from.logits, from.n, from.peak, 1, -INF, all, all};
}

void tell_given(const SampleJob& job, int64_t row, Scratch& s) {
  const Controls& c = job.controls[row];
  const Source from = untouched(job, row, s);
  const bool is_sound = std::isfinite(from.peak);
  job.drawn[row] = {is_sound ? c.given : -1, from.peak, 0, 0, 0, 0};
  if (is_sound && c.logprobs >= 0) tell(job, row, from, s);
}

void sample_row(const SampleJob& job, int64_t row, Scratch& s) {
  const Controls& c = job.controls[row];
  if (c.given >= 0) return tell_given(job, row, s);
  const float* logits = adjust(job, row, s);
  const float peak = group_maxima(logits, job.vocab, s.groups.get());
  job.drawn[row] = {-1, peak, 0, 0, 0, 0};
  if (!std::isfinite(peak)) return;
  Source from{logits, job.vocab, peak, c.temperature == 0 ? 1 : c.temperature, LOWEST, 0, 0};
  job.drawn[row].token = static_cast<double>(draw(c, s, from));
  if (c.logprobs < 0) return;
  tell(job, row, c.processed == 0 ? as_they_came(job, row, from, s) : from, s);
}

}  // namespace

void sample(Team& team, const SampleJob& job) {
  Scratch s(job.vocab);
  team.each(job.rows, 1, [&](int64_t row) { sample_row(job, row, s); });
}

}  // namespace octavo

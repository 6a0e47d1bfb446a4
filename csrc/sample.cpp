#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "draw.h"

namespace octavo {
namespace {

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr float LOWEST = std::numeric_limits<float>::lowest();

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

// to[i] = logits[i] for those whose bit is set, else -inf; `to` may be `logits`.
void mask_out(const float* logits, int64_t n, const uint32_t* mask, int64_t words, float* to) {
  constexpr int BITS = 32;
  const int64_t whole = std::min(words, n / BITS);
  for (int64_t w = 0; w < whole; w++)
    for (int i = 0; i < BITS; i++)
      to[w * BITS + i] = logits[w * BITS + i] - (mask[w] >> i & 1 ? 0 : INF);
  for (int64_t i = whole * BITS; i < n; i++)
    to[i] = logits[i] - (i / BITS < words && mask[i / BITS] >> i % BITS & 1 ? 0 : INF);
}

// The logits that the row draws from: as they came, or with its edits and penalties.
const float* adjust(const SampleJob& job, int64_t row, Scratch& s) {
  const Controls& c = job.controls[row];
  const float* logits = c.work < 0 ? job.logits + row * job.vocab
                                   : job.work + static_cast<int64_t>(c.work) * job.vocab;
  const auto [begin, end] = std::equal_range(
      job.edits, job.edits + job.num_edits, Edit{static_cast<double>(row), 0, 0},
      [](const Edit& a, const Edit& b) { return a.row < b.row; });
  if (begin == end && c.known == c.named && c.mask < 0) return logits;
  float* edited = s.edited.get();
  if (c.allowed == c.named)
    std::copy_n(logits, job.vocab, edited);
  else
    allow(logits, job.vocab, ids_between(job, c.allowed, c.named), edited);
  if (c.mask >= 0)
    mask_out(edited, job.vocab, job.masks + static_cast<int64_t>(c.mask) * job.words, job.words,
             edited);
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

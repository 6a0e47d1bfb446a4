#include "routes.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "activation.h"
#include "simd.h"

namespace octavo {
namespace {

constexpr float INF = std::numeric_limits<float>::infinity();

// So that values have an order.
float number(float x) { return x == x ? x : -INF; }

// y := softmax(x), both [n], with room for a whole vector behind y. y may be x.
void softmax(const float* x, int64_t n, float* y) {
  const float most = *std::max_element(x, x + n);
  F32 totals{};
  for (int64_t i = 0; i < n; i += W) {
    const F32 power = exp(load_part(x + i, n - i, -INF) - most);
    store(y + i, power);
    totals += power;
  }
  const float total = sum(totals);
  for (int64_t i = 0; i < n; i++) y[i] /= total;
}

// scores [n], with room for a whole vector behind them.
void score(Scoring scoring, const float* logits, int64_t n, float* scores) {
  switch (scoring) {
    case Scoring::softmax:
      return softmax(logits, n, scores);
    case Scoring::softmax_of_top:
      std::copy_n(logits, n, scores);
      return;
    case Scoring::sigmoid:
      for (int64_t i = 0; i < n; i += W) store(scores + i, sigmoid(load_part(logits + i, n - i)));
  }
}

// The indices of the k largest of n values first; of equal ones the lower index.
void rank(const float* values, int64_t n, int64_t k, int32_t* ids) {
  std::iota(ids, ids + n, 0);
  std::partial_sort(ids, ids + k, ids + n, [&](int32_t a, int32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
}

float score_of_group(GroupScore kind, const float* values, int64_t n) {
  float first = -INF, second = -INF;
  for (int64_t i = 0; i < n; i++) {
    second = std::max(second, std::min(first, values[i]));
    first = std::max(first, values[i]);
  }
  return kind == GroupScore::max ? first : number(first + second);
}

// All but the best groups out of the choice.
void keep_groups(const Router& router, float* choice) {
  const int64_t size = router.experts / router.groups;
  float scores[kMostExperts];
  int32_t ids[kMostExperts];
  for (int64_t g = 0; g < router.groups; g++)
    scores[g] = score_of_group(router.group_score, choice + g * size, size);
  rank(scores, router.groups, router.top_groups, ids);
  for (int64_t i = router.top_groups; i < router.groups; i++)
    std::fill_n(choice + ids[i] * size, size, -INF);
}

}  // namespace

void Router::choose(const float* logits, int32_t* chosen, float* weights) const {
  float scores[kMostExperts], choice[kMostExperts], top[kMostExperts];
  int32_t ids[kMostExperts];
  score(scoring, logits, experts, scores);
  for (int64_t e = 0; e < experts; e++)
    choice[e] = number(bias.empty() ? scores[e] : scores[e] + bias[e]);
  if (top_groups < groups) keep_groups(*this, choice);
  rank(choice, experts, top_k, ids);
  std::sort(ids, ids + top_k);
  for (int64_t i = 0; i < top_k; i++) top[i] = scores[ids[i]];
  if (scoring == Scoring::softmax_of_top) softmax(top, top_k, top);
  const float total = std::accumulate(top, top + top_k, 0.f) + eps;
  const float factor = normalise ? scale / total : scale;
  for (int64_t i = 0; i < top_k; i++) weights[i] = top[i] * factor;
  std::copy_n(ids, top_k, chosen);
}

Routes::Routes(int64_t experts, int64_t top_k) : top_k(top_k), next_(experts) {}

void Routes::fit(int64_t tokens) {
  pairs = tokens * top_k;
  if (pairs <= static_cast<int64_t>(chosen.size())) return;
  chosen.resize(pairs);
  weights.resize(pairs);
  places.resize(pairs);
  sorted.resize(pairs);
  spans.reserve(pairs);
}

void Routes::sort(int64_t most) {
  std::fill(next_.begin(), next_.end(), 0);
  for (int64_t pair = 0; pair < pairs; pair++) next_[chosen[pair]]++;
  spans.clear();
  int64_t row = 0;
  for (int64_t& next : next_) {
    const int64_t rows = std::exchange(next, row), parts = (rows + most - 1) / most;
    const auto first = static_cast<int64_t>(spans.size());
    for (int64_t i = 0; i < parts; i++) {
      const int64_t begin = rows * i / parts, end = rows * (i + 1) / parts;
      spans.push_back({&next - next_.data(), row + begin, end - begin, first, parts});
    }
    row += rows;
  }
  for (int64_t pair = 0; pair < pairs; pair++) {
    const int64_t place = next_[chosen[pair]]++;
    places[pair] = static_cast<int32_t>(place);
    sorted[place] = static_cast<int32_t>(pair);
  }
}

}  // namespace octavo

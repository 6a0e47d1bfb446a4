#include "select.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace octavo {
namespace {

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr int BITS = 10;  // of a digit; three make a float up to 1, whose two highest bits are 0
constexpr int DIGITS = 1 << BITS;

// The sum of each digit's values. Neighbours are often equal: four sums for each digit, so that
// one addition need not wait for the one before. Vectors all below `low` are left out.
void sum_digits(const float* values, int64_t n, float low, int shift, double* sums) {
  double parts[DIGITS][4] = {};
  for (int64_t i = 0; i < n; i += W) {
    if (!any(load_part(values + i, n - i, low) >= low)) continue;
    const int64_t end = std::min(n, i + W);
    for (int64_t j = i; j < end; j++)
      parts[(std::bit_cast<uint32_t>(values[j]) >> shift) % DIGITS][j % 4] += values[j];
  }
  for (int d = 0; d < DIGITS; d++) sums[d] = parts[d][0] + parts[d][1] + parts[d][2] + parts[d][3];
}

}  // namespace

float group_maxima(const float* values, int64_t n, float* groups) {
  F32 largest_of_all = splat(-INF);
  I32 nans = {};
  for (int64_t tile = 0; tile < tiles_of(n); tile++) {
    const int64_t end = std::min(n, (tile + 1) * TILE);
    F32 maxima = splat(-INF);
    for (int64_t i = tile * TILE; i < end; i += W) {
      const F32 v = load_part(values + i, end - i, -INF);
      maxima = max(maxima, v);
      nans |= v != v;
    }
    store(groups + tile * W, maxima);
    largest_of_all = max(largest_of_all, maxima);
  }
  return any(nans) ? std::numeric_limits<float>::quiet_NaN() : largest(largest_of_all);
}

int64_t first_of(float largest, const float* values, int64_t n, const float* groups) {
  const int64_t group = std::find(groups, groups + tiles_of(n) * W, largest) - groups;
  return std::find(values + group / W * TILE, values + n, largest) - values;
}

float bound_of(int64_t k, int64_t n, float* groups) {
  const int64_t count = tiles_of(n) * W;
  if (k > count) return -INF;
  std::nth_element(groups, groups + k - 1, groups + count, std::greater<float>());
  return groups[k - 1];
}

float nth_largest(int64_t k, const float* values, int64_t n, float* scratch) {
  std::copy_n(values, n, scratch);
  std::nth_element(scratch, scratch + k - 1, scratch + n, std::greater<float>());
  return scratch[k - 1];
}

float mass_cut(const float* values, int64_t n, double total, double mass, float* scratch) {
  // What lies below this cannot make up what is missing to the total.
  const float low = static_cast<float>(0.999 * (total - mass) / static_cast<double>(n));
  double above = 0;   // the sum of values larger than those kept
  uint32_t bits = 0;  // of the cut, as far as they are known
  for (int shift = 2 * BITS; shift >= 0; shift -= BITS) {
    double sums[DIGITS];
    sum_digits(values, n, low, shift, sums);
    uint32_t lowest = 0, digit = DIGITS - 1;
    while (lowest < digit && sums[lowest] == 0) lowest++;
    while (digit > lowest && above + sums[digit] < mass) above += sums[digit--];
    bits |= digit << shift;
    const float from = std::bit_cast<float>(bits), to = std::bit_cast<float>(bits + (1u << shift));
    n = gather(values, n, [&](auto v) { return (v >= from) & (v < to); },
               [&](int64_t at, int64_t i) { scratch[at] = values[i]; });
    values = scratch;
  }
  return std::bit_cast<float>(bits);
}

}  // namespace octavo

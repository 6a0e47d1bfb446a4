#include "select.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace octavo {
namespace {

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr int DIGITS = 1024;  // values of a digit; 10 bits, and 11 on top of which one is the sign

int digit(float value, int shift) { return (std::bit_cast<uint32_t>(value) >> shift) % DIGITS; }

}  // namespace

float group_maxima(const float* values, int64_t n, float* groups) {
  F32 largest_of_all = splat(-INF);
  I32 nans = {};
  for (int64_t tile = 0; tile < tiles_of(n); tile++) {
    const int64_t end = std::min(n, (tile + 1) * TILE);
    F32 maxima = splat(-INF);
    for (int64_t i = tile * TILE; i < end; i += W) {
      const F32 v = load_some(values + i, end - i, -INF);
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

float mass_cut(float* values, int64_t n, double mass) {
  double above = 0;  // the sum of the values that are larger than those kept
  for (int shift = 20; shift >= 0 && n > 1; shift -= 10) {
    double sums[DIGITS] = {};
    int lowest = DIGITS;
    for (int64_t i = 0; i < n; i++) {
      sums[digit(values[i], shift)] += values[i];
      lowest = std::min(lowest, digit(values[i], shift));
    }
    int cut = DIGITS - 1;
    while (cut > lowest && above + sums[cut] < mass) above += sums[cut--];
    n = std::copy_if(values, values + n, values,
                     [&](float v) { return digit(v, shift) == cut; }) - values;
  }
  return values[0];
}

}  // namespace octavo

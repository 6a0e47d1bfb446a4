#include "state_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "activation.h"

namespace octavo {
namespace {

constexpr int64_t kColumns = 32;    // of a panel
constexpr int VS = kColumns / W;    // vectors in one of its rows
constexpr int64_t kChannels = 128;  // that a thread convolves at a time

int64_t grain_of(const Team& team, int64_t items) {
  return std::clamp<int64_t>(items / (16 * team.threads()), 1, 8);
}

// Part of a state: as it is before a token, and where it goes.
struct Panel {
  const float* from;
  float* to;  // may be `from`
  int64_t depth;
  int64_t columns;  // kColumns, if WHOLE

  template <bool WHOLE>
  OCTAVO_INLINE F32 get(const float* row, int v) const {
    if constexpr (WHOLE) return load(row + v * W);
    else return load_part(row + v * W, columns - v * W);
  }
  template <bool WHOLE>
  OCTAVO_INLINE void put(float* row, int v, F32 value) const {
    if constexpr (WHOLE) store(row + v * W, value);
    else store_part(row + v * W, value, columns - v * W);
  }
};

// fn<WHOLE>(row, head, column) for each panel of each head's state.
template <class F>
void each_panel(Team& team, int64_t rows, int64_t heads, int64_t width, F&& fn) {
  const int64_t panels = (width + kColumns - 1) / kColumns, items = rows * heads * panels;
  team.each(items, grain_of(team, items), [&](int64_t item) {
    const int64_t row = item / panels / heads, head = item / panels % heads;
    const int64_t column = item % panels * kColumns;
    if (column + kColumns <= width) fn.template operator()<true>(row, head, column);
    else fn.template operator()<false>(row, head, column);
  });
}

// fn(token, panel) for each token of a row, in order. The panel begins `at` floats into the state.
template <class F>
OCTAVO_INLINE void each_token(const StateRows& rows, int64_t row, int64_t at, int64_t depth,
                              int64_t columns, F&& fn) {
  const float* const source = rows.source(row);
  float* const to = rows.target(row) + at;
  const int64_t begin = rows.row_starts[row], end = rows.row_starts[row + 1];
  if (source == nullptr) std::fill_n(to, depth * columns, 0.f);
  else if (begin == end) std::copy_n(source + at, depth * columns, to);
  Panel panel{source ? source + at : to, to, depth, columns};
  for (int64_t token = begin; token < end; token++, panel.from = to) fn(token, panel);
}

// ---- scans ----

// dt = clamp(softplus(step + bias), low, high), in place.
void time_steps(Team& team, int64_t tokens, int64_t count, const float* bias, float low,
                float high, Lines steps) {
  team.each(tokens, grain_of(team, tokens), [&](int64_t token) {
    float* const step = steps[token];
    for (int64_t i = 0; i < count; i += W) {
      F32 v = load_part(step + i, count - i);
      if (bias != nullptr) v += load_part(bias + i, count - i);
      store_part(step + i, min(max(softplus(v), splat(low)), splat(high)), count - i);
    }
  });
}

// What one token brings to a panel: its columns of x and d, and B and C of all states.
struct Token {
  const float *x, *d, *b, *c;
  float* y;
};

// decay(n, v): of state n in vector v of the columns.
template <bool WHOLE, class Decay>
OCTAVO_INLINE void scan(const Panel& panel, const Token& token, const F32 (&dt)[VS],
                        Decay&& decay) {
  F32 x[VS], y[VS];
#pragma GCC unroll 4
  for (int v = 0; v < VS; v++) {
    const F32 value = panel.get<WHOLE>(token.x, v);
    x[v] = dt[v] * value;
    y[v] = panel.get<WHOLE>(token.d, v) * value;
  }
  for (int64_t n = 0; n < panel.depth; n++) {
    const float* const from = panel.from + n * panel.columns;
    float* const to = panel.to + n * panel.columns;
    const F32 b = splat(token.b[n]), c = splat(token.c[n]);
#pragma GCC unroll 4
    for (int v = 0; v < VS; v++) {
      const F32 h = fma(panel.get<WHOLE>(from, v), decay(n, v), x[v] * b);
      panel.put<WHOLE>(to, v, h);
      y[v] = fma(h, c, y[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < VS; v++) panel.put<WHOLE>(token.y, v, y[v]);
}

// ---- the delta rule ----

// x *= factor / |x|, as far as |x| is above 1e-3.
void to_length(float* x, int64_t n, float factor) {
  F32 squares{};
  for (int64_t i = 0; i < n; i += W) {
    const F32 v = load_part(x + i, n - i);
    squares = fma(v, v, squares);
  }
  const F32 scale = splat(factor / std::sqrt(sum(squares) + 1e-6f));
  for (int64_t i = 0; i < n; i += W) store_part(x + i, load_part(x + i, n - i) * scale, n - i);
}

float dot(const float* a, const float* b, int64_t n) {
  F32 products{};
  for (int64_t i = 0; i < n; i += W)
    products = fma(load_part(a + i, n - i), load_part(b + i, n - i), products);
  return sum(products);
}

void prepare(const GatedDelta& delta, float* qkv, float* decay, float* beta) {
  const float scale = 1.f / std::sqrt(static_cast<float>(delta.key_dim));
  for (int64_t head = 0; head < 2 * delta.key_heads; head++)
    to_length(qkv + head * delta.key_dim, delta.key_dim, head < delta.key_heads ? scale : 1.f);
  const int64_t decays = delta.decays(), heads = delta.value_heads;
  for (int64_t i = 0; i < decays; i += W) {
    const auto part = [&](const float* from) { return load_part(from + i, decays - i); };
    const F32 rate = part(delta.a.data()) * softplus(part(decay) + part(delta.dt_bias.data()));
    store_part(decay + i, exp(rate), decays - i);
  }
  for (int64_t i = 0; i < heads; i += W)
    store_part(beta + i, sigmoid(load_part(beta + i, heads - i)) * delta.beta_scale, heads - i);
}

// What one token brings to a panel; e of key channel i is decay[i * decay_step].
struct DeltaToken {
  const float *q, *k, *v, *decay;
  int64_t decay_step;
  float beta;
  float* y;
};

template <bool WHOLE>
OCTAVO_INLINE void update(const Panel& panel, const DeltaToken& token) {
  F32 known[VS] = {}, y[VS] = {}, change[VS];  // known = (e S)^T k
  for (int64_t i = 0; i < panel.depth; i++) {
    const float* const from = panel.from + i * panel.columns;
    float* const to = panel.to + i * panel.columns;
    const F32 decay = splat(token.decay[i * token.decay_step]);
    const F32 k = splat(token.k[i]), q = splat(token.q[i]);
#pragma GCC unroll 4
    for (int v = 0; v < VS; v++) {
      const F32 s = panel.get<WHOLE>(from, v) * decay;
      panel.put<WHOLE>(to, v, s);
      known[v] = fma(s, k, known[v]);
      y[v] = fma(s, q, y[v]);
    }
  }
  const F32 overlap = splat(dot(token.q, token.k, panel.depth));
#pragma GCC unroll 4
  for (int v = 0; v < VS; v++) {
    change[v] = (panel.get<WHOLE>(token.v, v) - known[v]) * token.beta;
    panel.put<WHOLE>(token.y, v, fma(change[v], overlap, y[v]));
  }
  for (int64_t i = 0; i < panel.depth; i++) {
    float* const to = panel.to + i * panel.columns;
    const F32 k = splat(token.k[i]);
#pragma GCC unroll 4
    for (int v = 0; v < VS; v++)
      panel.put<WHOLE>(to, v, fma(change[v], k, panel.get<WHOLE>(to, v)));
  }
}

// ---- convolution ----

// One row, in `count` channels from `first` on.
void convolve_row(const Convolution& conv, const StateRows& rows, int64_t row, int64_t first,
                  int64_t count, Lines x, Lines y) {
  static constexpr float kZeros[kChannels] = {};
  const int64_t begin = rows.row_starts[row], length = rows.row_starts[row + 1] - begin;
  const int past = conv.taps - 1;
  const float* const state = rows.source(row);
  // Input number i, counted from the row's first token.
  const auto input = [&](int64_t i) -> const float* {
    if (i >= 0) return x[begin + i] + first;
    return state ? state + (past + i) * conv.channels + first : kZeros;
  };
  for (int64_t token = 0; token < length; token++) {
    const float* inputs[kMostTaps];
    for (int tap = 0; tap < conv.taps; tap++) inputs[tap] = input(token - past + tap);
    for (int64_t i = 0; i < count; i += W) {
      const float* weight = conv.weight.data() + first + i;
      F32 sum = load_part(conv.bias.data() + first + i, count - i);
      for (int tap = 0; tap < conv.taps; tap++, weight += conv.channels)
        sum = fma(load_part(inputs[tap] + i, count - i), load_part(weight, count - i), sum);
      store_part(y[begin + token] + first + i, conv.silu ? silu(sum) : sum, count - i);
    }
  }
  for (int i = 0; i < past; i++)
    std::copy_n(input(length - past + i), count, rows.target(row) + i * conv.channels + first);
}

}  // namespace

std::vector<float> in_panels(const std::vector<float>& values, int64_t depth, int64_t width) {
  std::vector<float> panels;
  panels.reserve(values.size());
  for (int64_t column = 0; column < width; column += kColumns)
    for (int64_t i = 0; i < depth; i++) {
      const auto row = values.begin() + i * width;
      panels.insert(panels.end(), row + column, row + std::min(width, column + kColumns));
    }
  return panels;
}

void convolve(Team& team, const Convolution& conv, const StateRows& rows, Lines x, Lines y) {
  const int64_t blocks = (conv.channels + kChannels - 1) / kChannels, items = rows.rows * blocks;
  team.each(items, grain_of(team, items), [&](int64_t item) {
    const int64_t first = item % blocks * kChannels;
    convolve_row(conv, rows, item / blocks, first, std::min(kChannels, conv.channels - first), x,
                 y);
  });
}

void scan_mamba2(Team& team, const Mamba2& mamba, const StateRows& rows, Lines x, Lines steps,
                 Lines y) {
  time_steps(team, rows.tokens(), mamba.heads, mamba.dt_bias.data(), mamba.low, mamba.high, steps);
  each_panel(team, rows.rows, mamba.heads, mamba.head_dim,
             [&]<bool WHOLE>(int64_t row, int64_t head, int64_t column) {
    const int64_t at = head * mamba.head_dim + column;
    const int64_t group = head / (mamba.heads / mamba.groups);
    const int64_t b = mamba.inner() + group * mamba.state_size;
    const int64_t c = b + mamba.groups * mamba.state_size;
    const int64_t columns = std::min(kColumns, mamba.head_dim - column);
    const auto take = [&](int64_t token, const Panel& panel) {
      const float step = steps[token][head];
      const F32 decay = exp(splat(step * mamba.a[head]));
      F32 dt[VS];
      std::fill_n(dt, VS, splat(step));
      const float* const in = x[token];
      scan<WHOLE>(panel, {in + at, mamba.d.data() + at, in + b, in + c, y[token] + at}, dt,
                  [&](int64_t, int) { return decay; });
    };
    each_token(rows, row, at * mamba.state_size, mamba.state_size, columns, take);
  });
}

void scan_mamba1(Team& team, const Mamba1& mamba, const StateRows& rows, Lines x, Lines steps,
                 Lines bc, Lines y) {
  time_steps(team, rows.tokens(), mamba.inner, nullptr, 0, std::numeric_limits<float>::infinity(),
             steps);
  each_panel(team, rows.rows, 1, mamba.inner,
             [&]<bool WHOLE>(int64_t row, int64_t, int64_t column) {
    const int64_t columns = std::min(kColumns, mamba.inner - column);
    const float* const a = mamba.a.data() + column * mamba.state_size;
    const auto take = [&](int64_t token, const Panel& panel) {
      F32 dt[VS];
      for (int v = 0; v < VS; v++) dt[v] = panel.get<WHOLE>(steps[token] + column, v);
      const float* const b = bc[token];
      scan<WHOLE>(panel,
                  {x[token] + column, mamba.d.data() + column, b, b + mamba.state_size,
                   y[token] + column},
                  dt, [&](int64_t n, int v) {
                    return exp(dt[v] * panel.get<WHOLE>(a + n * columns, v));
                  });
    };
    each_token(rows, row, column * mamba.state_size, mamba.state_size, columns, take);
  });
}

void gated_delta(Team& team, const GatedDelta& delta, const StateRows& rows, Lines qkv,
                 Lines decay, Lines beta, Lines y) {
  team.each(rows.tokens(), grain_of(team, rows.tokens()), [&](int64_t token) {
    prepare(delta, qkv[token], decay[token], beta[token]);
  });
  each_panel(team, rows.rows, delta.value_heads, delta.value_dim,
             [&]<bool WHOLE>(int64_t row, int64_t head, int64_t column) {
    const int64_t at = head * delta.value_dim + column;
    const int64_t q = head / (delta.value_heads / delta.key_heads) * delta.key_dim;
    const int64_t k = q + delta.keys(), v = 2 * delta.keys() + at;
    const int64_t step = delta.by_channel ? 1 : 0;
    const int64_t e = delta.by_channel ? head * delta.key_dim : head;
    const auto take = [&](int64_t token, const Panel& panel) {
      const float* const in = qkv[token];
      update<WHOLE>(panel, {in + q, in + k, in + v, decay[token] + e, step, beta[token][head],
                            y[token] + at});
    };
    each_token(rows, row, at * delta.key_dim, delta.key_dim,
               std::min(kColumns, delta.value_dim - column), take);
  });
}

}  // namespace octavo

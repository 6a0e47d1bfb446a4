#include "state_ops.h"

#include <algorithm>
#include <cmath>
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

enum class Kind {
  part,   // fewer than kColumns columns
  whole,
  once,   // and the row has one token: what is written is not read again in this step
};

// Part of a state: as it is before a token, and where it goes.
template <Kind KIND>
struct Panel {
  const float* from;
  float* to;  // may be `from`
  int64_t depth;
  int64_t columns;

  OCTAVO_INLINE F32 get(const float* row, int v) const {
    if constexpr (KIND == Kind::part) return load_part(row + v * W, columns - v * W);
    else return load(row + v * W);
  }
  OCTAVO_INLINE void put(float* row, int v, F32 value) const {
    if constexpr (KIND == Kind::part) store_part(row + v * W, value, columns - v * W);
    else store(row + v * W, value);
  }

  OCTAVO_INLINE F32 before(int64_t i, int v) const { return get(from + i * columns, v); }
  // Where the state is streamed, no cache reads first what is replaced: a third of the traffic of
  // a step of single tokens.
  OCTAVO_INLINE void after(int64_t i, int v, F32 value) const {
    if constexpr (KIND == Kind::once) stream(to + i * columns + v * W, value);
    else put(to + i * columns, v, value);
  }
};

// take(token, panel) for each token of a row, in order. The panel begins `at` floats into a state.
template <Kind KIND, class F>
OCTAVO_INLINE void each_token(const StateRows& rows, int64_t row, int64_t at, int64_t depth,
                              int64_t columns, F&& take) {
  const float* const source = rows.source(row);
  float* const to = rows.target(row) + at;
  const int64_t begin = rows.row_starts[row], end = rows.row_starts[row + 1];
  if (source == nullptr) std::fill_n(to, depth * columns, 0.f);
  else if (begin == end) std::copy_n(source + at, depth * columns, to);
  Panel<KIND> panel{source ? source + at : to, to, depth, columns};
  for (int64_t token = begin; token < end; token++, panel.from = to) take(token, panel);
  if constexpr (KIND == Kind::once) streamed();
}

// For each panel of each row and head: each_token() with what taker(head, column) returns.
template <class F>
void each_panel(Team& team, const StateRows& rows, int64_t heads, int64_t depth, int64_t width,
                F&& taker) {
  const int64_t panels = (width + kColumns - 1) / kColumns, items = rows.rows * heads * panels;
  team.each(items, grain_of(team, items), [&](int64_t item) {
    const int64_t row = item / panels / heads, head = item / panels % heads;
    const int64_t column = item % panels * kColumns, columns = std::min(kColumns, width - column);
    const int64_t at = (head * width + column) * depth;
    const auto take = taker(head, column);
    const bool aligned = reinterpret_cast<uintptr_t>(rows.target(row) + at) % sizeof(F32) == 0;
    if (columns < kColumns) each_token<Kind::part>(rows, row, at, depth, columns, take);
    else if (aligned && rows.length(row) == 1)
      each_token<Kind::once>(rows, row, at, depth, kColumns, take);
    else each_token<Kind::whole>(rows, row, at, depth, kColumns, take);
  });
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
template <Kind KIND, class Decay>
OCTAVO_INLINE void scan(const Panel<KIND>& panel, const Token& token, const F32 (&dt)[VS],
                        Decay&& decay) {
  F32 x[VS], y[VS];
#pragma GCC unroll 4
  for (int v = 0; v < VS; v++) {
    const F32 value = panel.get(token.x, v);
    x[v] = dt[v] * value;
    y[v] = panel.get(token.d, v) * value;
  }
  for (int64_t n = 0; n < panel.depth; n++) {
    const F32 b = splat(token.b[n]), c = splat(token.c[n]);
#pragma GCC unroll 4
    for (int v = 0; v < VS; v++) {
      const F32 h = fma(panel.before(n, v), decay(n, v), x[v] * b);
      panel.after(n, v, h);
      y[v] = fma(h, c, y[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < VS; v++) panel.put(token.y, v, y[v]);
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

// (e S)^T k, the columns of a panel. Even and odd channels add up apart, so that one sum need not
// wait for the other.
template <Kind KIND>
OCTAVO_INLINE void recall(const Panel<KIND>& panel, const DeltaToken& token, F32 (&known)[VS]) {
  F32 odd[VS] = {};
  const auto add = [&](int64_t i, F32 (&sums)[VS]) {
    const F32 k = splat(token.decay[i * token.decay_step]) * token.k[i];
#pragma GCC unroll 4
    for (int v = 0; v < VS; v++) sums[v] = fma(panel.before(i, v), k, sums[v]);
  };
  std::fill_n(known, VS, F32{});
  int64_t i = 0;
  for (; i + 1 < panel.depth; i += 2) {
    add(i, known);
    add(i + 1, odd);
  }
  if (i < panel.depth) add(i, known);
  for (int v = 0; v < VS; v++) known[v] += odd[v];
}

template <Kind KIND>
OCTAVO_INLINE void update(const Panel<KIND>& panel, const DeltaToken& token) {
  F32 change[VS], y[VS] = {};
  recall(panel, token, change);
#pragma GCC unroll 4
  for (int v = 0; v < VS; v++) change[v] = (panel.get(token.v, v) - change[v]) * token.beta;
  for (int64_t i = 0; i < panel.depth; i++) {
    const F32 decay = splat(token.decay[i * token.decay_step]);
    const F32 k = splat(token.k[i]), q = splat(token.q[i]);
#pragma GCC unroll 4
    for (int v = 0; v < VS; v++) {
      const F32 s = fma(panel.before(i, v), decay, change[v] * k);
      panel.after(i, v, s);
      y[v] = fma(s, q, y[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < VS; v++) panel.put(token.y, v, y[v]);
}

// ---- convolution ----

// One row, in `count` channels from `first` on.
void convolve_row(const Convolution& conv, const StateRows& rows, int64_t row, int64_t first,
                  int64_t count, Lines x, Lines y) {
  static constexpr float kZeros[kChannels] = {};
  const int64_t begin = rows.row_starts[row], length = rows.length(row);
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
  const auto taker = [&](int64_t head, int64_t column) {
    const int64_t at = head * mamba.head_dim + column;
    const int64_t group = head / (mamba.heads / mamba.groups);
    const int64_t b = mamba.inner() + group * mamba.state_size;
    const int64_t c = b + mamba.groups * mamba.state_size;
    return [=, &mamba](int64_t token, const auto& panel) {
      const float step = steps[token][head];
      const F32 decay = exp(splat(step * mamba.a[head]));
      F32 dt[VS];
      std::fill_n(dt, VS, splat(step));
      const float* const in = x[token];
      scan(panel, {in + at, mamba.d.data() + at, in + b, in + c, y[token] + at}, dt,
           [&](int64_t, int) { return decay; });
    };
  };
  each_panel(team, rows, mamba.heads, mamba.state_size, mamba.head_dim, taker);
}

void scan_mamba1(Team& team, const Mamba1& mamba, const StateRows& rows, Lines x, Lines steps,
                 Lines bc, Lines y) {
  time_steps(team, rows.tokens(), mamba.inner, nullptr, 0, std::numeric_limits<float>::infinity(),
             steps);
  const auto taker = [&](int64_t, int64_t column) {
    const float* const a = mamba.a.data() + column * mamba.state_size;
    return [=, &mamba](int64_t token, const auto& panel) {
      F32 dt[VS];
      for (int v = 0; v < VS; v++) dt[v] = panel.get(steps[token] + column, v);
      const float* const b = bc[token];
      const Token inputs{x[token] + column, mamba.d.data() + column, b, b + mamba.state_size,
                         y[token] + column};
      scan(panel, inputs, dt, [&](int64_t n, int v) {
        return exp(dt[v] * panel.get(a + n * panel.columns, v));
      });
    };
  };
  each_panel(team, rows, 1, mamba.state_size, mamba.inner, taker);
}

void gated_delta(Team& team, const GatedDelta& delta, const StateRows& rows, Lines qkv,
                 Lines decay, Lines beta, Lines y) {
  team.each(rows.tokens(), grain_of(team, rows.tokens()), [&](int64_t token) {
    prepare(delta, qkv[token], decay[token], beta[token]);
  });
  const auto taker = [&](int64_t head, int64_t column) {
    const int64_t at = head * delta.value_dim + column;
    const int64_t q = head / (delta.value_heads / delta.key_heads) * delta.key_dim;
    const int64_t k = q + delta.keys(), v = 2 * delta.keys() + at;
    const int64_t each = delta.by_channel ? delta.key_dim : 1;  // decays of a head
    return [=](int64_t token, const auto& panel) {
      const float* const in = qkv[token];
      update(panel, {in + q, in + k, in + v, decay[token] + head * each, each > 1,
                     beta[token][head], y[token] + at});
    };
  };
  each_panel(team, rows, delta.value_heads, delta.key_dim, delta.value_dim, taker);
}

}  // namespace octavo

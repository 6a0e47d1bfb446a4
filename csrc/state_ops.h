// Layers that remember a sequence in one state of fixed size: a short convolution, the scans of
// Mamba, the gated delta rule.
//
// A step reads the state of each row from one page and writes the new one to another, so that a
// step that failed can be computed again. The tokens of a row are taken in their order, and what a
// token does depends only on the state before it: neither batch, nor threads, nor how a sequence
// was cut into steps can show. Threads share what is independent: rows, heads and panels.
//
// A head's state [depth][width] is cut into panels of 32 columns, the last one maybe narrower, each
// laid out [depth][columns]: it stays in the first cache while the tokens of a row pass over it.
#pragma once

#include <cstdint>
#include <vector>

#include "pool.h"

namespace octavo {

inline constexpr int kMostTaps = 8;

// Rows of floats, `stride` apart.
struct Lines {
  float* data;
  int64_t stride;

  float* operator[](int64_t row) const { return data + row * stride; }
};

// The rows of one step, and where a layer's part of their states lies.
struct StateRows {
  uint8_t* base;       // of this layer's part in page 0
  int64_t page_bytes;
  int64_t rows;
  const int32_t* row_starts;  // [rows + 1]: tokens of row r are row_starts[r]..row_starts[r + 1]
  const int32_t* table;       // [rows][2]: the page before the step, and the page after it

  int64_t tokens() const { return row_starts[rows]; }
  int64_t length(int64_t row) const { return row_starts[row + 1] - row_starts[row]; }
  // Null where the sequence has no state yet: all zeros.
  const float* source(int64_t row) const { return table[2 * row] ? page(table[2 * row]) : nullptr; }
  float* target(int64_t row) const { return page(table[2 * row + 1]); }

 private:
  float* page(int32_t id) const { return reinterpret_cast<float*>(base + id * page_bytes); }
};

// y[t] = bias + sum over j of weight[j] x[t - taps + 1 + j], for each channel alone. Its state is
// the last taps - 1 inputs, [taps - 1][channels], the oldest first.
struct Convolution {
  int64_t channels;
  int taps;                   // 2..kMostTaps
  std::vector<float> weight;  // [taps][channels]
  std::vector<float> bias;    // [channels]
  bool silu;                  // of what comes out

  int64_t floats() const { return (taps - 1) * channels; }
  double operations() const { return 2.0 * taps * channels; }
};

// y = h C + d x, where h becomes exp(dt a) h + dt x B at each token, and
// dt = clamp(softplus(step + dt_bias), low, high) (Dao and Gu, 2024). A head's state is
// [state_size][head_dim].
struct Mamba2 {
  int64_t heads;
  int64_t head_dim;
  int64_t state_size;
  int64_t groups;              // of adjacent heads that share B and C; divides heads
  std::vector<float> a;        // [heads], negative
  std::vector<float> d;        // [heads * head_dim]
  std::vector<float> dt_bias;  // [heads]
  float low, high;

  int64_t inner() const { return heads * head_dim; }
  int64_t floats() const { return inner() * state_size; }
  double operations() const { return 5.0 * floats(); }
};

// The same where each channel and each of its states has its own `a`, and each channel its own dt,
// the softplus of its step (Gu and Dao, 2023). The state is [state_size][inner].
struct Mamba1 {
  int64_t inner;
  int64_t state_size;
  std::vector<float> a;  // in the panels of a state
  std::vector<float> d;  // [inner]

  int64_t floats() const { return inner * state_size; }
  double operations() const { return 6.0 * floats(); }
};

// S becomes e S, then S + k (beta (v - S^T k))^T; the output is S^T q (Yang, Kautz and Hatamizadeh,
// 2024). q and k are of length 1, q then divided by sqrt(key_dim); e = exp(a softplus(decay +
// dt_bias)); beta = beta_scale sigmoid(beta). A head's state is [key_dim][value_dim].
struct GatedDelta {
  int64_t key_heads;
  int64_t value_heads;  // a multiple of key_heads: so many adjacent ones share q and k
  int64_t key_dim;
  int64_t value_dim;
  bool by_channel;             // e is one for each key channel, not one a head (Kimi, 2025)
  std::vector<float> a;        // [decays], negative
  std::vector<float> dt_bias;  // [decays]
  float beta_scale;

  int64_t decays() const { return value_heads * (by_channel ? key_dim : 1); }
  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t floats() const { return values() * key_dim; }
  double operations() const { return 7.0 * floats(); }
};

// `values` [depth][width] in the panels of a state.
std::vector<float> in_panels(const std::vector<float>& values, int64_t depth, int64_t width);

// ---- every thread of the team calls these; a line of x, y and so on is a token ----

void convolve(Team& team, const Convolution& convolution, const StateRows& rows, Lines x, Lines y);

// x holds x [heads][head_dim], B [groups][state_size] and C likewise side by side. `steps` [heads]
// become dt.
void scan_mamba2(Team& team, const Mamba2& mamba, const StateRows& rows, Lines x, Lines steps,
                 Lines y);

// bc holds B [state_size] and C. `steps` [inner] become dt.
void scan_mamba1(Team& team, const Mamba1& mamba, const StateRows& rows, Lines x, Lines steps,
                 Lines bc, Lines y);

// qkv holds q, k [key_heads][key_dim] and v [value_heads][value_dim]: q and k become those of
// length 1, `decay` [decays] becomes e and `beta` [value_heads] what it stands for.
void gated_delta(Team& team, const GatedDelta& delta, const StateRows& rows, Lines qkv,
                 Lines decay, Lines beta, Lines y);

}  // namespace octavo

// What happens to q, k and v between their linear and attention.
#pragma once

#include <cstdint>

#include "attention.h"
#include "kv_pages.h"
#include "pool.h"

namespace octavo {

// cos and sin [tokens][half] of the angles position * inv_freq, times `factor`, in float32.
void rope_table(Team& team, const int64_t* positions, int64_t tokens, const float* inv_freq,
                int half, float factor, float* cos, float* sin);

// RMSNorm over each head; weight [head_dim], or null: none.
struct HeadNorm {
  const float* weight;
  float eps;
};

// Rotary embedding (Su et al., 2021), half-split pairing: element i turns with i + half, those
// past 2 * half stay.
struct Rotary {
  const float* cos;  // [tokens][half]
  const float* sin;
  int half;  // 0: none
};

// For every token: norm and rotary on q and k in place, then k and v, rounded to nearest even,
// into its slot. A token of `qkv` is q [heads][head_dim] | k [kv_heads][head_dim] |
// v [kv_heads][v_head_dim], `stride` floats from one to the next.
void prepare(Team& team, const AttentionSpec& spec, const HeadNorm& q_norm, const HeadNorm& k_norm,
             const Rotary& rotary, const KVPages& pages, const BatchRows& batch, float* qkv,
             int64_t stride);

}  // namespace octavo

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

// RMSNorm over each head, where it is on.
struct HeadNorm {
  bool on = false;
  const float* weight = nullptr;  // [head_dim], or null: all ones
  float eps = 0;
};

// Rotary embedding (Su et al., 2021), half-split pairing: element i turns with i + half, those
// past 2 * half stay.
struct Rotary {
  const float* cos = nullptr;  // [tokens][half]
  const float* sin = nullptr;
  int half = 0;  // 0: none
};

// q grows with its position, so that attention over long contexts stays sharp (Llama 4; Nakanishi,
// "Scalable-Softmax", 2025): times 1 + scale * log(floor((position + offset) / length) + 1).
struct Temper {
  float scale = 0;  // 0: as it is
  float length = 1;
  float offset = 0;
};

struct Preparation {
  HeadNorm q_norm = {}, k_norm = {};
  bool norm_after_rope = false;
  Rotary rotary = {};
  Temper temper = {};
};

// For every token: norm, rotary and temper on q and k in place, then k and v, rounded to nearest
// even, into its slot. A token of `qkv` is q [heads][head_dim] | k [kv_heads][head_dim] |
// v [kv_heads][v_head_dim], without v where it is a part of k, `stride` floats from one to the
// next.
void prepare(Team& team, const AttentionSpec& spec, const Preparation& preparation,
             const KVPages& pages, const BatchRows& batch, float* qkv, int64_t stride);

}  // namespace octavo

// Attention over paged KV for rows of any length: decode, chunked prefill and anything between are
// the same call.
//
// KV is read in chunks of tokens at fixed positions. Each chunk gives a row its own maximum,
// sum and output, and these are merged in order of position, whoever computed them: a row's bits
// depend on neither batch, nor threads, nor how its tokens were cut into steps. Slots that a token
// does not see are never multiplied, so they may hold anything. (Online softmax: Milakov and
// Gimelshein, 2018; split over KV: Flash-Decoding, Dao et al., 2023.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "buffer.h"
#include "kv_pages.h"
#include "pool.h"

namespace octavo {

inline constexpr int kChunk = 256;      // tokens
inline constexpr int kBlockRows = 96;   // of one KV head that share a reading of K and V
inline constexpr int kTileRows = 6;     // of one kernel

// How far back a token sees: all tokens, or the last `window`, itself included, or those of its own
// chunk of `chunk` tokens. At most one of them is not 0.
struct Sight {
  int window = 0;
  int chunk = 0;

  // The first position that the token at `position` sees.
  int oldest(int position) const {
    if (chunk > 0) return position / chunk * chunk;
    return window > 0 ? std::max(0, position + 1 - window) : 0;
  }
  bool operator==(const Sight&) const = default;
};

struct AttentionSpec {
  int heads;
  int kv_heads;  // divides heads
  int head_dim;
  int v_head_dim;
  float scale;  // positive
  Sight sight = {};
  float soft_cap = 0;  // scores become soft_cap * tanh(score / soft_cap); 0: as they are
  const float* sinks = nullptr;  // [heads], a further logit in each softmax's denominator, or null
  int value_column = -1;  // V is v_head_dim columns of K from here on; below 0: kept by itself

  int group() const { return heads / kv_heads; }  // heads that share a KV head
  bool values_in_keys() const { return value_column >= 0; }
  int stored_v_dim() const { return values_in_keys() ? 0 : v_head_dim; }
  // Floats of a token's q, k and v.
  int64_t width() const {
    return int64_t{heads + kv_heads} * head_dim + int64_t{kv_heads} * stored_v_dim();
  }
  bool plans_like(const AttentionSpec& other) const {
    return heads == other.heads && kv_heads == other.kv_heads && head_dim == other.head_dim &&
           v_head_dim == other.v_head_dim && sight == other.sight &&
           values_in_keys() == other.values_in_keys();
  }
};

// The rows of one step as one KV group sees them.
struct BatchRows {
  int64_t rows;
  int64_t tokens;
  const int32_t* row_starts;    // [rows + 1]: tokens of row r are row_starts[r]..row_starts[r + 1]
  const int32_t* context_lens;  // [rows]: tokens that row r's last token sees, itself included
  const int32_t* table;         // [rows][table_width] pages
  int64_t table_width;

  int length(int64_t row) const { return row_starts[row + 1] - row_starts[row]; }
  int start(int64_t row) const { return context_lens[row] - length(row); }  // its first position
  int32_t page(int64_t row, int block) const { return table[row * table_width + block]; }
};

// Adjacent tokens of a row, for adjacent KV heads, over adjacent chunks of KV.
struct AttentionWork {
  int row;
  int first, tokens;  // counted within the row
  int kv_head, kv_heads;
  int chunk, chunks;
  bool split;       // other work has other chunks: each chunk's states are kept, then merged
  int64_t partial;  // the number of the state of chunk 0, KV head 0, query 0
};

// A row's softmax over some tokens, unfinished: V weighted by 2^(score - maximum), and the sum of
// these weights; scores count in units of ln 2.
struct SoftmaxState {
  float* out;  // [v_head_dim], padded to whole vectors
  float* maximum;
  float* sum;

  // Floats of one state in memory.
  static int64_t size(int v_head_dim) { return (v_head_dim + 15) / 16 * 16 + 16; }

  static SoftmaxState at(float* memory, int v_head_dim) {
    float* const end = memory + size(v_head_dim) - 16;
    return {memory, end, end + 1};
  }
};

// How a step's attention is cut over threads; made once a step, used by all layers of a group.
// It keeps its memory from step to step.
class AttentionPlan {
 public:
  // For layers that plan like `spec`.
  void make(const BatchRows& batch, const AttentionSpec& spec, int threads);

  const std::vector<AttentionWork>& items() const { return items_; }
  const std::vector<AttentionWork>& merges() const { return merges_; }

  // States of work that is split: [chunk][kv_head][query of the work].
  float* partials() const { return partials_.data<float>(); }

  // Floats for thread number `thread` alone.
  float* scratch(int thread) const { return scratch_.data<float>() + thread * scratch_size_; }

 private:
  void cut_row(const BatchRows& batch, const AttentionSpec& spec, int row);
  void cut_block(const AttentionWork& block, const AttentionSpec& spec, double target);
  void grow(const AttentionSpec& spec, int threads);

  std::vector<AttentionWork> blocks_, items_, merges_;
  int64_t partials_count_ = 0;
  int64_t scratch_size_ = 0;
  Buffer partials_, scratch_;
};

// out[token][head][v_head_dim] for q [token][head][head_dim]; strides in floats between tokens.
// This step's K and V must be in the pages already.
void attend(Team& team, const AttentionPlan& plan, const AttentionSpec& spec, const KVPages& pages,
            const BatchRows& batch, const float* q, int64_t q_stride, float* out,
            int64_t out_stride);

}  // namespace octavo

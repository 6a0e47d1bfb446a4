#include "attention.h"

#include <algorithm>
#include <limits>

#include "attention_tile.h"
#include "attention_values.h"

namespace octavo {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// One call of attend().
struct Layer {
  const AttentionPlan& plan;
  const AttentionSpec& spec;
  const KVPages& pages;
  const BatchRows& batch;
  const float* q;
  int64_t q_stride;
  float* out;
  int64_t out_stride;
};

// The queries of one KV head in a block: query number i is head i % group of token i / group.
struct Queries {
  const Layer& layer;
  const AttentionWork& work;
  int kv_head;

  int group() const { return layer.spec.group(); }
  int count() const { return work.tokens * group(); }
  int position(int query) const {
    return layer.batch.start(work.row) + work.first + query / group();
  }
  int64_t token(int query) const {
    return layer.batch.row_starts[work.row] + work.first + query / group();
  }
  int head(int query) const { return kv_head * group() + query % group(); }

  // The first position that it sees; the last is its own.
  int oldest(int query) const { return layer.spec.sight.oldest(position(query)); }

  // The tokens of `chunk` that it sees; {0, 0}: none.
  Span seen(int query, int chunk) const {
    const int first = chunk * kChunk;
    const Span span{std::max(0, oldest(query) - first),
                    std::min(kChunk, position(query) + 1 - first)};
    return span.empty() ? Span{0, 0} : span;
  }

  SoftmaxState state(float* states, int query) const {
    const int dim = layer.spec.v_head_dim;
    return SoftmaxState::at(states + query * SoftmaxState::size(dim), dim);
  }

  // Its state over one chunk of work that is split.
  SoftmaxState partial(int chunk, int query) const {
    const int64_t first = int64_t{chunk} * layer.spec.kv_heads + kv_head;
    const int64_t size = SoftmaxState::size(layer.spec.v_head_dim);
    return state(layer.plan.partials() + (work.partial + first * count()) * size, query);
  }
};

// ---- states ----

// Over no tokens; a sink is a token without a value.
void clear(const SoftmaxState& state, const AttentionSpec& spec, int head) {
  std::fill_n(state.out, spec.v_head_dim, 0.f);
  *state.maximum = spec.sinks != nullptr ? spec.sinks[head] * kLog2E : kNever;
  *state.sum = spec.sinks != nullptr ? 1.f : 0.f;
}

void merge(const SoftmaxState& into, const SoftmaxState& from, int dim) {
  const float old_max = *into.maximum, new_max = *from.maximum;
  const float smaller = exp2(-abs(splat(old_max - new_max)))[0];
  const float keep = new_max > old_max ? smaller : 1.f;
  const float add = new_max > old_max ? 1.f : smaller;
  *into.maximum = std::max(old_max, new_max);
  *into.sum = *into.sum * keep + *from.sum * add;
  for (int j = 0; j < dim; j += W)
    store(into.out + j, load(into.out + j) * keep + load(from.out + j) * add);
}

void finish(const Queries& queries, int query, const SoftmaxState& state) {
  const int dim = queries.layer.spec.v_head_dim;
  float* out = queries.layer.out + queries.token(query) * queries.layer.out_stride +
               int64_t{queries.head(query)} * dim;
  const float scale = 1.f / *state.sum;
  for (int j = 0; j < dim; j++) out[j] = state.out[j] * scale;
}

// ---- tiles ----

struct Tile {
  int begin, rows;  // queries
};

// Tiles of at most kTileRows queries, as even as can be.
int tile_count(int queries) { return (queries + kTileRows - 1) / kTileRows; }

Tile tile_of(int queries, int index) {
  const int tiles = tile_count(queries);
  const int begin = queries * index / tiles;
  return {begin, queries * (index + 1) / tiles - begin};
}

// A tile's queries as the kernel reads them: [head_dim][rows].
template <KVFormat F>
void pack(const Queries& queries, Tile tile, float* to) {
  const Layer& layer = queries.layer;
  const int dim = layer.spec.head_dim;
  for (int m = 0; m < tile.rows; m++) {
    const int query = tile.begin + m;
    const float* from = layer.q + queries.token(query) * layer.q_stride +
                        int64_t{queries.head(query)} * dim;
    if constexpr (kPairs<F>) {
      for (int d = 0; d < dim; d += 2) {
        const U32 bits = bf16_bits(F32{from[d], from[d + 1]});
        const uint32_t pair = bits[0] | bits[1] << 16;
        std::memcpy(to + d / 2 * tile.rows + m, &pair, sizeof pair);
      }
    } else {
      for (int d = 0; d < dim; d++) to[d * tile.rows + m] = from[d];
    }
  }
}

// `values`: where V goes that is taken out of K, or null.
template <KVFormat F>
Chunk<F> find_chunk(const Queries& queries, int index, Unit<F>* values) {
  const Layer& layer = queries.layer;
  const KVPages& pages = layer.pages;
  Chunk<F> chunk{{}, {}, {}, layer.spec.head_dim, layer.spec.v_head_dim, layer.spec.scale,
                 layer.spec.soft_cap};
  const int first = index * kChunk, per_page = pages.block_size / PANEL;
  const int begin = std::max(0, queries.oldest(0) - first) / PANEL;
  const int end = std::min(kChunk, queries.position(queries.count() - 1) + 1 - first);
  int block = (first / PANEL + begin) / per_page, inside = (first / PANEL + begin) % per_page;
  for (int i = begin; i * PANEL < end; i++) {
    const int32_t page = layer.batch.page(queries.work.row, block);
    chunk.keys[i] = reinterpret_cast<Unit<F>*>(pages.keys(page, inside, queries.kv_head));
    chunk.values[i] =
        values != nullptr
            ? values + i * kUnits<F> * layer.spec.v_head_dim
            : reinterpret_cast<Unit<F>*>(pages.values(page, inside, queries.kv_head));
    if (++inside == per_page) inside = 0, block++;
  }
  return chunk;
}

template <KVFormat F>
void run_tile(int rows, const float* q, const Chunk<F>& chunk, const Span* seen,
              const SoftmaxState* states) {
  switch (rows) {
    case 1: return attend_tile<F, 1>(q, chunk, seen, states);
    case 2: return attend_tile<F, 2>(q, chunk, seen, states);
    case 3: return attend_tile<F, 3>(q, chunk, seen, states);
    case 4: return attend_tile<F, 4>(q, chunk, seen, states);
    case 5: return attend_tile<F, 5>(q, chunk, seen, states);
    default: return attend_tile<F, kTileRows>(q, chunk, seen, states);
  }
}

// One item on one thread: queries, states of all its queries, states of a tile over one chunk, and
// that chunk's V where it is taken out of K.
template <KVFormat F>
class Item {
 public:
  Item(const Layer& layer, const AttentionWork& work, float* scratch)
      : layer_(layer), work_(work), count_(work.tokens * layer.spec.group()) {
    const int64_t rows = int64_t{work.kv_heads} * count_;
    q_ = scratch;
    states_ = q_ + rows * layer.spec.head_dim;
    local_ = states_ + rows * SoftmaxState::size(layer.spec.v_head_dim);
    if (layer.spec.values_in_keys())
      values_ = reinterpret_cast<Unit<F>*>(local_ +
                                           kTileRows * SoftmaxState::size(layer.spec.v_head_dim));
  }

  void run() {
    for (int head = 0; head < work_.kv_heads; head++) start(queries(head), head);
    Chunk<F> chunk = find(0);
    for (int i = 0; i < work_.chunks * work_.kv_heads; i++) {
      const Chunk<F> next = find(i + 1);
      for (int sub = 0; sub < kSubBlocks; sub++)
        chunk.next[sub] = next.keys[sub] != nullptr ? next.keys[sub] : chunk.values[sub];
      if constexpr (F != KVFormat::int8)
        if (values_ != nullptr) take_values(chunk);
      run_chunk(i % work_.kv_heads, chunk_of(i), chunk);
      chunk = next;
    }
    for (int head = 0; head < work_.kv_heads && !work_.split; head++)
      for (int i = 0; i < count_; i++) finish(queries(head), i, state(head, i));
  }

 private:
  Queries queries(int head) const { return {layer_, work_, work_.kv_head + head}; }
  float* q(int head, int query) const {
    return q_ + (int64_t{head} * count_ + query) * layer_.spec.head_dim;
  }
  SoftmaxState state(int head, int query) const {
    return queries(head).state(states_, head * count_ + query);
  }

  // Chunks of KV heads are taken in this order, so that a page's bytes are read close together.
  int chunk_of(int turn) const { return work_.chunk + turn / work_.kv_heads; }
  Chunk<F> find(int turn) const {
    if (turn == work_.chunks * work_.kv_heads) return {};
    return find_chunk<F>(queries(turn % work_.kv_heads), chunk_of(turn), values_);
  }

  void take_values(const Chunk<F>& chunk) {
    for (int sub = 0; sub < kSubBlocks; sub++)
      if (chunk.keys[sub] != nullptr)
        values_of_keys<F>(chunk.keys[sub], layer_.spec.value_column, chunk.v_head_dim,
                          values_ + sub * kUnits<F> * chunk.v_head_dim);
  }

  void start(const Queries& queries, int head) {
    for (int i = 0; i < tile_count(count_); i++) {
      const Tile tile = tile_of(count_, i);
      pack<F>(queries, tile, q(head, tile.begin));
    }
    for (int i = 0; i < count_; i++) clear(state(head, i), layer_.spec, queries.head(i));
  }

  void run_chunk(int head, int index, const Chunk<F>& chunk) {
    const Queries these = queries(head);
    for (int i = 0; i < tile_count(count_); i++) {
      const Tile tile = tile_of(count_, i);
      Span seen[kTileRows];
      SoftmaxState own[kTileRows];
      for (int m = 0; m < tile.rows; m++) {
        seen[m] = these.seen(tile.begin + m, index);
        own[m] = work_.split ? these.partial(index, tile.begin + m) : these.state(local_, m);
      }
      run_tile<F>(tile.rows, q(head, tile.begin), chunk, seen, own);
      for (int m = 0; m < tile.rows && !work_.split; m++)
        if (!seen[m].empty()) merge(state(head, tile.begin + m), own[m], layer_.spec.v_head_dim);
    }
  }

  const Layer& layer_;
  const AttentionWork& work_;
  const int count_;  // queries of one KV head
  float *q_, *states_, *local_;
  Unit<F>* values_ = nullptr;
};

// What an item does at once where it is not split: here from the states that its parts left.
void run_merge(const Layer& layer, const AttentionWork& work, float* scratch) {
  for (int head = work.kv_head; head < work.kv_head + work.kv_heads; head++) {
    const Queries queries{layer, work, head};
    const SoftmaxState state = queries.state(scratch, 0);
    for (int i = 0; i < queries.count(); i++) {
      clear(state, layer.spec, queries.head(i));
      for (int chunk = work.chunk; chunk < work.chunk + work.chunks; chunk++)
        if (!queries.seen(i, chunk).empty())
          merge(state, queries.partial(chunk, i), layer.spec.v_head_dim);
      finish(queries, i, state);
    }
  }
}

template <KVFormat F>
void run(Team& team, const Layer& layer) {
  const AttentionPlan& plan = layer.plan;
  float* const scratch = plan.scratch(team.thread());
  team.each(plan.items().size(), 1,
            [&](int64_t i) { Item<F>(layer, plan.items()[i], scratch).run(); });
  if (plan.merges().empty()) return;
  team.each(plan.merges().size(), 1,
            [&](int64_t i) { run_merge(layer, plan.merges()[i], scratch); });
}

}  // namespace

void attend(Team& team, const AttentionPlan& plan, const AttentionSpec& spec, const KVPages& pages,
            const BatchRows& batch, const float* q, int64_t q_stride, float* out,
            int64_t out_stride) {
  const Layer layer{plan, spec, pages, batch, q, q_stride, out, out_stride};
  switch (pages.format) {
    case KVFormat::f32: return run<KVFormat::f32>(team, layer);
    case KVFormat::bf16: return run<KVFormat::bf16>(team, layer);
    case KVFormat::f16: return run<KVFormat::f16>(team, layer);
    case KVFormat::int8: return run<KVFormat::int8>(team, layer);
  }
}

}  // namespace octavo

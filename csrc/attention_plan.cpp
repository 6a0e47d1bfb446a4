// How a step's attention is cut: tokens into blocks that share a reading of K and V, and a block
// that is too large for one thread into KV heads and chunks.
#include <algorithm>

#include "attention.h"

namespace octavo {
namespace {

constexpr int kItemsPerThread = 8;  // enough that the last to end is not long alone
constexpr int64_t kMostPartials = int64_t{256} << 20;  // bytes; what would take more is not split

int rows_of(const AttentionWork& work, const AttentionSpec& spec) {
  return work.tokens * spec.group();
}

// Time, roughly: reading a token's K and V costs as much as multiplying it with a few rows.
double cost(const AttentionWork& work, const AttentionSpec& spec) {
  return static_cast<double>(work.chunks) * work.kv_heads * (rows_of(work, spec) + 4);
}

int64_t state_bytes(const AttentionSpec& spec) {
  return SoftmaxState::size(spec.v_head_dim) * static_cast<int64_t>(sizeof(float));
}

int most_rows(const AttentionSpec& spec) { return std::max(kBlockRows, spec.group()); }

}  // namespace

void AttentionPlan::make(const BatchRows& batch, const AttentionSpec& spec, int threads) {
  blocks_.clear();
  items_.clear();
  merges_.clear();
  partials_count_ = 0;
  for (int row = 0; row < batch.rows; row++) cut_row(batch, spec, row);
  double total = 0;
  for (const AttentionWork& block : blocks_) total += cost(block, spec);
  for (const AttentionWork& block : blocks_)
    cut_block(block, spec, total / (threads * kItemsPerThread));
  std::stable_sort(items_.begin(), items_.end(), [&](const auto& a, const auto& b) {
    return cost(a, spec) > cost(b, spec);
  });
  grow(spec, threads);
}

void AttentionPlan::cut_row(const BatchRows& batch, const AttentionSpec& spec, int row) {
  const int most = std::max(1, kBlockRows / spec.group());
  for (int first = 0; first < batch.length(row); first += most) {
    const int tokens = std::min(most, batch.length(row) - first);
    const int position = batch.start(row) + first;
    const int chunk = spec.sight.oldest(position) / kChunk;
    const int chunks = (position + tokens - 1) / kChunk + 1 - chunk;
    blocks_.push_back({row, first, tokens, 0, spec.kv_heads, chunk, chunks, false, 0});
  }
}

void AttentionPlan::cut_block(const AttentionWork& block, const AttentionSpec& spec,
                              double target) {
  const int rows = rows_of(block, spec);
  const double head_cost = cost(block, spec) / block.kv_heads;
  const int affordable = std::min<double>(target / head_cost, kBlockRows / rows);
  const int heads = std::clamp(affordable, 1, block.kv_heads);
  const int64_t states = int64_t{block.chunks} * block.kv_heads * rows;
  const int64_t bytes = (partials_count_ + states) * state_bytes(spec);
  const double wanted = bytes > kMostPartials ? 1 : head_cost * heads / target + 0.5;
  const int parts = std::min<double>(block.chunks, std::max(1., wanted));
  AttentionWork work = block;
  work.split = parts > 1;
  if (work.split) {
    work.partial = partials_count_ - int64_t{block.chunk} * block.kv_heads * rows;
    partials_count_ += states;
  }
  for (int head = 0; head < block.kv_heads; head += heads) {
    work.kv_head = head;
    work.kv_heads = std::min(heads, block.kv_heads - head);
    if (work.split) merges_.push_back(work);
    for (int part = 0; part < parts; part++) {
      AttentionWork item = work;
      item.chunk = block.chunk + block.chunks * part / parts;
      item.chunks = block.chunk + block.chunks * (part + 1) / parts - item.chunk;
      items_.push_back(item);
    }
  }
}

void AttentionPlan::grow(const AttentionSpec& spec, int threads) {
  const int64_t state = SoftmaxState::size(spec.v_head_dim);
  scratch_size_ = most_rows(spec) * (spec.head_dim + state) + kTileRows * state;
  if (spec.values_in_keys()) scratch_size_ += kChunk * spec.v_head_dim;
  const size_t scratch = scratch_size_ * threads * sizeof(float);
  const size_t partials = partials_count_ * state_bytes(spec);
  if (scratch_.size() < scratch) scratch_ = Buffer(scratch);
  if (partials_.size() < partials) partials_ = Buffer(std::min<size_t>(partials * 2, kMostPartials));
}

}  // namespace octavo

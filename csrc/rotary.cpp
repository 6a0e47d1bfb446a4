#include "rotary.h"

#include <algorithm>
#include <cmath>

#include "quantise.h"
#include "row_ops.h"

namespace octavo {
namespace {

void rotate(float* __restrict__ x, const float* __restrict__ cos, const float* __restrict__ sin,
            int half) {
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

void norm_and_rotate(float* x, int heads, int dim, const HeadNorm& norm, const Preparation& all,
                     int64_t token) {
  const Rotary& rotary = all.rotary;
  const auto normalise = [&](float* head) {
    octavo::norm(NormKind::rms, head, norm.weight, nullptr, dim, norm.eps, false, head);
  };
  for (float* head = x; head < x + heads * dim; head += dim) {
    if (norm.on && !all.norm_after_rope) normalise(head);
    rotate(head, rotary.cos + token * rotary.half, rotary.sin + token * rotary.half, rotary.half);
    if (norm.on && all.norm_after_rope) normalise(head);
  }
}

void temper(float* q, int64_t count, const Temper& temper, int position) {
  const float steps = std::floor((static_cast<float>(position) + temper.offset) / temper.length);
  const float factor = 1.f + temper.scale * std::log1p(steps);
  for (int64_t i = 0; i < count; i++) q[i] *= factor;
}

// to[i * stride bytes] = unit number i of `count` units of `from`.
template <class Unit>
void scatter(const void* from, int count, uint8_t* to, int64_t stride) {
  for (int i = 0; i < count; i++)
    std::memcpy(to + i * stride, static_cast<const Unit*>(from) + i, sizeof(Unit));
}

// Write `dim` values as units of `together` values, `stride` bytes from one to the next.
void write(KVFormat format, int together, const float* x, int dim, uint8_t* to, int64_t stride) {
  for (int i = 0; i < dim; i += W, to += W / together * stride) {
    const int count = std::min(W, dim - i);
    F32 values{};
    std::memcpy(&values, x + i, count * sizeof(float));
    if (format == KVFormat::f32) {
      scatter<uint32_t>(&values, count, to, stride);
      continue;
    }
    alignas(4) uint16_t halves[W];
    if (format == KVFormat::bf16) store_bf16(halves, values);
    else store_f16(halves, values);
    if (together == 2) scatter<uint32_t>(halves, count / 2, to, stride);
    else scatter<uint16_t>(halves, count, to, stride);
  }
}

// Write `dim` values as codes, `stride` bytes from one to the next, and their scale.
void write_int8(const float* x, int dim, uint8_t* codes, int64_t stride, uint8_t* scale) {
  const Scale all = quantise(x, dim, dim, 127.f, [&](int64_t i, I32 nearest) {
    int8_t bytes[W];
    store_bytes(bytes, nearest);
    scatter<uint8_t>(bytes, std::min<int64_t>(W, dim - i), codes + i * stride, stride);
  });
  std::memcpy(scale, &all.scale, sizeof all.scale);
}

void write_token_int8(const KVPages& pages, int32_t page, int offset, const float* k,
                      const float* v) {
  const int dim = pages.head_dim, v_dim = pages.v_head_dim;
  const int sub_block = offset / PANEL, slot = offset % PANEL;
  const int64_t scale = slot * sizeof(float);
  for (int head = 0; head < pages.kv_heads; head++) {
    uint8_t* const keys = pages.keys(page, sub_block, head);
    write_int8(k + head * dim, dim, keys + slot, PANEL, keys + scales_at(dim) + scale);
    uint8_t* const values = pages.values(page, sub_block, head);
    write_int8(v + head * v_dim, v_dim, values + slot * v_dim, 1,
               values + scales_at(v_dim) + scale);
  }
}

void write_token(const KVPages& pages, int32_t page, int offset, const float* k, const float* v) {
  const int64_t size = value_bytes(pages.format);
  const int pair = pages.format == KVFormat::bf16 ? 2 : 1;
  const int sub_block = offset / PANEL, slot = offset % PANEL;
  for (int head = 0; head < pages.kv_heads; head++) {
    uint8_t* keys = pages.keys(page, sub_block, head) + slot * pair * size;
    write(pages.format, pair, k + head * pages.head_dim, pages.head_dim, keys,
          PANEL * pair * size);
    uint8_t* values = pages.values(page, sub_block, head) +
                      (slot / pair * pages.v_head_dim * pair + slot % pair) * size;
    write(pages.format, 1, v + head * pages.v_head_dim, pages.v_head_dim, values, pair * size);
  }
}

}  // namespace

void rope_table(Team& team, const int64_t* positions, int64_t tokens, const float* inv_freq,
                int half, float factor, float* cos, float* sin) {
  team.each(tokens, 16, [&](int64_t token) {
    for (int i = 0; i < half; i++) {
      const float angle = static_cast<float>(positions[token]) * inv_freq[i];
      cos[token * half + i] = std::cos(angle) * factor;
      sin[token * half + i] = std::sin(angle) * factor;
    }
  });
}

void prepare(Team& team, const AttentionSpec& spec, const Preparation& preparation,
             const KVPages& pages, const BatchRows& batch, float* qkv, int64_t stride) {
  const int64_t q_width = int64_t{spec.heads} * spec.head_dim;
  // Runs of tokens, since the tokens of a sub-block share cache lines, yet work for all threads.
  const int64_t grain = std::clamp<int64_t>(batch.tokens / (4 * team.threads()), 1, 16);
  team.each(batch.tokens, grain, [&](int64_t token) {
    float* const q = qkv + token * stride;
    float* const k = q + q_width;
    float* const v = k + int64_t{spec.kv_heads} * spec.head_dim;
    const int32_t* const starts = batch.row_starts;
    const int64_t row = std::upper_bound(starts, starts + batch.rows + 1, token) - starts - 1;
    const int position = batch.start(row) + static_cast<int>(token - starts[row]);
    norm_and_rotate(q, spec.heads, spec.head_dim, preparation.q_norm, preparation, token);
    norm_and_rotate(k, spec.kv_heads, spec.head_dim, preparation.k_norm, preparation, token);
    if (preparation.temper.scale != 0) temper(q, q_width, preparation.temper, position);
    const int32_t page = batch.page(row, position / pages.block_size);
    const int offset = position % pages.block_size;
    if (pages.format == KVFormat::int8) write_token_int8(pages, page, offset, k, v);
    else write_token(pages, page, offset, k, v);
  });
}

}  // namespace octavo

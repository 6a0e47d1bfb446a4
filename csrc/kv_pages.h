// Where K and V of one layer lie inside the pages of its group, and in which numbers.
//
// A page holds K, then V if it is not a part of K, of each layer of the group; each of these parts is
// a row of sub-blocks of 16 tokens, laid out so that products over head_dim (scores) and over tokens
// (outputs) both read whole vectors:
//
//            K sub-block                       V sub-block
//   bf16     [kv_head][head_dim / 2][16][2]    [kv_head][8][v_head_dim][2]   pairs along the sum
//   f32, f16 [kv_head][head_dim][16]           [kv_head][16][v_head_dim]
//   int8     the same as codes, then behind those of each head their scales, float32 [16]: a number
//            is its code times the scale of its token and head
#pragma once

#include <cstdint>

#include "simd.h"

namespace octavo {

enum class KVFormat { f32, bf16, f16, int8 };

inline int64_t value_bytes(KVFormat format) {
  return format == KVFormat::f32 ? 4 : format == KVFormat::int8 ? 1 : 2;
}

// Bytes of a token's keys (or values) in one head, `dim` numbers.
inline int64_t token_bytes(KVFormat format, int dim) {
  return dim * value_bytes(format) + (format == KVFormat::int8 ? sizeof(float) : 0);
}

// Where the scales of a sub-block of one head begin, in bytes from its codes.
inline int64_t scales_at(int dim) { return PANEL * dim; }

struct KVPages {
  uint8_t* base;
  int64_t page_bytes;
  int64_t k_offset;  // of this layer's part, from the start of a page, in bytes
  int64_t v_offset;
  KVFormat format;
  int kv_heads;
  int head_dim;    // even
  int v_head_dim;  // 0: V is not kept
  int block_size;  // tokens in a page, a multiple of 16

  // Bytes of this layer's keys (or values) in a page, `dim` numbers a token and head.
  int64_t part_bytes(int dim) const {
    return block_size * kv_heads * token_bytes(format, dim);
  }

  uint8_t* keys(int32_t page, int sub_block, int kv_head) const {
    return part(page, k_offset, sub_block, kv_head, head_dim);
  }
  uint8_t* values(int32_t page, int sub_block, int kv_head) const {
    return part(page, v_offset, sub_block, kv_head, v_head_dim);
  }

 private:
  uint8_t* part(int32_t page, int64_t offset, int sub_block, int kv_head, int dim) const {
    const int64_t head_bytes = PANEL * token_bytes(format, dim);
    return base + page * page_bytes + offset +
           (int64_t{sub_block} * kv_heads + kv_head) * head_bytes;
  }
};

}  // namespace octavo

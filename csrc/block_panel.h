// Weights in blocks of 32 that share a scale, as GGUF stores them, and int8 with one scale for each
// output. They are multiplied in their own numbers: a block's dot products are exact integers.
//
// With dx and q the scale and values of a row's block b (rows.h), and d, m, code those of output n:
//   y[n] = sum over b of  dx[b] * d[n, b] * sum_i (code_i - offset) * q_i
//                       + dx[b] * m[n, b] * sum_i q_i    (with a minimum)
// block after block, each added in fp32. q6_k has an integer scale for each half of a block, which
// is applied inside the integer sum; int8 adds up integers over the whole row.
#pragma once

#include <cstdint>

#include "packed.h"

namespace octavo {

// Bytes of one panel of 16 outputs and `k` inputs.
int64_t block_panel_bytes(Format format, int64_t k);

// As panel_product, for these formats.
void block_panel_product(const Packed& w, int64_t panel, int64_t panels, const Rows& x, int64_t row,
                         int64_t rows, float* c, int64_t ldc);

// As unpack_row, for these formats.
void block_unpack_row(const Packed& w, int64_t index, float* values);

// Whether a GGUF file stores weights like this: all block formats but int8.
bool is_gguf(Format format);

// Weights that a GGUF file stores together: k is a multiple of them.
int64_t gguf_block(Format format);

// Bytes of a row of `k` weights in a GGUF file.
int64_t gguf_row_bytes(Format format, int64_t k);

// Outputs first .. first + rows - 1 of `w` := rows of a GGUF file, one behind the other.
// Calls for different outputs may run at once; so for pack_int8.
void pack_blocks(Packed& w, const uint8_t* from, int64_t first, int64_t rows);

// The same for int8: codes [rows][w.k], scales [rows].
void pack_int8(Packed& w, const int8_t* codes, const float* scales, int64_t first, int64_t rows);

}  // namespace octavo

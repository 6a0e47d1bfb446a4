// Weights in f32, bf16 and f16: how a panel is laid out, packed, read back and multiplied.
//
// Layout of a panel, k padded with zeros to a multiple of 32:
//   f32, f16  [k][16 outputs]
//   bf16      [k / 2][16 outputs][2]   pairs, as the instruction that multiplies them reads them
#pragma once

#include <cstdint>

#include "packed.h"

namespace octavo {

bool is_float(Format format);

int64_t float_panel_bytes(Format format, int64_t k);

// As panel_product, for these formats.
void float_panel_product(const Packed& w, int64_t panel, int64_t panels, const Rows& x,
                         int64_t row, int64_t rows, float* c, int64_t ldc);

// As unpack_row, for these formats.
void float_unpack_row(const Packed& w, int64_t index, float* values);

// Outputs first .. first + rows - 1 of `w` := `from` [rows][w.k], whose numbers are of format
// `source` (f32, bf16 or f16, aligned or not), rounded to nearest even where w's are shorter.
// Calls for different outputs may run at once.
void float_pack(Packed& w, Format source, const void* from, int64_t first, int64_t rows);

}  // namespace octavo

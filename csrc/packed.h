// A linear's weights, packed once for the kernels: panels of 16 outputs, K running inside.
// The layout is the same for every instruction set, so that packed weights can be kept on disk.
#pragma once

#include <cstdint>

#include "buffer.h"
#include "rows.h"
#include "simd.h"

namespace octavo {

enum class Format { f32, bf16, f16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, mxfp4,
                    int8 };

// Weights [n][k] of y = x W^T. n is padded with zero rows to a multiple of 16, k to one of 32.
struct Packed {
  Format format = Format::f32;
  int64_t n = 0;
  int64_t k = 0;
  Buffer data;  // panel after panel

  int64_t panels() const { return (n + PANEL - 1) / PANEL; }
  int64_t panel_bytes() const;
  const uint8_t* panel(int64_t index) const { return data.data() + index * panel_bytes(); }
};

// Bytes of one panel of 16 outputs and `k` inputs.
int64_t panel_bytes(Format format, int64_t k);
inline int64_t Packed::panel_bytes() const { return octavo::panel_bytes(format, k); }

// The form in which this format's kernel reads its activations, on this instruction set.
Form form_for(Format format);

// c[r * ldc + j] = the products of rows row..row + rows - 1 of `x` with outputs j of `panels`
// adjacent panels from `panel` on. One accumulator chain for each element, K ascending: its bits
// depend on neither `rows`, nor `panels`, nor where in the batch a row lies.
void panel_product(const Packed& w, int64_t panel, int64_t panels, const Rows& x, int64_t row,
                   int64_t rows, float* c, int64_t ldc);

// values[0..k) of output `index`, as floats: what an embedding reads.
void unpack_row(const Packed& w, int64_t index, float* values);

}  // namespace octavo

// Who knows a format: the floats or the blocks.
#include "packed.h"

#include "block_panel.h"
#include "float_panel.h"

namespace octavo {

int64_t panel_bytes(Format format, int64_t k) {
  return is_float(format) ? float_panel_bytes(format, k) : block_panel_bytes(format, k);
}

Form form_for(Format format) {
  switch (format) {
    case Format::bf16:
#if defined(__AVX512BF16__)
      return Form::bf16;
#else
      return Form::f32;  // more exact, and as fast where bf16 is not multiplied
#endif
    case Format::f32:
    case Format::f16:
      return Form::f32;
    case Format::int8:
      return Form::q8_row;
    case Format::q8_0:
      return WHOLE_BYTES ? Form::q8 : Form::q16;
    default:
      return Form::q8;
  }
}

void panel_product(const Packed& w, int64_t panel, int64_t panels, const Rows& x, int64_t row,
                   int64_t rows, float* c, int64_t ldc) {
  const auto product = is_float(w.format) ? float_panel_product : block_panel_product;
  product(w, panel, panels, x, row, rows, c, ldc);
}

void unpack_row(const Packed& w, int64_t index, float* values) {
  is_float(w.format) ? float_unpack_row(w, index, values) : block_unpack_row(w, index, values);
}

}  // namespace octavo

// Activations: rows of fp32 values, and the form in which a linear reads them.
#pragma once

#include <cstdint>

#include "simd.h"

namespace octavo {

// What a linear multiplies its weights with.
enum class Form {
  f32,   // as they are
  bf16,  // rounded to bfloat16, in pairs, where the machine multiplies those
  q8,    // int8 by blocks of 32: value = scale * factor of its half block * q
  q16,   // int16 by blocks of 32: value = scale * q
  q8_row // int8 with one scale for the whole row
};

inline constexpr int FORMS = 5;
inline constexpr int64_t BLOCK = 32;  // values that share a scale

#if defined(__AVX512VNNI__)
inline constexpr bool WHOLE_BYTES = true;  // codes of 8 bits are multiplied as they are
#else
inline constexpr bool WHOLE_BYTES = false;  // as int16, and the rows that meet them too
#endif

// What turns the integers of a block, or of a row, into values, and what their sums are.
struct Scale {
  float scale = 0;
  float whole_value = 0;  // q8: of the block's sum
  int32_t whole = 0;      // the sum of q, q8: times its factor
  int32_t halves = 0;     // q8: the same for each half, two int16, the first in the low bits
  int32_t factors = 0;    // q8: of the halves, two int16 in 1..16
};

// `width` values a row, padded with zeros to a multiple of 32. Only the arrays of `form` exist.
struct Rows {
  Form form = Form::f32;
  int64_t width = 0;
  int64_t stride = 0;        // values from row to row, where these are columns of wider ones
  float* f32 = nullptr;      // [rows][padded]
  uint16_t* bf16 = nullptr;  // [rows][padded]
  int8_t* q8 = nullptr;      // [rows][padded], each in -127..127
  int16_t* q16 = nullptr;    // [rows][padded]; q8_row has its values here, unless WHOLE_BYTES
  Scale* scales = nullptr;   // [rows][blocks]; q8_row: [rows][1]

  int64_t blocks() const { return (width + BLOCK - 1) / BLOCK; }
  int64_t padded() const { return stride > 0 ? stride : blocks() * BLOCK; }

  // `count` columns from `first` on, which may_cut() allows.
  Rows columns(int64_t first, int64_t count) const {
    Rows cut = *this;
    cut.width = count;
    cut.stride = padded();
    if (f32 != nullptr) cut.f32 += first;
    if (bf16 != nullptr) cut.bf16 += first;
    if (q8 != nullptr) cut.q8 += first;
    if (q16 != nullptr) cut.q16 += first;
    if (scales != nullptr && form != Form::q8_row) cut.scales += first / BLOCK;
    return cut;
  }
};

// Whether a linear can read `count` columns from `first` on of rows of `width` in this form: what
// shares a scale, or is multiplied together, stays together.
inline bool may_cut(Form form, int64_t width, int64_t first, int64_t count) {
  const bool blocks = form == Form::q8 || form == Form::q16;
  const int64_t whole = form == Form::q8_row ? width : blocks ? BLOCK : 2;
  return first % whole == 0 && (count % whole == 0 || first + count == width);
}

}  // namespace octavo

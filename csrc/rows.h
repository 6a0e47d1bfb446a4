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
  q8_row // int8 with one scale for the whole row
};

inline constexpr int64_t BLOCK = 32;  // values that share a scale

// `width` values a row, padded with zeros to a multiple of 32. Only the arrays of `form` exist.
struct Rows {
  Form form = Form::f32;
  int64_t width = 0;
  float* f32 = nullptr;      // [rows][padded]
  uint16_t* bf16 = nullptr;  // [rows][padded]
  int8_t* q8 = nullptr;      // [rows][padded], each in -127..127
  float* scales = nullptr;   // [rows][blocks]; q8_row: [rows][1]
  int32_t* sums = nullptr;   // q8: [rows][blocks], two int16: the sum of q times the factor of the
                             // first half (low bits) and of the second; q8_row: [rows][1], of q
  int32_t* factors = nullptr;  // q8: [rows][blocks][2], twice the same int16 in 1..16

  int64_t blocks() const { return (width + BLOCK - 1) / BLOCK; }
  int64_t padded() const { return blocks() * BLOCK; }
};

}  // namespace octavo

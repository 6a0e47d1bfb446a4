// What is done to one row at a time: norm, and the forms in which linears read.
#pragma once

#include <cstdint>

#include "rows.h"

namespace octavo {

// y = x / sqrt(mean(x^2) + eps) * weight, all [n] (Zhang and Sennrich, 2019). y may be x.
void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* y);

// Row `row` of `to` := values [to.width], in its form. Not for Form::f32, which has no other.
void to_form(const Rows& to, int64_t row, const float* values);

// Row `row` of `to` := row `at` of `from`, which is in the same form and as wide.
void copy_row(const Rows& to, int64_t row, const Rows& from, int64_t at);

// Bytes of all arrays of `rows` rows in one form.
int64_t form_bytes(Form form, int64_t rows, int64_t width);

// Rows of `width` values in one form, their arrays cut from `memory` of form_bytes() bytes.
Rows cut_rows(Form form, int64_t rows, int64_t width, uint8_t* memory);

}  // namespace octavo

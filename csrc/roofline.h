// What the machine can do at most: rates of multiply-adds and of reading memory, measured.
#pragma once

#include <cstdint>

#include "rows.h"

namespace octavo {

// What a multiply-add may multiply.
enum class Operand {
  f32,
  bf16,   // dot products of pairs, where the instruction set has them
  int8,   // unsigned by signed dot products, as the kernels do them
  int16,  // dot products of pairs, where int8 has no whole bytes
};

// What a kernel that reads rows in this form multiplies.
Operand operand_of(Form form);

// Whether this instruction set has the operation.
bool can_multiply(Operand operand);

// Operations a second, a multiply-add being two, by all threads together; the best repetition of
// those that fit in `seconds`.
double peak(Operand operand, int threads, double seconds);

// Bytes a second that all threads together read, each its own part of `bytes` over and over.
double bandwidth(int64_t bytes, int threads, double seconds);

}  // namespace octavo

// Where the numbers of a block format lie in a packed panel of 16 outputs.
//
// A panel is a row of groups: 1 block of 32 inputs, or for k-quants the 8 blocks that share d.
//   group  d fp16 [16], where there is a minimum m fp16 [16], then its blocks
//   block  codes, then for k-quants a byte for each scale: q4_k, q5_k  of d [16], of m [16];
//          q6_k  of the first half [16], of the second [16]
//   codes  in steps of 4 inputs, [16 outputs][4], a byte each:
//          8 bits  [8 steps][64], code = value + 128
//          fewer   a step is two inputs of the first half of the block and two of the second;
//                  [4][64], step s in the low halves of the bytes, step s + 4 in the high ones;
//                  then the bits above the fourth, H = 1 or 2 of them: [H][64], those of step s at
//                  bits s * H % 8 of plane s * H / 8
// mxfp4 has a byte for d, the exponent of a power of 2, and its codes stand for floats of 4 bits,
// e2m1; twice their values are integers, by a table. int8 has no d; behind its blocks is one fp32
// scale for each output.
#pragma once

#include <cstdint>
#include <type_traits>

#include "packed.h"

namespace octavo {

inline constexpr int STEPS = 8;        // of 4 inputs, in a block
inline constexpr int STEP_BYTES = 64;  // 16 outputs, 4 inputs

struct BlockLayout {
  int bits;          // of a code
  int offset;        // value = code - offset, or kE2m1[code] - offset
  bool minimum;      // value = code * d + m
  int blocks;        // in a group
  bool byte_scales;  // k-quants
  int d_bytes = 2;         // fp16; 1: an exponent; 0: there is no d
  bool e2m1 = false;

  // Of a number that is multiplied: what the codes are, or stand for.
  constexpr int multiplied_bits() const { return e2m1 ? 5 : bits; }
  constexpr int high_bits() const { return bits == 8 ? 0 : bits - 4; }
  constexpr int64_t low_bytes() const { return STEP_BYTES * (bits == 8 ? 8 : 4); }
  constexpr int64_t code_bytes() const { return low_bytes() + STEP_BYTES * high_bits(); }
  constexpr int64_t block_bytes() const { return code_bytes() + (byte_scales ? 2 * PANEL : 0); }
  constexpr int64_t head_bytes() const { return PANEL * (d_bytes + 2 * minimum); }
  constexpr int64_t group_bytes() const { return head_bytes() + blocks * block_bytes(); }
};

// Twice the values of e2m1 (OCP Microscaling Formats, 2023), 12 more so that they are not negative.
inline constexpr uint8_t kE2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

constexpr BlockLayout block_layout(Format format) {
  switch (format) {
    case Format::q4_0:
      return {.bits = 4, .offset = 8, .minimum = false, .blocks = 1, .byte_scales = false};
    case Format::q4_1:
      return {.bits = 4, .offset = 0, .minimum = true, .blocks = 1, .byte_scales = false};
    case Format::q5_0:
      return {.bits = 5, .offset = 16, .minimum = false, .blocks = 1, .byte_scales = false};
    case Format::q5_1:
      return {.bits = 5, .offset = 0, .minimum = true, .blocks = 1, .byte_scales = false};
    case Format::q4_k:
      return {.bits = 4, .offset = 0, .minimum = true, .blocks = 8, .byte_scales = true};
    case Format::q5_k:
      return {.bits = 5, .offset = 0, .minimum = true, .blocks = 8, .byte_scales = true};
    case Format::q6_k:
      return {.bits = 6, .offset = 32, .minimum = false, .blocks = 8, .byte_scales = true};
    case Format::mxfp4:
      return {.bits = 4, .offset = 12, .minimum = false, .blocks = 1, .byte_scales = false,
              .d_bytes = 1, .e2m1 = true};
    case Format::int8:
      return {.bits = 8, .offset = 128, .minimum = false, .blocks = 1, .byte_scales = false,
              .d_bytes = 0};
    default:
      return {.bits = 8, .offset = 128, .minimum = false, .blocks = 1, .byte_scales = false};
  }
}

// fn(std::integral_constant<Format, format>), so that the format is known to the compiler.
template <class F>
void with_block_format(Format format, F&& fn) {
  switch (format) {
    case Format::q4_0:
      return fn(std::integral_constant<Format, Format::q4_0>());
    case Format::q4_1:
      return fn(std::integral_constant<Format, Format::q4_1>());
    case Format::q5_0:
      return fn(std::integral_constant<Format, Format::q5_0>());
    case Format::q5_1:
      return fn(std::integral_constant<Format, Format::q5_1>());
    case Format::q4_k:
      return fn(std::integral_constant<Format, Format::q4_k>());
    case Format::q5_k:
      return fn(std::integral_constant<Format, Format::q5_k>());
    case Format::q6_k:
      return fn(std::integral_constant<Format, Format::q6_k>());
    case Format::mxfp4:
      return fn(std::integral_constant<Format, Format::mxfp4>());
    case Format::int8:
      return fn(std::integral_constant<Format, Format::int8>());
    default:
      return fn(std::integral_constant<Format, Format::q8_0>());
  }
}

}  // namespace octavo

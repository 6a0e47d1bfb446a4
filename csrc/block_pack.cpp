// Rows of a GGUF file, and int8 codes, into panels.
#include <algorithm>

#include "block_layout.h"
#include "block_panel.h"

namespace octavo {
namespace {

// Where the parts of a block (of a super-block for k-quants) begin in a file.
struct FileLayout {
  int64_t bytes;
  int64_t d;
  int64_t low;   // 4 bits of each code, or all 8
  int64_t high;  // the bits above
  int64_t scales;
};

constexpr FileLayout file_layout(Format format) {
  switch (format) {
    case Format::q4_0:
      return {.bytes = 18, .d = 0, .low = 2, .high = 0, .scales = 0};
    case Format::q4_1:
      return {.bytes = 20, .d = 0, .low = 4, .high = 0, .scales = 0};
    case Format::q5_0:
      return {.bytes = 22, .d = 0, .low = 6, .high = 2, .scales = 0};
    case Format::q5_1:
      return {.bytes = 24, .d = 0, .low = 8, .high = 4, .scales = 0};
    case Format::q4_k:
      return {.bytes = 144, .d = 0, .low = 16, .high = 0, .scales = 4};
    case Format::q5_k:
      return {.bytes = 176, .d = 0, .low = 48, .high = 16, .scales = 4};
    case Format::q6_k:
      return {.bytes = 210, .d = 208, .low = 0, .high = 128, .scales = 192};
    case Format::mxfp4:
      return {.bytes = 17, .d = 0, .low = 1, .high = 0, .scales = 0};
    case Format::int8:
      return {.bytes = 32, .d = 0, .low = 0, .high = 0, .scales = 0};
    default:  // q8_0
      return {.bytes = 34, .d = 0, .low = 2, .high = 0, .scales = 0};
  }
}

OCTAVO_INLINE uint32_t word(const uint8_t* from) { return load_as<uint32_t>(from); }
OCTAVO_INLINE void put_word(uint8_t* to, uint32_t value) { std::memcpy(to, &value, sizeof value); }

// The 32 codes of block `index` of a group, a byte each.
template <Format FORMAT>
OCTAVO_INLINE void read_codes(const uint8_t* group, int index, uint8_t* codes) {
  const uint8_t* low = group + file_layout(FORMAT).low;
  const uint8_t* high = group + file_layout(FORMAT).high;
  if constexpr (block_layout(FORMAT).bits == 8) {
    for (int i = 0; i < BLOCK; i++) codes[i] = low[i] ^ 0x80;
  } else if constexpr (FORMAT == Format::q6_k) {
    const int half = index / 4, quarter = index % 4;
    for (int i = 0; i < BLOCK; i++)
      codes[i] = (low[64 * half + 32 * (quarter % 2) + i] >> (quarter / 2 * 4) & 15) |
                 (high[32 * half + i] >> (2 * quarter) & 3) << 4;
  } else if constexpr (block_layout(FORMAT).byte_scales) {
    for (int i = 0; i < BLOCK; i++) codes[i] = low[32 * (index / 2) + i] >> (index % 2 * 4) & 15;
    if constexpr (FORMAT == Format::q5_k)
      for (int i = 0; i < BLOCK; i++) codes[i] |= (high[i] >> index & 1) << 4;
  } else {
    for (int i = 0; i < 16; i++) codes[i] = low[i] & 15;
    for (int i = 0; i < 16; i++) codes[16 + i] = low[i] >> 4;
    if constexpr (block_layout(FORMAT).bits == 5)
      for (int i = 0; i < BLOCK; i++) codes[i] |= (word(high) >> i & 1) << 4;
  }
}

// Two inputs of the first half, two of the second, and so on.
OCTAVO_INLINE void let_halves_meet(uint8_t* codes) {
  uint8_t apart[BLOCK];
  std::memcpy(apart, codes, BLOCK);
  for (int i = 0; i < BLOCK; i++) codes[i % 16 / 2 * 4 + i / 16 * 2 + i % 2] = apart[i];
}

template <int BITS>
OCTAVO_INLINE void put_codes(const uint8_t* codes, int64_t lane, uint8_t* to) {
  to += 4 * lane;
  if constexpr (BITS == 8) {
    for (int s = 0; s < STEPS; s++) put_word(to + s * STEP_BYTES, word(codes + 4 * s));
    return;
  }
  for (int s = 0; s < 4; s++)
    put_word(to + s * STEP_BYTES, (word(codes + 4 * s) & 0x0f0f0f0fu) |
                                      (word(codes + 4 * s + 16) & 0x0f0f0f0fu) << 4);
  constexpr int HIGH = BITS == 8 ? 0 : BITS - 4;
  for (int plane = 0; plane < HIGH; plane++) {
    uint32_t bits = 0;
    for (int bit = 0; bit < 8; bit += HIGH) {
      const uint32_t four = word(codes + 4 * (plane * 8 + bit) / HIGH);
      bits |= (four >> 4 & 0x01010101u * ((1 << HIGH) - 1)) << bit;
    }
    put_word(to + (4 + plane) * STEP_BYTES, bits);
  }
}

// The two scale bytes of block `index`.
template <Format FORMAT>
OCTAVO_INLINE void put_byte_scales(const uint8_t* s, int index, int64_t lane, uint8_t* to) {
  if constexpr (FORMAT == Format::q6_k) {
    to[lane] = s[2 * index];
    to[PANEL + lane] = s[2 * index + 1];
  } else if (index < 4) {  // 6 bits each, the last four split over two bytes
    to[lane] = s[index] & 63;
    to[PANEL + lane] = s[index + 4] & 63;
  } else {
    to[lane] = (s[index + 4] & 15) | s[index - 4] >> 6 << 4;
    to[PANEL + lane] = s[index + 4] >> 4 | s[index] >> 6 << 4;
  }
}

// One group of one output.
template <Format FORMAT>
OCTAVO_INLINE void pack_group(const uint8_t* from, int64_t lane, uint8_t* to) {
  constexpr BlockLayout LAYOUT = block_layout(FORMAT);
  constexpr FileLayout FILE = file_layout(FORMAT);
  constexpr int64_t SIZE = LAYOUT.d_bytes;  // of m too
  for (int64_t i = 0; i < (SIZE > 0) + LAYOUT.minimum; i++)
    std::memcpy(to + SIZE * (i * PANEL + lane), from + FILE.d + SIZE * i, SIZE);
  for (int i = 0; i < LAYOUT.blocks; i++) {
    uint8_t codes[BLOCK];
    uint8_t* block = to + LAYOUT.head_bytes() + i * LAYOUT.block_bytes();
    read_codes<FORMAT>(from, i, codes);
    if constexpr (LAYOUT.bits < 8) let_halves_meet(codes);
    put_codes<LAYOUT.bits>(codes, lane, block);
    if constexpr (LAYOUT.byte_scales)
      put_byte_scales<FORMAT>(from + FILE.scales, i, lane, block + LAYOUT.code_bytes());
  }
}

}  // namespace

bool is_gguf(Format format) { return format >= Format::q4_0 && format <= Format::mxfp4; }

int64_t gguf_block(Format format) { return BLOCK * block_layout(format).blocks; }

int64_t gguf_row_bytes(Format format, int64_t k) {
  return k / gguf_block(format) * file_layout(format).bytes;
}

void pack_blocks(Packed& w, const uint8_t* from, int64_t first, int64_t rows) {
  const int64_t row_bytes = gguf_row_bytes(w.format, w.k);
  with_block_format(w.format, [&](auto format) {
    constexpr int64_t FROM = file_layout(format()).bytes;
    constexpr int64_t TO = block_layout(format()).group_bytes();
    for (int64_t at = first; at < first + rows;) {
      const int64_t count = std::min(PANEL - at % PANEL, first + rows - at);
      uint8_t* panel = w.data.data() + at / PANEL * w.panel_bytes();
      const uint8_t* row = from + (at - first) * row_bytes;
      for (int64_t g = 0; g < row_bytes / FROM; g++)
        for (int64_t r = 0; r < count; r++)
          pack_group<format()>(row + r * row_bytes + g * FROM, at % PANEL + r, panel + g * TO);
      at += count;
    }
  });
}

void pack_int8(Packed& w, const int8_t* codes, const float* scales, int64_t first, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    const int64_t lane = (first + r) % PANEL;
    uint8_t* panel = w.data.data() + (first + r) / PANEL * w.panel_bytes();
    for (int64_t k = 0; k < w.k; k += BLOCK) {
      uint8_t block[BLOCK] = {};
      std::memcpy(block, codes + r * w.k + k, std::min(BLOCK, w.k - k));
      pack_group<Format::int8>(block, lane, panel + k / BLOCK * STEPS * STEP_BYTES);
    }
    std::memcpy(panel + w.panel_bytes() + 4 * (lane - PANEL), scales + r, sizeof *scales);
  }
}

}  // namespace octavo

// Floats into panels and back.
#include <algorithm>
#include <type_traits>

#include "float_panel.h"

namespace octavo {
namespace {

constexpr int64_t CHUNK = 256;  // values of k at a time: 16 rows of them stay in L1

struct Float32 {
  using Value = float;
  static constexpr int64_t PAIR = 1;  // values of one output that lie side by side
  static F32 get(const float* from) { return load(from); }
  static void put(float* to, F32 v) { store(to, v); }
};

struct Float16 {
  using Value = uint16_t;
  static constexpr int64_t PAIR = 1;
  static F32 get(const uint16_t* from) { return load_f16(from); }
  static void put(uint16_t* to, F32 v) { store_f16(to, v); }
};

struct Bfloat16 {
  using Value = uint16_t;
  static constexpr int64_t PAIR = 2;
  static F32 get(const uint16_t* from) { return load_bf16(from); }
  static void put(uint16_t* to, F32 v) { store_bf16(to, v); }
};

// fn(a number type), for the one of this format.
template <class F>
void with_type(Format format, F&& fn) {
  if (format == Format::f32) return fn(Float32{});
  if (format == Format::f16) return fn(Float16{});
  fn(Bfloat16{});
}

// Where value k of output `lane` lies in a panel, counted in values.
template <class Type>
int64_t place(int64_t k, int64_t lane) {
  return (k / Type::PAIR * PANEL + lane) * Type::PAIR + k % Type::PAIR;
}

// `count` values, zeros behind them up to `padded`.
template <class Source, class Target>
void convert(const typename Source::Value* from, int64_t count, int64_t padded,
             typename Target::Value* to) {
  int64_t i = 0;
  for (; i + W <= count; i += W) Target::put(to + i, Source::get(from + i));
  for (; i < padded; i += W) {
    typename Source::Value part[W] = {};
    if (i < count) std::memcpy(part, from + i, (count - i) * sizeof *from);
    Target::put(to + i, Source::get(part));
  }
}

// Rows of `stride` words become lanes lane .. lane + rows - 1 of a panel.
template <class Word>
OCTAVO_INLINE void transpose(const Word* from, int64_t stride, int64_t rows, int64_t words,
                             Word* panel, int64_t lane) {
  for (int64_t k = 0; k < words; k++)
    for (int64_t r = 0; r < rows; r++) panel[k * PANEL + lane + r] = from[r * stride + k];
}

// Up to 16 rows [rows][k], each into its lane of a panel.
template <class Source, class Target>
void pack_panel(const typename Source::Value* from, int64_t rows, int64_t k, uint8_t* panel,
                int64_t lane) {
  using Word = std::conditional_t<sizeof(typename Target::Value) * Target::PAIR == 4, uint32_t,
                                  uint16_t>;
  constexpr int64_t STRIDE = CHUNK / Target::PAIR;
  alignas(64) Word words[PANEL * STRIDE];
  auto* values = reinterpret_cast<typename Target::Value*>(words);
  for (int64_t begin = 0; begin < k; begin += CHUNK) {
    const int64_t count = std::min(CHUNK, k - begin);
    const int64_t padded = (count + BLOCK - 1) / BLOCK * BLOCK;
    for (int64_t r = 0; r < rows; r++)
      convert<Source, Target>(from + r * k + begin, count, padded, values + r * CHUNK);
    Word* to = reinterpret_cast<Word*>(panel) + begin / Target::PAIR * PANEL;
    if (rows == PANEL)  // a constant makes it fast
      transpose(words, STRIDE, PANEL, padded / Target::PAIR, to, 0);
    else
      transpose(words, STRIDE, rows, padded / Target::PAIR, to, lane);
  }
}

}  // namespace

void float_pack(Packed& w, Format source, const void* from, int64_t first, int64_t rows) {
  with_type(source, [&](auto source_type) {
    with_type(w.format, [&](auto target_type) {
      using Source = decltype(source_type);
      const auto* row = static_cast<const typename Source::Value*>(from);
      for (int64_t at = first; at < first + rows;) {
        const int64_t lane = at % PANEL;
        const int64_t count = std::min(PANEL - lane, first + rows - at);
        uint8_t* panel = w.data.data() + at / PANEL * w.panel_bytes();
        pack_panel<Source, decltype(target_type)>(row, count, w.k, panel, lane);
        row += count * w.k;
        at += count;
      }
    });
  });
}

void float_unpack_row(const Packed& w, int64_t index, float* values) {
  with_type(w.format, [&](auto type) {
    using Type = decltype(type);
    using Value = typename Type::Value;
    const auto* panel = reinterpret_cast<const Value*>(w.panel(index / PANEL));
    for (int64_t begin = 0; begin < w.k; begin += W) {
      Value some[W];
      for (int64_t i = 0; i < W; i++) some[i] = panel[place<Type>(begin + i, index % PANEL)];
      const F32 v = Type::get(some);
      std::memcpy(values + begin, &v, std::min<int64_t>(W, w.k - begin) * sizeof(float));
    }
  });
}

}  // namespace octavo

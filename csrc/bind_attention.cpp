// Attention over paged KV for Python: one layer at a time, as the tests need it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <vector>

#include "attention.h"
#include "bind.h"
#include "border.h"
#include "names.h"
#include "rotary.h"

namespace nb = nanobind;

namespace octavo {
namespace {

using Vector = std::optional<Array<const float, 1>>;

BatchRows batch_rows(const Array<const int32_t, 1>& row_starts,
                     const Array<const int32_t, 1>& context_lens,
                     const Array<const int32_t, 2>& table, int64_t tokens) {
  const int64_t rows = context_lens.shape(0);
  require(int64_t(row_starts.shape(0)) == rows + 1, "row_starts must be [rows + 1]");
  require(int64_t(table.shape(0)) == rows, "table must be [rows, blocks]");
  require(row_starts.data()[rows] == tokens, "row_starts must end with the number of tokens");
  return {rows,         tokens, row_starts.data(), context_lens.data(),
          table.data(), int64_t(table.shape(1))};
}

// One layer's attention and where its KV lies in a page.
class AttentionLayer {
 public:
  AttentionLayer(int heads, int kv_heads, int head_dim, int v_head_dim, float scale, int window,
                 int chunk, float soft_cap, const Vector& sinks, const std::string& format,
                 int block_size, int64_t k_offset, int value_column)
      : sinks_(sinks ? std::vector<float>(sinks->data(), sinks->data() + sinks->size())
                     : std::vector<float>()),
        spec_{.heads = heads,
              .kv_heads = kv_heads,
              .head_dim = head_dim,
              .v_head_dim = v_head_dim,
              .scale = scale,
              .sight = {window, chunk},
              .soft_cap = soft_cap,
              .sinks = sinks ? sinks_.data() : nullptr,
              .value_column = value_column},
        pages_{.base = nullptr,
               .page_bytes = 0,
               .k_offset = k_offset,
               .v_offset = 0,
               .format = named<KVFormat>(kKVFormats, format),
               .kv_heads = kv_heads,
               .head_dim = head_dim,
               .v_head_dim = spec_.stored_v_dim(),
               .block_size = block_size} {
    require_attention(spec_, pages_.format, block_size);
    require(!sinks || int(sinks_.size()) == heads, "sinks must be [heads]");
    pages_.v_offset = k_offset + pages_.part_bytes(head_dim);
  }

  // Norm and rotary on q and k of qkv [tokens, width], in place, then k and v into the pages.
  void prepare(Pool& pool, Array<float, 2> qkv, Array<uint8_t, 2> pages,
               Array<const int32_t, 1> row_starts, Array<const int32_t, 1> context_lens,
               Array<const int32_t, 2> table, const Vector& q_norm, const Vector& k_norm,
               float eps, std::optional<Array<const float, 2>> cos,
               std::optional<Array<const float, 2>> sin) {
    const BatchRows batch = batch_rows(row_starts, context_lens, table, check(qkv, pages));
    const int half = cos ? cos->shape(1) : 0;
    for (const auto* turn : {&cos, &sin})
      require(!*turn || ((*turn)->shape(0) == qkv.shape(0) && int((*turn)->shape(1)) == half),
              "cos and sin must be [tokens, half]");
    require(bool(cos) == bool(sin) && 2 * half <= spec_.head_dim, "rotary_dim <= head_dim");
    Preparation preparation{.q_norm = head_norm(q_norm, eps), .k_norm = head_norm(k_norm, eps)};
    if (half > 0) preparation.rotary = {cos->data(), sin->data(), half};
    const nb::gil_scoped_release release;
    pool.run([&](Team& team) {
      octavo::prepare(team, spec_, preparation, at(pages), batch, qkv.data(), qkv.shape(1));
    });
  }

  // out [tokens, heads, v_head_dim] from q in qkv [tokens, width] and the pages.
  void attend(Pool& pool, Array<float, 2> qkv, Array<uint8_t, 2> pages,
              Array<const int32_t, 1> row_starts, Array<const int32_t, 1> context_lens,
              Array<const int32_t, 2> table, Array<float, 3> out) {
    const BatchRows batch = batch_rows(row_starts, context_lens, table, check(qkv, pages));
    const int64_t width = int64_t{spec_.heads} * spec_.v_head_dim;
    require(out.shape(0) == qkv.shape(0) && int(out.shape(1)) == spec_.heads &&
                int(out.shape(2)) == spec_.v_head_dim,
            "out must be [tokens, heads, v_head_dim]");
    const nb::gil_scoped_release release;
    plan_.make(batch, spec_, pool.threads());
    pool.run([&](Team& team) {
      octavo::attend(team, plan_, spec_, at(pages), batch, qkv.data(), qkv.shape(1), out.data(),
                     width);
    });
  }

 private:
  // Returns the number of tokens.
  int64_t check(const Array<float, 2>& qkv, const Array<uint8_t, 2>& pages) const {
    require(int64_t(qkv.shape(1)) == spec_.width(), "qkv must be [tokens, q + k + v]");
    require(int64_t(pages.shape(1)) >= pages_.v_offset + pages_.part_bytes(pages_.v_head_dim),
            "pages are too small");
    return qkv.shape(0);
  }

  HeadNorm head_norm(const Vector& weight, float eps) const {
    require(!weight || int(weight->size()) == spec_.head_dim, "a norm must be [head_dim]");
    return {bool(weight), weight ? weight->data() : nullptr, eps};
  }

  KVPages at(const Array<uint8_t, 2>& pages) const {
    KVPages found = pages_;
    found.base = pages.data();
    found.page_bytes = pages.shape(1);
    return found;
  }

  std::vector<float> sinks_;
  AttentionSpec spec_;
  KVPages pages_;
  AttentionPlan plan_;
};

void rope(Pool& pool, Array<const int64_t, 1> positions, Array<const float, 1> inv_freq,
          float factor, Array<float, 2> cos, Array<float, 2> sin) {
  for (const auto& table : {cos, sin})
    require(table.shape(0) == positions.size() && table.shape(1) == inv_freq.size(),
            "cos and sin must be [tokens, half]");
  const nb::gil_scoped_release release;
  pool.run([&](Team& team) {
    rope_table(team, positions.data(), positions.size(), inv_freq.data(), inv_freq.size(), factor,
               cos.data(), sin.data());
  });
}

}  // namespace

void bind_attention(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<AttentionLayer>(module, "AttentionLayer", "One layer's attention over paged KV.")
      .def(nb::init<int, int, int, int, float, int, int, float, const Vector&, const std::string&,
                    int, int64_t, int>(),
           nb::kw_only(), "heads"_a, "kv_heads"_a, "head_dim"_a, "v_head_dim"_a, "scale"_a,
           "window"_a = 0, "chunk"_a = 0, "soft_cap"_a = 0.f, "sinks"_a = nb::none(),
           "format"_a = "f32", "block_size"_a = 16, "k_offset"_a = 0, "value_column"_a = -1)
      .def("prepare", &AttentionLayer::prepare, "pool"_a, "qkv"_a, "pages"_a, "row_starts"_a,
           "context_lens"_a, "table"_a, nb::kw_only(), "q_norm"_a = nb::none(),
           "k_norm"_a = nb::none(), "eps"_a = 0.f, "cos"_a = nb::none(), "sin"_a = nb::none())
      .def("attend", &AttentionLayer::attend, "pool"_a, "qkv"_a, "pages"_a, "row_starts"_a,
           "context_lens"_a, "table"_a, "out"_a);
  module.def("rope_table", &rope, "pool"_a, "positions"_a, "inv_freq"_a, "factor"_a, "cos"_a,
             "sin"_a);
}

}  // namespace octavo

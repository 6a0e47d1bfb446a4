// Attention as an op of a Program, for Python: that it stays inside of its buffers, its pages and
// its tables is checked here.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "border.h"
#include "names.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

// The weights of a norm over heads, or None, and its eps.
using HeadNormOf = std::optional<std::pair<Values, float>>;
using TemperOf = std::optional<std::tuple<float, float, float>>;  // scale, length, offset

// Without its weights, which are returned.
std::vector<float> set_norm(HeadNorm& norm, const HeadNormOf& given, size_t head_dim) {
  if (!given) return {};
  const auto& [weight, eps] = *given;
  require(!weight || weight->size() == head_dim,
          "attention: a norm's weight is not one a head_dim");
  norm = {.on = true, .weight = nullptr, .eps = eps};
  return floats(weight);
}

Temper temper_of(const TemperOf& given) {
  if (!given) return {};
  const auto& [scale, length, offset] = *given;
  require(length > 0 && offset >= 0, "attention: temper has no positive length");
  return {scale, length, offset};
}

// What this layer reads and writes lies inside its buffers, its pages and its tables.
void check_attention(const Program& program, BufferId to, BufferId from,
                     const Program::Attention& attention) {
  const AttentionSpec& spec = attention.spec;
  const KVPages& pages = attention.pages;
  require_attention(spec, pages.format, pages.block_size);
  require(!program.chosen(to) && !program.chosen(from), "attention: its rows are all tokens");
  require(program.width(from) == spec.width(), "attention: q, k and v do not fill the buffer");
  require(program.width(to) == int64_t{spec.heads} * spec.v_head_dim,
          "attention: outputs do not fill the buffer");
  require(attention.sinks.empty() || attention.sinks.size() == size_t(spec.heads),
          "attention: sinks are not one a head");
  require(attention.rope < 0 || 2 * program.half(attention.rope) <= spec.head_dim,
          "attention: rope turns more than head_dim");
  require(attention.group >= 0, "attention: there is no such group");
  require(pages.k_offset >= 0 && pages.v_offset >= 0 && pages.page_bytes > 0 &&
              pages.k_offset + pages.part_bytes(spec.head_dim) <= pages.page_bytes &&
              pages.v_offset + pages.part_bytes(pages.v_head_dim) <= pages.page_bytes,
          "attention: k and v lie outside of a page");
}

void add_attention(Program& program, BufferId to, BufferId from, std::shared_ptr<Buffer> memory,
                   int64_t page_bytes, int64_t k_offset, int64_t v_offset, int block_size,
                   const std::string& kv_format, int group, int heads, int kv_heads, int head_dim,
                   int v_head_dim, float scale, int window, int chunk, float soft_cap,
                   const Values& sinks, int rope, const HeadNormOf& q_norm,
                   const HeadNormOf& k_norm, bool norm_after_rope, const TemperOf& temper,
                   std::optional<int> value_column) {
  Program::Attention attention;
  attention.spec = {.heads = heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .v_head_dim = v_head_dim,
                    .scale = scale,
                    .sight = {window, chunk},
                    .soft_cap = soft_cap,
                    .value_column = value_column.value_or(-1)};
  attention.sinks = floats(sinks);
  attention.pages = {.base = memory->data(),
                     .page_bytes = page_bytes,
                     .k_offset = k_offset,
                     .v_offset = v_offset,
                     .format = named<KVFormat>(kKVFormats, kv_format),
                     .kv_heads = kv_heads,
                     .head_dim = head_dim,
                     .v_head_dim = attention.spec.stored_v_dim(),
                     .block_size = block_size};
  attention.memory = std::move(memory);
  attention.group = group;
  attention.rope = rope;
  Preparation& preparation = attention.preparation;
  attention.q_norm = set_norm(preparation.q_norm, q_norm, head_dim);
  attention.k_norm = set_norm(preparation.k_norm, k_norm, head_dim);
  preparation.norm_after_rope = norm_after_rope;
  preparation.temper = temper_of(temper);
  require(!value_column || *value_column >= 0, "attention: value_column must not be negative");
  check_attention(program, to, from, attention);
  program.attention(to, from, std::move(attention));
}

}  // namespace

void bind_attention_op(nb::class_<Program>& program) {
  program.def("attention", &add_attention, "to"_a, "source"_a, nb::kw_only(), "memory"_a,
              "page_bytes"_a, "k_offset"_a, "v_offset"_a, "block_size"_a, "kv_format"_a, "group"_a,
              "heads"_a, "kv_heads"_a, "head_dim"_a, "v_head_dim"_a, "scale"_a, "window"_a = 0,
              "chunk"_a = 0, "soft_cap"_a = 0.f, "sinks"_a = nb::none(), "rope"_a = -1,
              "q_norm"_a = nb::none(), "k_norm"_a = nb::none(), "norm_after_rope"_a = false,
              "temper"_a = nb::none(), "value_column"_a = nb::none());
}

}  // namespace octavo

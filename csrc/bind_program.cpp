// Program and Memory for Python: arrays are checked here, once a step, and nowhere below.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "border.h"
#include "names.h"
#include "program.h"
#include "roofline.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

template <class T, int Axes>
using Input = Array<const T, Axes>;
using Vector = Input<float, 1>;
using Linear = std::pair<std::shared_ptr<Packed>, std::optional<Vector>>;
using Norm = std::pair<Vector, float>;

std::vector<float> floats(const std::optional<Vector>& array) {
  if (!array) return {};
  return {array->data(), array->data() + array->size()};
}

std::pair<std::vector<float>, float> head_norm(const std::optional<Norm>& norm, size_t head_dim) {
  if (!norm) return {};
  require(norm->first.size() == head_dim, "attention: a norm's weight is not one a head_dim");
  return {floats(norm->first), norm->second};
}

// Each row of `to` comes of the same row of `from`, which must not change meanwhile.
void require_rows_alike(const Program& program, BufferId to, BufferId from) {
  require(to != from && program.chosen(to) == program.chosen(from),
          "buffers: not two, of tokens or of chosen ones both");
}

int64_t add_buffer(Program& program, int64_t width, bool chosen) {
  require(width > 0, "buffer: width must be positive");
  return program.buffer(width, chosen);
}

int add_rope(Program& program, std::vector<float> inv_freq, float factor, int axis) {
  require(axis >= 0, "rope: axis must not be negative");
  return program.rope(std::move(inv_freq), factor, axis);
}

void add_embed(Program& program, BufferId to, std::shared_ptr<Packed> table) {
  require(!program.chosen(to) && program.width(to) == table->k, "embed: sizes differ");
  program.embed(to, std::move(table));
}

void add_choose(Program& program, const std::string& name, BufferId to, BufferId from) {
  require(program.chosen(to) && !program.chosen(from) && program.width(to) == program.width(from),
          "choose: not from tokens to chosen ones of equal width");
  program.choose(name, to, from);
}

Program::LinearPart part(const Linear& linear, int64_t inputs, int64_t column) {
  const auto& [weight, bias] = linear;
  require(weight != nullptr, "linear: None is no weight");
  require(weight->k == inputs, "linear: inputs do not fit the buffer's rows");
  require(!bias || static_cast<int64_t>(bias->size()) == weight->n, "linear: bias of another size");
  return {weight, floats(bias), column};
}

void add_linear(Program& program, const std::string& name, BufferId to, BufferId from,
                const std::vector<Linear>& linears, bool add) {
  require_rows_alike(program, to, from);
  std::vector<Program::LinearPart> parts;
  int64_t column = 0;
  for (const Linear& linear : linears) {
    parts.push_back(part(linear, program.width(from), column));
    column += linear.first->n;
  }
  require(column == program.width(to), "linear: outputs do not fill the buffer");
  program.linear(name, to, from, std::move(parts), add);
}

void add_gated(Program& program, const std::string& name, BufferId to, BufferId from,
               const Linear& gate, const Linear& up, const std::string& activation) {
  require_rows_alike(program, to, from);
  const int64_t inputs = program.width(from);
  Program::LinearPart left = part(gate, inputs, 0), right = part(up, inputs, 0);
  require(left.weight->n == right.weight->n && right.weight->n == program.width(to),
          "gated: outputs differ");
  program.gated(name, to, from, std::move(left), std::move(right),
                named<Activation>(kActivations, activation));
}

void add_norm(Program& program, const std::string& name, BufferId to, BufferId from, Vector weight,
              float eps) {
  const int64_t width = program.width(to);
  require(program.chosen(to) == program.chosen(from) && program.width(from) == width &&
              static_cast<int64_t>(weight.size()) == width,
        "norm: sizes differ");
  program.norm(name, to, from, floats(weight), eps);
}

// What this layer reads and writes lies inside its buffers, its pages and its tables.
void check_attention(const Program& program, BufferId to, BufferId from,
                     const Program::Attention& attention) {
  const AttentionSpec& spec = attention.spec;
  const KVPages& pages = attention.pages;
  require_attention(spec, pages.block_size);
  require(!program.chosen(to) && !program.chosen(from), "attention: its rows are all tokens");
  require(program.width(from) == int64_t{spec.heads + spec.kv_heads} * spec.head_dim +
                                     int64_t{spec.kv_heads} * spec.v_head_dim,
          "attention: q, k and v do not fill the buffer");
  require(program.width(to) == int64_t{spec.heads} * spec.v_head_dim,
          "attention: outputs do not fill the buffer");
  require(attention.sinks.empty() || attention.sinks.size() == size_t(spec.heads),
          "attention: sinks are not one a head");
  require(attention.rope < 0 || 2 * program.half(attention.rope) <= spec.head_dim,
          "attention: rope turns more than head_dim");
  require(attention.group >= 0, "attention: there is no such group");
  require(pages.k_offset >= 0 && pages.v_offset >= 0 && pages.page_bytes > 0 &&
              pages.k_offset + pages.part_bytes(spec.head_dim) <= pages.page_bytes &&
              pages.v_offset + pages.part_bytes(spec.v_head_dim) <= pages.page_bytes,
          "attention: k and v lie outside of a page");
}

void add_attention(Program& program, BufferId to, BufferId from, std::shared_ptr<Buffer> memory,
                   int64_t page_bytes, int64_t k_offset, int64_t v_offset, int block_size,
                   const std::string& kv_format, int group, int heads, int kv_heads, int head_dim,
                   int v_head_dim, float scale, int window, float soft_cap,
                   std::optional<Vector> sinks, int rope, std::optional<Norm> q_norm,
                   std::optional<Norm> k_norm) {
  Program::Attention attention;
  attention.spec = {.heads = heads,
                    .kv_heads = kv_heads,
                    .head_dim = head_dim,
                    .v_head_dim = v_head_dim,
                    .scale = scale,
                    .window = window,
                    .soft_cap = soft_cap,
                    .sinks = nullptr};
  attention.sinks = floats(sinks);
  attention.pages = {.base = memory->data(),
                     .page_bytes = page_bytes,
                     .k_offset = k_offset,
                     .v_offset = v_offset,
                     .format = named<KVFormat>(kKVFormats, kv_format),
                     .kv_heads = kv_heads,
                     .head_dim = head_dim,
                     .v_head_dim = v_head_dim,
                     .block_size = block_size};
  attention.memory = std::move(memory);
  attention.group = group;
  attention.rope = rope;
  std::tie(attention.q_norm, attention.q_eps) = head_norm(q_norm, head_dim);
  std::tie(attention.k_norm, attention.k_eps) = head_norm(k_norm, head_dim);
  check_attention(program, to, from, attention);
  program.attention(to, from, std::move(attention));
}

// The table has every block that a row's tokens see, and each lies in the pool.
void check_blocks(const Step& step, const Program::Paging& paging) {
  require(size_t(paging.group) < step.tables.size(), "tables: not one for each KV group");
  const int64_t width = step.widths[paging.group];
  for (int64_t r = 0; r < step.rows; r++) {
    const int64_t context = step.context_lens[r];
    const int64_t first = context - (step.row_starts[r + 1] - step.row_starts[r]);
    const int64_t oldest = paging.window > 0 ? std::max<int64_t>(0, first + 1 - paging.window) : 0;
    const int64_t blocks = (context + paging.block_size - 1) / paging.block_size;
    require(blocks <= width, "tables: shorter than a row's context");
    const int32_t* ids = step.tables[paging.group].data() + r * width;
    uint32_t largest = 0;  // a negative one would be larger than all
    for (int64_t i = oldest / paging.block_size; i < blocks; i++)
      largest = std::max<uint32_t>(largest, ids[i]);
    require(blocks == 0 || largest < paging.pages, "tables: a block outside of the pool");
  }
}

// Numbers that ops take as indices.
void check_step(const Step& step, const Program& program) {
  bool given = false;
  for (int32_t id : step.token_ids) {
    require(id < program.vocabulary(), "token_ids: not below the vocabulary's size");
    given |= id < 0;
  }
  require(!given || !step.embeddings.empty(), "embeddings: none for a token without id");
  const size_t values = static_cast<size_t>(step.tokens * program.hidden());
  require(step.embeddings.empty() || step.embeddings.size() == values,
          "embeddings: not [tokens, hidden]");
  for (int64_t token : step.chosen_tokens)
    require(token >= 0 && token < step.tokens, "chosen: not below the number of tokens");
  require(step.row_starts.front() == 0 && step.row_starts.back() == step.tokens &&
              std::is_sorted(step.row_starts.begin(), step.row_starts.end()),
          "row_starts: not rising from 0 to the number of tokens");
  for (int64_t r = 0; r < step.rows; r++)
    require(step.context_lens[r] >= step.row_starts[r + 1] - step.row_starts[r],
            "context_lens: shorter than a row");
  for (const Program::Paging& paging : program.pagings()) check_blocks(step, paging);
  check_states(step, program);
}

void take(Program& program, Input<int32_t, 1> token_ids, Input<int64_t, 2> positions,
          Input<int32_t, 1> row_starts, Input<int32_t, 1> context_lens,
          const std::vector<Input<int32_t, 2>>& tables, Input<int64_t, 1> chosen,
          std::optional<Input<float, 2>> embeddings) {
  Step step;
  step.tokens = token_ids.size();
  step.rows = context_lens.size();
  step.chosen = chosen.size();
  require(static_cast<int64_t>(positions.shape(1)) == step.tokens, "positions: not one a token");
  require(static_cast<int>(positions.shape(0)) >= program.axes(), "positions: too few axes");
  require(static_cast<int64_t>(row_starts.size()) == step.rows + 1, "row_starts: not rows + 1");
  step.token_ids.assign(token_ids.data(), token_ids.data() + step.tokens);
  step.positions.assign(positions.data(), positions.data() + positions.size());
  step.row_starts.assign(row_starts.data(), row_starts.data() + row_starts.size());
  step.context_lens.assign(context_lens.data(), context_lens.data() + step.rows);
  step.chosen_tokens.assign(chosen.data(), chosen.data() + step.chosen);
  if (embeddings)
    step.embeddings.assign(embeddings->data(), embeddings->data() + embeddings->size());
  for (const auto& table : tables) {
    require(static_cast<int64_t>(table.shape(0)) == step.rows, "tables: not one line a row");
    step.tables.emplace_back(table.data(), table.data() + table.size());
    step.widths.push_back(table.shape(1));
  }
  check_step(step, program);
  nb::gil_scoped_release release;
  program.take(std::move(step));
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> rows(Program& program, BufferId buffer) {
  const size_t shape[] = {static_cast<size_t>(program.count(buffer)),
                          static_cast<size_t>(program.width(buffer))};
  const int64_t strides[] = {program.stride(buffer), 1};
  return {program.rows(buffer), 2, shape, nb::find(program), strides};
}

void start(Program& program, int segment) {
  require(0 <= segment && segment < program.segments(), "there is no such segment");
  nb::gil_scoped_release release;  // the job before may still run
  program.start(segment);
}

using Cost = std::tuple<std::string, double, std::map<std::string, double>, double>;

std::vector<Cost> costs(Program& program) {
  program.wait();
  std::vector<Cost> found;
  for (const OpCost& cost : program.costs()) {
    std::map<std::string, double> operations;
    for (int form = 0; form < FORMS; form++)
      if (const double some = cost.work.operations[form]; some > 0)
        operations[kOperands[static_cast<int>(operand_of(static_cast<Form>(form)))]] += some;
    found.emplace_back(cost.name, cost.seconds, std::move(operations), cost.work.bytes);
  }
  return found;
}

}  // namespace

void bind_program(nb::module_& module) {
  nb::class_<Buffer>(module, "Memory", "Bytes on huge pages, zero at first.")
      .def(nb::init<size_t>(), "nbytes"_a)
      .def_prop_ro("nbytes", &Buffer::size)
      .def_prop_ro("data", [](nb::handle_t<Buffer> self) {
        Buffer& buffer = nb::cast<Buffer&>(self);
        return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(buffer.data(), {buffer.size()}, self);
      });
  nb::class_<Program> program(module, "Program", "A step as a list of ops over buffers of rows.");
  program
      .def(nb::init<std::shared_ptr<Pool>>(), "pool"_a)
      .def("buffer", &add_buffer, "width"_a, "chosen"_a)
      .def("rope", &add_rope, "inv_freq"_a, "factor"_a, "axis"_a)
      .def("embed", &add_embed, "to"_a, "table"_a)
      .def("norm", &add_norm, "name"_a, "to"_a, "source"_a, "weight"_a, "eps"_a)
      .def("linear", &add_linear, "name"_a, "to"_a, "source"_a, "parts"_a, "add"_a)
      .def("gated", &add_gated, "name"_a, "to"_a, "source"_a, "gate"_a, "up"_a, "activation"_a)
      .def("attention", &add_attention, "to"_a, "source"_a, nb::kw_only(), "memory"_a,
           "page_bytes"_a, "k_offset"_a, "v_offset"_a, "block_size"_a, "kv_format"_a, "group"_a,
           "heads"_a, "kv_heads"_a, "head_dim"_a, "v_head_dim"_a, "scale"_a, "window"_a = 0,
           "soft_cap"_a = 0.f, "sinks"_a = nb::none(), "rope"_a = -1, "q_norm"_a = nb::none(),
           "k_norm"_a = nb::none())
      .def("choose", &add_choose, "name"_a, "to"_a, "source"_a)
      .def("cut", &Program::cut)
      .def("take", &take, nb::kw_only(), "token_ids"_a, "positions"_a, "row_starts"_a,
           "context_lens"_a, "tables"_a, "chosen"_a, "embeddings"_a = nb::none())
      .def("start", &start, "segment"_a)
      .def("wait", &Program::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("rows", &rows, "buffer"_a)
      .def("costs", &costs)
      .def_prop_ro("segments", &Program::segments);
  bind_state(program);
}

}  // namespace octavo

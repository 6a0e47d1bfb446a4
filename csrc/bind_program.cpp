// Program and Memory for Python: arrays are checked here, once a step, and nowhere below.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "names.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

template <class T, int Axes>
using Array = nb::ndarray<const T, nb::ndim<Axes>, nb::c_contig, nb::device::cpu>;
using Vector = Array<float, 1>;
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

Program::LinearPart part(const Linear& linear, int64_t inputs, int64_t column) {
  const auto& [weight, bias] = linear;
  require(weight->k == inputs, "linear: inputs do not fit the buffer's rows");
  require(!bias || static_cast<int64_t>(bias->size()) == weight->n, "linear: bias of another size");
  return {weight, floats(bias), column};
}

void add_linear(Program& program, const std::string& name, BufferId to, BufferId from,
                const std::vector<Linear>& linears, bool add) {
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
  const int64_t inputs = program.width(from);
  require(gate.first->n == up.first->n && up.first->n == program.width(to), "gated: outputs differ");
  program.gated(name, to, from, part(gate, inputs, 0), part(up, inputs, 0),
                named<Activation>(kActivations, activation));
}

void add_norm(Program& program, const std::string& name, BufferId to, BufferId from, Vector weight,
              float eps) {
  const int64_t width = program.width(to);
  require(program.width(from) == width && static_cast<int64_t>(weight.size()) == width,
        "norm: sizes differ");
  program.norm(name, to, from, floats(weight), eps);
}

void add_attention(Program& program, BufferId to, BufferId from, std::shared_ptr<Buffer> memory,
                   int64_t page_bytes, int64_t k_offset, int64_t v_offset, int block_size,
                   const std::string& kv_format, int group, int heads, int kv_heads, int head_dim,
                   int v_head_dim, float scale, int window, float soft_cap,
                   std::optional<Vector> sinks, int rope, std::optional<Norm> q_norm,
                   std::optional<Norm> k_norm) {
  require(program.width(from) == (heads + kv_heads) * head_dim + kv_heads * v_head_dim,
        "attention: q, k and v do not fill the buffer");
  require(program.width(to) == heads * v_head_dim, "attention: outputs do not fill the buffer");
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
  program.attention(to, from, std::move(attention));
}

// Numbers that ops take as indices.
void check(const Step& step, const Program& program) {
  bool given = false;
  for (int32_t id : step.token_ids) {
    require(id < program.vocabulary(), "token_ids: not below the vocabulary's size");
    given |= id < 0;
  }
  require(!given || !step.embeddings.empty(), "embeddings: none for a token without id");
  require(step.embeddings.empty() || step.embeddings.size() == size_t(step.tokens) * program.hidden(),
          "embeddings: not [tokens, hidden]");
  for (int64_t token : step.chosen_tokens)
    require(token >= 0 && token < step.tokens, "chosen: not below the number of tokens");
  require(step.row_starts.front() == 0 && step.row_starts.back() == step.tokens &&
              std::is_sorted(step.row_starts.begin(), step.row_starts.end()),
          "row_starts: not rising from 0 to the number of tokens");
}

void take(Program& program, Array<int32_t, 1> token_ids, Array<int64_t, 2> positions,
          Array<int32_t, 1> row_starts, Array<int32_t, 1> context_lens,
          const std::vector<Array<int32_t, 2>>& tables, Array<int64_t, 1> chosen,
          std::optional<Array<float, 2>> embeddings) {
  Step step;
  step.tokens = token_ids.size();
  step.rows = context_lens.size();
  step.chosen = chosen.size();
  require(static_cast<int64_t>(positions.shape(1)) == step.tokens, "positions: not one a token");
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
  check(step, program);
  nb::gil_scoped_release release;
  program.take(std::move(step));
}

nb::ndarray<nb::numpy, float, nb::ndim<2>> rows(Program& program, BufferId buffer) {
  const size_t shape[] = {static_cast<size_t>(program.count(buffer)),
                          static_cast<size_t>(program.width(buffer))};
  const int64_t strides[] = {program.stride(buffer), 1};
  return {program.rows(buffer), 2, shape, nb::find(program), strides};
}

using Cost = std::tuple<std::string, std::string, double, double, double>;

std::vector<Cost> costs(const Program& program) {
  std::vector<Cost> found;
  for (const OpCost& cost : program.costs())
    found.emplace_back(cost.name, kOperands[static_cast<int>(cost.form)], cost.seconds,
                       cost.operations, cost.bytes);
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
  nb::class_<Program>(module, "Program", "A step as a list of ops over buffers of rows.")
      .def(nb::init<std::shared_ptr<Pool>>(), "pool"_a)
      .def("buffer", &Program::buffer, "width"_a, "chosen"_a)
      .def("rope", &Program::rope, "inv_freq"_a, "factor"_a, "axis"_a)
      .def("embed", &Program::embed, "to"_a, "table"_a)
      .def("norm", &add_norm, "name"_a, "to"_a, "source"_a, "weight"_a, "eps"_a)
      .def("linear", &add_linear, "name"_a, "to"_a, "source"_a, "parts"_a, "add"_a)
      .def("gated", &add_gated, "name"_a, "to"_a, "source"_a, "gate"_a, "up"_a, "activation"_a)
      .def("attention", &add_attention, "to"_a, "source"_a, nb::kw_only(), "memory"_a,
           "page_bytes"_a, "k_offset"_a, "v_offset"_a, "block_size"_a, "kv_format"_a, "group"_a,
           "heads"_a, "kv_heads"_a, "head_dim"_a, "v_head_dim"_a, "scale"_a, "window"_a = 0,
           "soft_cap"_a = 0.f, "sinks"_a = nb::none(), "rope"_a = -1, "q_norm"_a = nb::none(),
           "k_norm"_a = nb::none())
      .def("choose", &Program::choose, "name"_a, "to"_a, "source"_a)
      .def("cut", &Program::cut)
      .def("take", &take, nb::kw_only(), "token_ids"_a, "positions"_a, "row_starts"_a,
           "context_lens"_a, "tables"_a, "chosen"_a, "embeddings"_a = nb::none())
      .def("start", &Program::start, "segment"_a)
      .def("wait", &Program::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("rows", &rows, "buffer"_a)
      .def("costs", &costs)
      .def_prop_ro("segments", &Program::segments);
}

}  // namespace octavo

// The ops of a Program for Python: what they read and write is checked here, when they are added,
// and nowhere below.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "bind.h"
#include "border.h"
#include "names.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

// A linear's weight, its bias and its scale; and the first column that it reads, and where its
// outputs go: None is behind the part before.
using Linear = std::tuple<std::shared_ptr<Packed>, Values, float>;
using Placed = std::tuple<std::shared_ptr<Packed>, Values, float, int64_t, std::optional<int64_t>>;

void require_rows_alike(const Program& program, BufferId to, BufferId from) {
  require(program.chosen(to) == program.chosen(from),
          "buffers: not of tokens, or of chosen ones, both");
}

// Each row of `to` comes of the same row of `from`, which must not change meanwhile.
void require_two_alike(const Program& program, BufferId to, BufferId from) {
  require(to != from, "buffers: not two");
  require_rows_alike(program, to, from);
}

int64_t add_buffer(Program& program, int64_t width, bool chosen) {
  require(width > 0, "buffer: width must be positive");
  return program.buffer(width, chosen);
}

int add_rope(Program& program, std::vector<float> inv_freq, float factor, int axis) {
  require(axis >= 0, "rope: axis must not be negative");
  return program.rope(std::move(inv_freq), factor, axis);
}

// ---- rows ----

void add_embed(Program& program, BufferId to, std::shared_ptr<Packed> table, float scale) {
  require(!program.chosen(to) && program.width(to) == table->k, "embed: sizes differ");
  program.embed(to, std::move(table), scale);
}

// [columns], of one part that all share, or of each.
std::vector<float> of_columns(const Values& values, int64_t columns, int64_t groups) {
  std::vector<float> part = floats(values), all;
  if (part.empty() || static_cast<int64_t>(part.size()) == columns) return part;
  require(static_cast<int64_t>(part.size()) * groups == columns, "norm: sizes differ");
  for (int64_t i = 0; i < groups; i++) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void add_norm(Program& program, const std::string& name, BufferId to, BufferId from,
              const Values& weight, float eps, const Values& bias, const std::string& kind,
              int64_t groups, bool add, int64_t column, std::optional<int64_t> columns) {
  require_rows_alike(program, to, from);
  const int64_t width = std::min(program.width(to), program.width(from));
  require(columns || program.width(to) == program.width(from), "norm: sizes differ");
  const int64_t count = columns.value_or(width - column);
  require(column >= 0 && count > 0 && count <= width - column, "norm: columns outside of the rows");
  require(groups > 0 && count % groups == 0, "norm: its columns are not cut into equal groups");
  program.norm(name, to, from,
               {.kind = named<NormKind>(kNorms, kind),
                .weight = of_columns(weight, count, groups),
                .bias = of_columns(bias, count, groups),
                .eps = eps,
                .column = column,
                .columns = count,
                .groups = groups,
                .add = add});
}

void add_activate(Program& program, const std::string& name, BufferId buffer,
                  const std::string& activation) {
  program.width(buffer);
  program.activate(name, buffer, named<Activation>(kActivations, activation));
}

void add_multiply(Program& program, const std::string& name, BufferId to, BufferId from,
                  const std::string& activation, int64_t column) {
  require_rows_alike(program, to, from);
  const int64_t needed = program.width(from) == 1 ? 1 : program.width(to);
  require(column >= 0 && column + needed <= program.width(from),
          "multiply: columns outside of the rows");
  program.multiply(name, to, from, named<Activation>(kActivations, activation), column);
}

void add_soft_cap(Program& program, const std::string& name, BufferId buffer, float cap) {
  program.width(buffer);
  require(cap > 0, "soft_cap: cap must be positive");
  program.soft_cap(name, buffer, cap);
}

void add_copy(Program& program, const std::string& name, BufferId to, BufferId from,
              int64_t column, int64_t from_column, std::optional<int64_t> columns) {
  require_two_alike(program, to, from);
  const int64_t count = columns.value_or(program.width(from) - from_column);
  require(column >= 0 && from_column >= 0 && count > 0 &&
              from_column + count <= program.width(from) && column + count <= program.width(to),
          "copy: columns outside of the rows");
  program.copy(name, to, from, column, from_column, count);
}

void add_add(Program& program, const std::string& name, BufferId to, BufferId from) {
  require_two_alike(program, to, from);
  require(program.width(to) == program.width(from), "add: sizes differ");
  program.add_rows(name, to, from);
}

void add_choose(Program& program, const std::string& name, BufferId to, BufferId from) {
  require(program.chosen(to) && !program.chosen(from) && program.width(to) == program.width(from),
          "choose: not from tokens to chosen ones of equal width");
  program.choose(name, to, from);
}

// ---- linears ----

Program::LinearPart linear_part(const std::shared_ptr<Packed>& weight, const Values& bias,
                                float scale) {
  require(weight != nullptr, "linear: None is no weight");
  require(!bias || static_cast<int64_t>(bias->size()) == weight->n, "linear: bias of another size");
  return {.weight = weight, .bias = floats(bias), .column = 0, .first = 0, .scale = scale};
}

// Reads whole rows of `inputs` columns.
Program::LinearPart whole_part(const Linear& linear, int64_t inputs) {
  const auto& [weight, bias, scale] = linear;
  Program::LinearPart part = linear_part(weight, bias, scale);
  require(weight->k == inputs, "linear: inputs do not fit the buffer's rows");
  return part;
}

Program::LinearPart placed_part(const Placed& placed, int64_t inputs) {
  const auto& [weight, bias, scale, first, column] = placed;
  Program::LinearPart part = linear_part(weight, bias, scale);
  require(first >= 0 && first + weight->k <= inputs, "linear: inputs outside of the buffer's rows");
  require(part.form() != Form::q8_row || weight->k == inputs,
          "linear: int8 weights read whole rows, which have one scale");
  require(may_cut(part.form(), inputs, first, weight->k),
          "linear: a part's first input and their number must be multiples of 32 for weights in "
          "blocks, of 2 for floats");
  part.first = first;
  return part;
}

// Outputs lie side by side, in whatever order.
void require_columns(const std::vector<Program::LinearPart>& parts, int64_t width, bool filled) {
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const auto& part : parts) spans.emplace_back(part.column, part.column + part.weight->n);
  std::sort(spans.begin(), spans.end());
  int64_t end = 0;
  for (const auto& [first, last] : spans) {
    require(first >= end, "linear: outputs overlap, or begin before the buffer");
    end = last;
  }
  require(end == width || (!filled && end < width), "linear: outputs do not fit the buffer");
}

void add_linear(Program& program, const std::string& name, BufferId to, BufferId from,
                const std::vector<std::variant<Linear, Placed>>& linears, bool add) {
  require_two_alike(program, to, from);
  const int64_t inputs = program.width(from);
  std::vector<Program::LinearPart> parts;
  int64_t column = 0;
  bool filled = true;
  for (const auto& linear : linears) {
    const auto* placed = std::get_if<Placed>(&linear);
    const bool given = placed != nullptr && std::get<4>(*placed).has_value();
    if (given) column = *std::get<4>(*placed);
    parts.push_back(placed ? placed_part(*placed, inputs)
                           : whole_part(std::get<Linear>(linear), inputs));
    parts.back().column = column;
    column += parts.back().weight->n;
    filled &= !given;
  }
  require_columns(parts, program.width(to), filled);
  program.linear(name, to, from, std::move(parts), add);
}

void add_gated(Program& program, const std::string& name, BufferId to, BufferId from,
               const Linear& gate, const Linear& up, const std::string& activation) {
  require_two_alike(program, to, from);
  const int64_t inputs = program.width(from);
  Program::LinearPart left = whole_part(gate, inputs), right = whole_part(up, inputs);
  require(left.weight->n == right.weight->n && right.weight->n == program.width(to),
          "gated: outputs differ");
  program.gated(name, to, from, std::move(left), std::move(right),
                named<Activation>(kActivations, activation));
}

}  // namespace

void bind_ops(nb::class_<Program>& program) {
  program.def("buffer", &add_buffer, "width"_a, "chosen"_a)
      .def("rope", &add_rope, "inv_freq"_a, "factor"_a, "axis"_a)
      .def("embed", &add_embed, "to"_a, "table"_a, "scale"_a = 1.f)
      .def("norm", &add_norm, "name"_a, "to"_a, "source"_a, "weight"_a.none(), "eps"_a,
           nb::kw_only(), "bias"_a = nb::none(), "kind"_a = "rms", "groups"_a = 1,
           "add"_a = false, "column"_a = 0, "columns"_a = nb::none())
      .def("activate", &add_activate, "name"_a, "buffer"_a, "activation"_a)
      .def("multiply", &add_multiply, "name"_a, "to"_a, "source"_a, "activation"_a, nb::kw_only(),
           "column"_a = 0)
      .def("soft_cap", &add_soft_cap, "name"_a, "buffer"_a, "cap"_a)
      .def("copy", &add_copy, "name"_a, "to"_a, "source"_a, nb::kw_only(), "column"_a = 0,
           "source_column"_a = 0, "columns"_a = nb::none())
      .def("add", &add_add, "name"_a, "to"_a, "source"_a)
      .def("choose", &add_choose, "name"_a, "to"_a, "source"_a)
      .def("linear", &add_linear, "name"_a, "to"_a, "source"_a, "parts"_a, "add"_a)
      .def("gated", &add_gated, "name"_a, "to"_a, "source"_a, "gate"_a, "up"_a, "activation"_a)
      .def("cut", &Program::cut);
}

}  // namespace octavo

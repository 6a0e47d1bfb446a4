// Ops with a state for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "border.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Vector = Array<const float, 1>;
using Matrix = Array<const float, 2>;
using Limits = std::pair<float, float>;

// `array`, or `count` zeros where there is none; each of its numbers stands for `each` adjacent
// ones.
std::vector<float> floats(const std::optional<Vector>& array, int64_t count, int64_t each = 1) {
  if (!array) return std::vector<float>(count);
  require(static_cast<int64_t>(array->size()) * each == count, "state: a vector of another size");
  std::vector<float> values;
  for (size_t i = 0; i < array->size(); i++) values.insert(values.end(), each, array->data()[i]);
  return values;
}

// The part of a page that holds `floats` numbers.
Program::States states(std::shared_ptr<Buffer> memory, int64_t page_bytes, int64_t offset,
                       int group, int64_t floats) {
  const int64_t size = sizeof(float);
  require(group >= 0, "state: there is no such group");
  require(page_bytes > 0 && page_bytes % size == 0 && offset >= 0 && offset % size == 0 &&
              offset + floats * size <= page_bytes,
          "state: lies outside of a page");
  return {std::move(memory), page_bytes, offset, group};
}

// All are rows of tokens, and no two the same.
void require_tokens(const Program& program, std::vector<BufferId> buffers) {
  for (BufferId buffer : buffers)
    require(!program.chosen(buffer), "state: its rows are all tokens");
  std::sort(buffers.begin(), buffers.end());
  require(std::adjacent_find(buffers.begin(), buffers.end()) == buffers.end(),
          "state: a buffer is given twice");
}

void require_width(const Program& program, BufferId buffer, int64_t width, const char* what) {
  require(program.width(buffer) == width, what);
}

void add_convolve(Program& program, const std::string& name, BufferId to, BufferId from,
                  std::shared_ptr<Buffer> memory, int64_t page_bytes, int64_t offset, int group,
                  Matrix weight, const std::optional<Vector>& bias, const std::string& activation,
                  int64_t column) {
  const int64_t channels = weight.shape(0), taps = weight.shape(1);
  require_tokens(program, {to, from});
  require_width(program, to, channels, "convolve: outputs do not fill the buffer");
  require(column >= 0 && column + channels <= program.width(from),
          "convolve: inputs lie outside of the buffer");
  require(2 <= taps && taps <= kMostTaps, "convolve: not 2 to 8 taps");
  require(activation == "none" || activation == "silu", "convolve: activation is none or silu");
  Convolution convolution{.channels = channels,
                          .taps = static_cast<int>(taps),
                          .weight = {},
                          .bias = floats(bias, channels),
                          .silu = activation == "silu"};
  for (int64_t tap = 0; tap < taps; tap++)
    for (int64_t i = 0; i < channels; i++)
      convolution.weight.push_back(weight.data()[i * taps + tap]);
  program.convolve(name, to, from, column,
                   states(std::move(memory), page_bytes, offset, group, convolution.floats()),
                   std::move(convolution));
}

void add_mamba2(Program& program, const std::string& name, BufferId to, BufferId from,
                BufferId steps, std::shared_ptr<Buffer> memory, int64_t page_bytes, int64_t offset,
                int group, int64_t heads, int64_t head_dim, int64_t state_size, int64_t groups,
                Vector a, const std::optional<Vector>& d, const std::optional<Vector>& dt_bias,
                Limits limits) {
  require(heads > 0 && head_dim > 0 && state_size > 0, "mamba2: sizes must be positive");
  require(groups > 0 && heads % groups == 0, "mamba2: groups must divide heads");
  require_tokens(program, {to, from, steps});
  const int64_t inner = heads * head_dim;
  require_width(program, to, inner, "mamba2: outputs do not fill the buffer");
  require_width(program, from, inner + 2 * groups * state_size,
                "mamba2: x, B and C do not fill the buffer");
  require_width(program, steps, heads, "mamba2: steps are not one a head");
  const bool by_head = d && static_cast<int64_t>(d->size()) == heads;
  Mamba2 mamba{.heads = heads,
               .head_dim = head_dim,
               .state_size = state_size,
               .groups = groups,
               .a = floats(a, heads),
               .d = floats(d, inner, by_head ? head_dim : 1),
               .dt_bias = floats(dt_bias, heads),
               .low = limits.first,
               .high = limits.second};
  program.scan_mamba2(name, to, from, steps,
                      states(std::move(memory), page_bytes, offset, group, mamba.floats()),
                      std::move(mamba));
}

void add_mamba1(Program& program, const std::string& name, BufferId to, BufferId from,
                BufferId steps, BufferId bc, std::shared_ptr<Buffer> memory, int64_t page_bytes,
                int64_t offset, int group, Matrix a, Vector d) {
  const int64_t inner = a.shape(0), state_size = a.shape(1);
  require(inner > 0 && state_size > 0, "mamba1: sizes must be positive");
  require_tokens(program, {to, from, steps, bc});
  require_width(program, to, inner, "mamba1: outputs do not fill the buffer");
  require_width(program, from, inner, "mamba1: x does not fill the buffer");
  require_width(program, steps, inner, "mamba1: steps are not one a channel");
  require_width(program, bc, 2 * state_size, "mamba1: B and C do not fill the buffer");
  std::vector<float> by_state;
  for (int64_t n = 0; n < state_size; n++)
    for (int64_t i = 0; i < inner; i++) by_state.push_back(a.data()[i * state_size + n]);
  Mamba1 mamba{.inner = inner,
               .state_size = state_size,
               .a = in_panels(by_state, state_size, inner),
               .d = floats(d, inner)};
  program.scan_mamba1(name, to, from, steps, bc,
                      states(std::move(memory), page_bytes, offset, group, mamba.floats()),
                      std::move(mamba));
}

void add_delta(Program& program, const std::string& name, BufferId to, BufferId from,
               BufferId decay, BufferId beta, std::shared_ptr<Buffer> memory, int64_t page_bytes,
               int64_t offset, int group, int64_t key_heads, int64_t value_heads, int64_t key_dim,
               int64_t value_dim, Vector a, const std::optional<Vector>& dt_bias,
               float beta_scale) {
  require(key_heads > 0 && key_dim > 0 && value_dim > 0, "delta: sizes must be positive");
  require(value_heads > 0 && value_heads % key_heads == 0,
          "delta: key_heads must divide value_heads");
  require_tokens(program, {to, from, decay, beta});
  GatedDelta delta{.key_heads = key_heads,
                   .value_heads = value_heads,
                   .key_dim = key_dim,
                   .value_dim = value_dim,
                   .by_channel = program.width(decay) != value_heads,
                   .a = {},
                   .dt_bias = {},
                   .beta_scale = beta_scale};
  delta.a = floats(a, delta.decays(), delta.decays() / value_heads);
  delta.dt_bias = floats(dt_bias, delta.decays());
  require_width(program, to, delta.values(), "delta: outputs do not fill the buffer");
  require_width(program, from, 2 * delta.keys() + delta.values(),
                "delta: q, k and v do not fill the buffer");
  require_width(program, decay, delta.decays(), "delta: decays are not one a head or key channel");
  require_width(program, beta, value_heads, "delta: betas are not one a head");
  program.gated_delta(name, to, from, decay, beta,
                      states(std::move(memory), page_bytes, offset, group, delta.floats()),
                      std::move(delta));
}

}  // namespace

void check_states(const Step& step, const Program& program) {
  for (const Program::StatePaging& paging : program.state_pagings()) {
    require(size_t(paging.group) < step.tables.size() && step.widths[paging.group] == 2,
            "tables: not two blocks a row for a group of states");
    std::vector<int32_t> sources, targets;
    for (int64_t row = 0; row < step.rows; row++) {
      sources.push_back(step.tables[paging.group][2 * row]);
      targets.push_back(step.tables[paging.group][2 * row + 1]);
      require(0 <= sources.back() && sources.back() < paging.pages && 0 < targets.back() &&
                  targets.back() < paging.pages,
              "tables: a state outside of the pool");
    }
    std::sort(targets.begin(), targets.end());
    require(std::adjacent_find(targets.begin(), targets.end()) == targets.end(),
            "tables: two rows write the same state");
    for (int32_t source : sources)
      require(!std::binary_search(targets.begin(), targets.end(), source),
              "tables: a state is read and written");
  }
}

void bind_state(nb::class_<Program>& program) {
  program
      .def("convolve", &add_convolve, "name"_a, "to"_a, "source"_a, nb::kw_only(), "memory"_a,
           "page_bytes"_a, "offset"_a, "group"_a, "weight"_a, "bias"_a = nb::none(),
           "activation"_a = "none", "column"_a = 0)
      .def("scan_mamba2", &add_mamba2, "name"_a, "to"_a, "source"_a, "steps"_a, nb::kw_only(),
           "memory"_a, "page_bytes"_a, "offset"_a, "group"_a, "heads"_a, "head_dim"_a,
           "state_size"_a, "groups"_a, "a"_a, "d"_a = nb::none(), "dt_bias"_a = nb::none(),
           "dt_limits"_a)
      .def("scan_mamba1", &add_mamba1, "name"_a, "to"_a, "source"_a, "steps"_a, "bc"_a,
           nb::kw_only(), "memory"_a, "page_bytes"_a, "offset"_a, "group"_a, "a"_a, "d"_a)
      .def("gated_delta", &add_delta, "name"_a, "to"_a, "source"_a, "decay"_a, "beta"_a,
           nb::kw_only(), "memory"_a, "page_bytes"_a, "offset"_a, "group"_a, "key_heads"_a,
           "value_heads"_a, "key_dim"_a, "value_dim"_a, "a"_a, "dt_bias"_a = nb::none(),
           "beta_scale"_a = 1.f);
}

}  // namespace octavo

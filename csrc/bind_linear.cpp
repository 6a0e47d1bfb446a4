// Packed weights for Python's loader, and linears over plain arrays for tests.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "border.h"
#include "float_panel.h"
#include "linear.h"
#include "names.h"
#include "row_ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Matrix = Array<const float, 2>;
using Vector = Array<const float, 1>;
using Output = Array<float, 2>;
using Floats = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using BiasedWeight = std::pair<const Packed*, std::optional<Vector>>;

// So that bytes fit in 63 bits, and sums of 8-bit products over k in 31.
constexpr int64_t kMost = int64_t{1} << 30, kMostInt8 = 65536;

Packed unfilled(const std::string& name, int64_t n, int64_t k) {
  const Format format = named<Format>(kFormats, name);
  require(n >= 1 && k >= 1, "n and k must be positive");
  require(n <= kMost && k <= (format == Format::int8 ? kMostInt8 : kMost), "n or k is too large");
  return {format, n, k, {}};
}

int64_t bytes_of(const Packed& packed) { return packed.panels() * packed.panel_bytes(); }

void make_packed(Packed* at, const std::string& name, int64_t n, int64_t k) {
  new (at) Packed(unfilled(name, n, k));
  at->data = Buffer(bytes_of(*at));
}

std::vector<Packed> packed_together(const std::string& name, int64_t n, int64_t k, int64_t count) {
  require(count >= 1 && count <= kMost, "count must be positive");
  std::vector<Packed> all;
  const int64_t bytes = bytes_of(unfilled(name, n, k)), apart = (bytes + 63) / 64 * 64;
  const auto memory = std::make_shared<Buffer>(static_cast<size_t>(count) * apart);
  for (int64_t i = 0; i < count; i++) {
    all.push_back(unfilled(name, n, k));
    all.back().data = Buffer(memory, i * apart, bytes);
  }
  return all;
}

int64_t bytes_of_panel(const std::string& format, int64_t k) {
  return panel_bytes(named<Format>(kFormats, format), k);
}

nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> packed_data(nb::handle_t<Packed> self) {
  const Packed& packed = nb::cast<const Packed&>(self);
  return {packed.data.data(), {packed.data.size()}, self};
}

// uint16 are the bits of a 16-bit float: of the packed format, or bfloat16.
Format source_format(const Packed& packed, nb::dlpack::dtype type) {
  if (type == nb::dtype<float>()) return Format::f32;
  const bool bits = type == nb::dtype<uint16_t>();
  const auto half = static_cast<uint8_t>(nb::dlpack::dtype_code::Float);
  require(bits || (type.code == half && type.bits == 16),
          "rows must be float32, float16 or uint16");
  return bits && packed.format != Format::f16 ? Format::bf16 : Format::f16;
}

void pack_float(Packed& packed, const Floats& rows, int64_t first_row) {
  const int64_t count = rows.shape(0);
  require(is_float(packed.format), "blocks are packed by pack_blocks");
  require(int64_t(rows.shape(1)) == packed.k, "rows must have k values");
  require(first_row >= 0 && first_row + count <= packed.n, "rows must lie in the weights");
  const Format source = source_format(packed, rows.dtype());
  nb::gil_scoped_release released;
  float_pack(packed, source, rows.data(), first_row, count);
}

void unpack(const Packed& packed, int64_t first_row, const Output& values) {
  const int64_t count = values.shape(0);
  require(first_row >= 0 && first_row + count <= packed.n, "rows must lie in the weights");
  require(int64_t(values.shape(1)) == packed.k, "values must be [m, k]");
  nb::gil_scoped_release released;
  for (int64_t r = 0; r < count; r++)
    unpack_row(packed, first_row + r, values.data() + r * packed.k);
}

// A numpy array in the form that a format's kernel reads.
struct FormedRows {
  FormedRows(const Matrix& x, Format format)
      : memory(form_bytes(form_for(format), x.shape(0), x.shape(1))),
        rows(cut_rows(form_for(format), x.shape(0), x.shape(1), memory.data())) {
    for (size_t r = 0; r < x.shape(0); r++) {
      const float* from = x.data() + r * x.shape(1);
      if (rows.form == Form::f32)
        std::copy_n(from, rows.width, rows.f32 + r * rows.padded());
      else
        to_form(rows, r, from);
    }
  }

  Buffer memory;
  Rows rows;
};

// Linears side by side, and the rows they read in all their forms.
class SideBySide {
 public:
  SideBySide(const std::vector<BiasedWeight>& weights, const Matrix& x) {
    int64_t column = 0;
    for (const auto& [weight, bias] : weights) {
      require(weight != nullptr, "None is no weight");
      require(weight->k == int64_t(x.shape(1)), "x must be [T, k]");
      require(!bias || int64_t(bias->shape(0)) == weight->n, "a bias must be [n]");
      forms_.push_back(std::make_unique<FormedRows>(x, weight->format));
      parts_.push_back({weight, bias ? bias->data() : nullptr, column, forms_.back()->rows});
      column += weight->n;
    }
    require(!parts_.empty(), "at least one weight");
  }

  const std::vector<Part>& parts() const { return parts_; }
  std::vector<int64_t> panels() const {
    std::vector<int64_t> found;
    for (const Part& part : parts_) found.push_back(part.weight->panels());
    return found;
  }
  int64_t columns() const { return parts_.back().column + parts_.back().weight->n; }

 private:
  std::vector<std::unique_ptr<FormedRows>> forms_;
  std::vector<Part> parts_;
};

void require_output(const Output& y, const Matrix& x, int64_t columns) {
  require(y.shape(0) == x.shape(0) && int64_t(y.shape(1)) >= columns, "y must be [T, outputs]");
}

void linear_of_arrays(Pool& pool, const std::vector<BiasedWeight>& weights, const Matrix& x,
                      const Output& y, bool add) {
  const SideBySide linears(weights, x);
  require_output(y, x, linears.columns());
  const std::vector<Slice> cut = slices(linears.panels(), pool.threads());
  nb::gil_scoped_release released;
  pool.run([&](Team& team) {
    linear(team, linears.parts(), cut, x.shape(0), y.data(), y.shape(1), add);
  });
}

void gated_of_arrays(Pool& pool, const BiasedWeight& gate, const BiasedWeight& up,
                     const std::string& activation, const Matrix& x, const Output& y) {
  const auto function = named<Activation>(kActivations, activation);
  const SideBySide linears({gate, up}, x);
  require(gate.first->n == up.first->n, "gate and up must have equal shapes");
  require_output(y, x, gate.first->n);
  nb::gil_scoped_release released;
  pool.run([&](Team& team) {
    gated(team, linears.parts()[0], linears.parts()[1], function, x.shape(0), y.data(), y.shape(1));
  });
}

}  // namespace

void bind_linear(nb::module_& module) {
  nb::class_<Packed>(module, "Packed", "A linear's weights [n, k] in the kernels' layout.")
      .def("__init__", &make_packed, "format"_a, "n"_a, "k"_a)
      .def_prop_ro("format", [](const Packed& p) { return kFormats[static_cast<int>(p.format)]; })
      .def_ro("n", &Packed::n)
      .def_ro("k", &Packed::k)
      .def_prop_ro("nbytes", [](const Packed& p) { return p.data.size(); })
      .def_prop_ro("data", &packed_data, "uint8 [nbytes], writable, no copy");
  module.def("packed_together", &packed_together, "format"_a, "n"_a, "k"_a, "count"_a,
             "Matrices of one shape in one memory, on huge pages even where each is small.");
  module.def("panel_bytes", &bytes_of_panel, "format"_a, "k"_a,
             "Bytes that 16 outputs of k inputs take.");
  module.def("pack_float", &pack_float, "packed"_a, "rows"_a, "first_row"_a,
             "Rows [m, k] of float32, float16, or uint16: the bits of the packed format, or of "
             "bfloat16. Rounds to nearest even. Threads may pack different rows at once.");
  module.def("unpack", &unpack, "packed"_a, "first_row"_a, "values"_a,
             "values [m, k] := the weights of m outputs.");
  module.def("linear", &linear_of_arrays, "pool"_a, "weights"_a, "x"_a, "y"_a, "add"_a = false,
             "y [T, outputs] = x [T, k] W^T + bias, or +=, for each (weight, bias or None).");
  module.def("gated", &gated_of_arrays, "pool"_a, "gate"_a, "up"_a, "activation"_a, "x"_a, "y"_a,
             "y [T, n] = activation(gate(x)) * up(x).");
}

}  // namespace octavo

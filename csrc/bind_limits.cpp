// The machine's limits for Python: octavo/bench/limits.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bind.h"
#include "roofline.h"

namespace nb = nanobind;

namespace octavo {
namespace {

Operand operand_named(const std::string& name) {
  if (name == "f32") return Operand::f32;
  if (name == "bf16") return Operand::bf16;
  if (name == "int8") return Operand::int8;
  throw nb::value_error("peak: an operand is f32, bf16 or int8");
}

void check(bool ok) {
  if (!ok) throw nb::value_error("bytes, threads and seconds must be positive");
}

// 0 where this instruction set has no such operation.
double peak_of(const std::string& name, int threads, double seconds) {
  const Operand operand = operand_named(name);
  check(threads > 0 && seconds > 0);
  if (!can_multiply(operand)) return 0;
  nb::gil_scoped_release release;
  return peak(operand, threads, seconds);
}

double bandwidth_of(int64_t bytes, int threads, double seconds) {
  check(bytes > 0 && threads > 0 && seconds > 0);
  nb::gil_scoped_release release;
  return bandwidth(bytes, threads, seconds);
}

}  // namespace

void bind_limits(nb::module_& module) {
  module.def("peak", &peak_of, nb::arg("operand"), nb::arg("threads"), nb::arg("seconds"));
  module.def("bandwidth", &bandwidth_of, nb::arg("bytes"), nb::arg("threads"),
             nb::arg("seconds"));
}

}  // namespace octavo

// The machine's limits for Python: octavo/bench/limits.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bind.h"
#include "names.h"
#include "roofline.h"

namespace nb = nanobind;

namespace octavo {
namespace {

constexpr const char* kPositive = "bytes, threads and seconds must be positive";

// 0 where this instruction set has no such operation.
double peak_of(const std::string& name, int threads, double seconds) {
  const Operand operand = named<Operand>(kOperands, name);
  require(threads > 0 && seconds > 0, kPositive);
  if (!can_multiply(operand)) return 0;
  nb::gil_scoped_release release;
  return peak(operand, threads, seconds);
}

double bandwidth_of(int64_t bytes, int threads, double seconds) {
  require(bytes > 0 && threads > 0 && seconds > 0, kPositive);
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

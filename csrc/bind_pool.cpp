// Pool for Python.
#include <nanobind/nanobind.h>

#include "bind.h"
#include "pool.h"

namespace nb = nanobind;

namespace octavo {

void bind_pool(nb::module_& module) {
  nb::class_<Pool>(module, "Pool", "Threads that run one job together.")
      .def(nb::init<int>(), nb::arg("threads"))
      .def_prop_ro("threads", &Pool::threads);
}

}  // namespace octavo

// Pool for Python.
#include "bind.h"
#include "border.h"

namespace nb = nanobind;

namespace octavo {
namespace {

void make_pool(Pool* at, int threads) {
  require(threads > 0, "threads must be positive");
  new (at) Pool(threads);
}

}  // namespace

void bind_pool(nb::module_& module) {
  nb::class_<Pool> pool(module, "Pool", "Threads that run one job together.");
  pool.def("__init__", &make_pool, nb::arg("threads"))
      .def_prop_ro("threads", &Pool::threads);
  bind_sample(pool);
}

}  // namespace octavo

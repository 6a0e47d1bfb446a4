// Sampling for Python: octavo/native/sampling.py makes its arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bind.h"
#include "sample.h"

namespace nb = nanobind;

namespace octavo {
namespace {

template <class T, class Shape>
using Array = nb::ndarray<T, Shape, nb::c_contig, nb::device::cpu>;

void check(const SampleJob& job, size_t controls, size_t drawn, size_t likely) {
  const size_t rows = static_cast<size_t>(job.rows);
  if (job.vocab < 1 || controls != rows || drawn != rows || likely != rows)
    throw nb::value_error("sample: shapes do not agree");
  for (int64_t i = 0; i < job.num_edits; i++)
    if (!(job.edits[i].token >= 0 && job.edits[i].token < job.vocab))
      throw nb::value_error("sample: an edit's token is outside the vocabulary");
  for (int64_t i = 0; i < job.rows; i++)
    if (job.controls[i].logprobs > job.width)
      throw nb::value_error("sample: no room for the logprobs asked");
}

void sample_arrays(Pool& pool, Array<const float, nb::ndim<2>> logits,
                   Array<const double, nb::shape<-1, 6>> controls,
                   Array<const double, nb::shape<-1, 4>> edits,
                   Array<double, nb::shape<-1, 4>> drawn,
                   Array<double, nb::shape<-1, -1, 2>> likely) {
  const SampleJob job{
      .rows = static_cast<int64_t>(logits.shape(0)),
      .vocab = static_cast<int64_t>(logits.shape(1)),
      .logits = logits.data(),
      .controls = reinterpret_cast<const Controls*>(controls.data()),
      .edits = reinterpret_cast<const Edit*>(edits.data()),
      .num_edits = static_cast<int64_t>(edits.shape(0)),
      .drawn = reinterpret_cast<Drawn*>(drawn.data()),
      .likely = reinterpret_cast<Likely*>(likely.data()),
      .width = static_cast<int64_t>(likely.shape(1)),
  };
  check(job, controls.shape(0), drawn.shape(0), likely.shape(0));
  nb::gil_scoped_release release;
  pool.run([&](Team& team) { sample(team, job); });
}

}  // namespace

void bind_sample(nb::module_&) {
  nb::handle pool = nb::type<Pool>();
  pool.attr("sample") = nb::cpp_function(
      &sample_arrays, nb::is_method(), nb::scope(pool), nb::name("sample"), nb::arg("logits"),
      nb::arg("controls"), nb::arg("edits"), nb::arg("drawn"), nb::arg("likely"));
}

}  // namespace octavo

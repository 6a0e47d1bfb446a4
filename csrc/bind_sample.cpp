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

void check(bool ok, const char* what) {
  if (!ok) throw nb::value_error(what);
}

void check_row(const SampleJob& job, const Controls& c, int64_t num_tokens) {
  check(c.logprobs <= static_cast<double>(job.width), "sample: no room for the logprobs asked");
  check(0 <= c.known && c.known <= c.generated && c.generated <= c.end &&
            c.end <= static_cast<double>(num_tokens),
        "sample: a row's tokens are outside the array");
}

void check_job(const SampleJob& job, int64_t num_tokens) {
  const double vocab = static_cast<double>(job.vocab);
  for (int64_t i = 0; i < job.rows; i++) check_row(job, job.controls[i], num_tokens);
  bool inside = true;
  for (int64_t i = 0; i < job.num_edits; i++)
    inside &= job.edits[i].token >= 0 && job.edits[i].token < vocab;
  for (int64_t i = 0; i < num_tokens; i++)
    inside &= job.tokens[i] >= 0 && job.tokens[i] < job.vocab;
  check(inside, "sample: a token is outside the vocabulary");
}

void sample_arrays(Pool& pool, Array<const float, nb::ndim<2>> logits,
                   Array<const double, nb::shape<-1, 12>> controls,
                   Array<const int32_t, nb::ndim<1>> tokens,
                   Array<const double, nb::shape<-1, 3>> edits,
                   Array<double, nb::shape<-1, 4>> drawn,
                   Array<double, nb::shape<-1, -1, 2>> likely) {
  const SampleJob job{
      .rows = static_cast<int64_t>(logits.shape(0)),
      .vocab = static_cast<int64_t>(logits.shape(1)),
      .logits = logits.data(),
      .controls = reinterpret_cast<const Controls*>(controls.data()),
      .tokens = tokens.data(),
      .edits = reinterpret_cast<const Edit*>(edits.data()),
      .num_edits = static_cast<int64_t>(edits.shape(0)),
      .drawn = reinterpret_cast<Drawn*>(drawn.data()),
      .likely = reinterpret_cast<Likely*>(likely.data()),
      .width = static_cast<int64_t>(likely.shape(1)),
  };
  const size_t rows = logits.shape(0);
  check(controls.shape(0) == rows && drawn.shape(0) == rows && likely.shape(0) == rows,
        "sample: arrays of different numbers of rows");
  check_job(job, static_cast<int64_t>(tokens.shape(0)));
  nb::gil_scoped_release release;
  pool.run([&](Team& team) { sample(team, job); });
}

}  // namespace

void bind_sample(nb::module_&) {
  nb::handle pool = nb::type<Pool>();
  pool.attr("sample") = nb::cpp_function(
      &sample_arrays, nb::is_method(), nb::scope(pool), nb::name("sample"), nb::arg("logits"),
      nb::arg("controls"), nb::arg("tokens"), nb::arg("edits"), nb::arg("drawn"),
      nb::arg("likely"));
}

}  // namespace octavo

// Sampling for Python: octavo/native/sampling.py makes its arrays.
#include "bind.h"
#include "border.h"
#include "sample.h"

namespace nb = nanobind;

namespace octavo {
namespace {

template <class T, class Shape>
using Structs = nb::ndarray<T, Shape, nb::c_contig, nb::device::cpu>;

void check_row(const SampleJob& job, const Controls& c, int64_t num_tokens) {
  require(c.logprobs <= static_cast<double>(job.width), "sample: no room for the logprobs asked");
  require(c.top_k == 0 || (1 <= c.top_k && c.top_k <= static_cast<double>(job.vocab)),
          "sample: top_k is outside the vocabulary");
  require(0 <= c.known && c.known <= c.generated && c.generated <= c.end &&
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
  require(inside, "sample: a token is outside the vocabulary");
}

void sample_arrays(Pool& pool, Array<const float, 2> logits,
                   Structs<const double, nb::shape<-1, 12>> controls,
                   Array<const int32_t, 1> tokens,
                   Structs<const double, nb::shape<-1, 3>> edits,
                   Structs<double, nb::shape<-1, 4>> drawn,
                   Structs<double, nb::shape<-1, -1, 2>> likely) {
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
  require(controls.shape(0) == rows && drawn.shape(0) == rows && likely.shape(0) == rows,
          "sample: arrays of different numbers of rows");
  check_job(job, static_cast<int64_t>(tokens.shape(0)));
  nb::gil_scoped_release release;
  pool.run([&](Team& team) { sample(team, job); });
}

}  // namespace

void bind_sample(nb::class_<Pool>& pool) {
  pool.def("sample", &sample_arrays, nb::arg("logits"), nb::arg("controls"), nb::arg("tokens"),
           nb::arg("edits"), nb::arg("drawn"), nb::arg("likely"));
}

}  // namespace octavo

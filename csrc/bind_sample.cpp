// Sampling for Python: octavo/native/sampling.py makes its arrays.
#include <algorithm>

#include "bind.h"
#include "border.h"
#include "sample.h"

namespace nb = nanobind;

namespace octavo {
namespace {

template <class T, class Shape>
using Structs = nb::ndarray<T, Shape, nb::c_contig, nb::device::cpu>;

// How many rows the arrays have that a row of controls points into.
struct Room {
  int64_t work;
  int64_t masks;
  int64_t ids;
  int64_t likely;
};

void check_row(const SampleJob& job, const Controls& c, const Room& room) {
  require(c.top_k == 0 || 1 <= c.top_k, "sample: top_k is below 0");
  require(c.logprobs <= static_cast<double>(job.vocab) && 0 <= c.likely &&
              c.likely + std::max(c.logprobs, 0.0) + c.end - c.named <=
                  static_cast<double>(room.likely),
          "sample: no room for the logprobs asked");
  require(c.given < static_cast<double>(job.vocab),
          "sample: a given token is outside the vocabulary");
  require(c.work < static_cast<double>(room.work), "sample: no such row to draw from");
  require(c.mask < static_cast<double>(room.masks), "sample: no such mask");
  require(0 <= c.known && c.known <= c.generated && c.generated <= c.allowed &&
              c.allowed <= c.named && c.named <= c.end && c.end <= static_cast<double>(room.ids),
          "sample: a row's tokens are outside the array");
}

void check_job(const SampleJob& job, const Room& room) {
  const double vocab = static_cast<double>(job.vocab);
  for (int64_t i = 0; i < job.rows; i++) check_row(job, job.controls[i], room);
  bool inside = true;
  for (int64_t i = 0; i < job.num_edits; i++)
    inside &= job.edits[i].token >= 0 && job.edits[i].token < vocab;
  for (int64_t i = 0; i < room.ids; i++) inside &= job.ids[i] >= 0 && job.ids[i] < job.vocab;
  require(inside, "sample: a token is outside the vocabulary");
}

void sample_arrays(Pool& pool, Array<const float, 2> logits, Array<const float, 2> work,
                   Structs<const double, nb::shape<-1, 19>> controls, Array<const uint32_t, 2> masks,
                   Array<const int32_t, 1> ids,
                   Structs<const double, nb::shape<-1, 3>> edits,
                   Structs<double, nb::shape<-1, 6>> drawn,
                   Structs<double, nb::shape<-1, 2>> likely) {
  static_assert(sizeof(Controls) == 19 * sizeof(double) && sizeof(Drawn) == 6 * sizeof(double));
  const SampleJob job{
      .rows = static_cast<int64_t>(logits.shape(0)),
      .vocab = static_cast<int64_t>(logits.shape(1)),
      .logits = logits.data(),
      .work = work.data(),
      .controls = reinterpret_cast<const Controls*>(controls.data()),
      .masks = masks.data(),
      .words = static_cast<int64_t>(masks.shape(1)),
      .ids = ids.data(),
      .edits = reinterpret_cast<const Edit*>(edits.data()),
      .num_edits = static_cast<int64_t>(edits.shape(0)),
      .drawn = reinterpret_cast<Drawn*>(drawn.data()),
      .likely = reinterpret_cast<Likely*>(likely.data()),
  };
  const size_t rows = logits.shape(0);
  require(controls.shape(0) == rows && drawn.shape(0) == rows,
          "sample: arrays of different numbers of rows");
  require(work.shape(0) == 0 || work.shape(1) == logits.shape(1),
          "sample: logits of different widths");
  check_job(job, {.work = static_cast<int64_t>(work.shape(0)),
                  .masks = static_cast<int64_t>(masks.shape(0)),
                  .ids = static_cast<int64_t>(ids.shape(0)),
                  .likely = static_cast<int64_t>(likely.shape(0))});
  nb::gil_scoped_release release;
  pool.run([&](Team& team) { sample(team, job); });
}

}  // namespace

void bind_sample(nb::class_<Pool>& pool) {
  pool.def("sample", &sample_arrays, nb::arg("logits"), nb::arg("work"), nb::arg("controls"),
           nb::arg("masks"), nb::arg("ids"), nb::arg("edits"), nb::arg("drawn"), nb::arg("likely"));
}

}  // namespace octavo

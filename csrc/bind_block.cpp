// Weights in block formats for Python's loader.
#include "bind.h"
#include "block_panel.h"
#include "border.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

void require_rows(const Packed& packed, int64_t first, size_t rows) {
  require(first >= 0 && first + static_cast<int64_t>(rows) <= packed.n,
          "rows must lie in the weights");
}

void pack_gguf(Packed& packed, const Array<const uint8_t, 2>& rows, int64_t first_row) {
  require(is_gguf(packed.format), "not a format of GGUF's blocks");
  require(packed.k % gguf_block(packed.format) == 0, "k must be a whole number of blocks");
  require(static_cast<int64_t>(rows.shape(1)) == gguf_row_bytes(packed.format, packed.k),
          "rows must be as long as k weights are in this format");
  require_rows(packed, first_row, rows.shape(0));
  nb::gil_scoped_release released;
  pack_blocks(packed, rows.data(), first_row, rows.shape(0));
}

void pack_codes(Packed& packed, const Array<const int8_t, 2>& codes,
                const Array<const float, 1>& scales, int64_t first_row) {
  require(packed.format == Format::int8, "the format must be int8");
  require(static_cast<int64_t>(codes.shape(1)) == packed.k, "codes must be [rows, k]");
  require(scales.shape(0) == codes.shape(0), "scales must be [rows]");
  require_rows(packed, first_row, codes.shape(0));
  nb::gil_scoped_release released;
  pack_int8(packed, codes.data(), scales.data(), first_row, codes.shape(0));
}

}  // namespace

void bind_block(nb::module_& module) {
  module.def("pack_blocks", &pack_gguf, "packed"_a, "rows"_a, "first_row"_a,
             "Rows uint8 [m, bytes] as they lie in a GGUF file. Threads may pack different rows at "
             "once.");
  module.def("pack_int8", &pack_codes, "packed"_a, "codes"_a, "scales"_a, "first_row"_a,
             "Rows int8 [m, k] with a float32 scale each. Threads may pack different rows at "
             "once.");
}

}  // namespace octavo

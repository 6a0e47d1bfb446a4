// Linears over packed weights, for all threads of a team: y = x W^T + b, and what follows it.
#pragma once

#include <cstdint>
#include <vector>

#include "activation.h"
#include "packed.h"
#include "pool.h"
#include "rows.h"

namespace octavo {

// One weight of a linear, the rows that it reads, in its form, and where its outputs go: columns
// column .. column + w.n - 1.
struct Part {
  const Packed* weight;
  const float* bias;  // [n] or null
  int64_t column;
  Rows x;
  float scale = 1;
};

// Adjacent panels of one of a linear's parts: what an item computes, for some rows.
struct Slice {
  int part;
  int64_t panel, panels;
};

// How a linear with parts of so many panels is cut for `threads` threads, whatever its rows.
std::vector<Slice> slices(const std::vector<int64_t>& panels, int threads);

// y[r * stride + part.column + j] = scale * (x W^T + b) for each part, or += where `add`. `slices`
// are those of the parts' panels.
void linear(Team& team, const std::vector<Part>& parts, const std::vector<Slice>& slices,
            int64_t rows, float* y, int64_t stride, bool add);

// y = activation(gate(x)) * up(x), each of them scale * (x W^T + b) and of one shape.
void gated(Team& team, const Part& gate, const Part& up, Activation activation, int64_t rows,
           float* y, int64_t stride);

}  // namespace octavo

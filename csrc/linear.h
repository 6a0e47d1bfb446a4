// Linears over packed weights, for all threads of a team: y = x W^T + b, and what follows it.
#pragma once

#include <cstdint>
#include <vector>

#include "packed.h"
#include "pool.h"
#include "rows.h"

namespace octavo {

enum class Activation { silu, gelu, gelu_tanh };

// One weight of a linear, the rows that it reads, in its form, and where its outputs go: columns
// column .. column + w.n - 1.
struct Part {
  const Packed* weight;
  const float* bias;  // [n] or null
  int64_t column;
  Rows x;
};

// y[r * stride + part.column + j] = x W^T + b for each part, or += where `add`.
void linear(Team& team, const std::vector<Part>& parts, int64_t rows, float* y, int64_t stride,
            bool add);

// y = activation(gate(x)) * up(x); gate and up have equal shapes.
void gated(Team& team, const Part& gate, const Part& up, Activation activation, int64_t rows,
           float* y, int64_t stride);

}  // namespace octavo

// What stands between a gated MLP's two linears and its last one.
#pragma once

#include <cstdint>

#include "activation.h"

namespace octavo {

// function(gate) * (up + shift); before, gate is made at most `limit`, and |up| too.
struct Gating {
  Activation function = Activation::silu;
  float limit = 0;  // 0: none
  float shift = 0;
};

// gate := what the gating makes of it and `up`, [n]. What is no number stays so.
void apply(const Gating& gating, float* gate, const float* up, int64_t n);

}  // namespace octavo

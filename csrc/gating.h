// What stands between a gated MLP's two linears and its last one.
#pragma once

#include <cstdint>

#include "activation.h"

namespace octavo {

// By what `up` is multiplied: a function of `gate`. swiglu_oai is gate * sigmoid(alpha * gate), by
// which up + 1 is multiplied (gpt-oss).
enum class Gate { silu, gelu, gelu_tanh, relu2, swiglu_oai };

struct Gating {
  Gate function = Gate::silu;
  float limit = 0;  // gate is at most this, |up| too; 0: no limit
  float alpha = 0;  // of swiglu_oai
};

// gate := function(gate) * up, [n]. What is no number stays so.
void apply(const Gating& gating, float* gate, const float* up, int64_t n);

}  // namespace octavo

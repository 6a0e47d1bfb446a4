#include "gating.h"

namespace octavo {
namespace {

template <class Function>
OCTAVO_INLINE void each_vector(const Gating& gating, float* gate, const float* up, int64_t n,
                               Function function) {
  const F32 most = splat(gating.limit > 0 ? gating.limit : __builtin_inff());
  for (int64_t j = 0; j < n; j += W) {
    const F32 bounded = max(-most, min(most, load(up + j)));
    store(gate + j, function(min(most, load(gate + j)), bounded));
  }
}

}  // namespace

void apply(const Gating& gating, float* gate, const float* up, int64_t n) {
  switch (gating.function) {
    case Gate::silu:
      return each_vector(gating, gate, up, n, [](F32 g, F32 u) { return silu(g) * u; });
    case Gate::gelu:
      return each_vector(gating, gate, up, n, [](F32 g, F32 u) { return gelu(g) * u; });
    case Gate::gelu_tanh:
      return each_vector(gating, gate, up, n, [](F32 g, F32 u) { return gelu_tanh(g) * u; });
    case Gate::relu2:
      return each_vector(gating, gate, up, n, [](F32 g, F32 u) { return relu2(g) * u; });
    case Gate::swiglu_oai: {
      const F32 alpha = splat(gating.alpha);
      return each_vector(gating, gate, up, n, [alpha](F32 g, F32 u) {
        return g * sigmoid(alpha * g) * (u + 1.f);
      });
    }
  }
}

}  // namespace octavo

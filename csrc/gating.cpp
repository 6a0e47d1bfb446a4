#include "gating.h"

namespace octavo {

void apply(const Gating& gating, float* gate, const float* up, int64_t n) {
  const F32 most = splat(gating.limit > 0 ? gating.limit : __builtin_inff());
  with_activation(gating.function, [&](auto function) {
    for (int64_t j = 0; j < n; j += W) {
      const F32 bounded = max(-most, min(most, load(up + j)));
      store(gate + j, function(min(most, load(gate + j))) * (bounded + gating.shift));
    }
  });
}

}  // namespace octavo

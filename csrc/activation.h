// Functions of single values, on vectors: activations, and what caps logits. NaN stays NaN.
#pragma once

#include "simd.h"

namespace octavo {

// 1 / (1 + e^-a), without overflow.
OCTAVO_INLINE F32 sigmoid(F32 a) { return 1.f / (1.f + exp(min(splat(88.f), -a))); }

OCTAVO_INLINE F32 silu(F32 a) { return a * sigmoid(a); }

// log(1 + e^a) = max(a, 0) + log(1 + z), where z = e^-|a|, and log(1 + z) is twice the inverse tanh
// of s = z / (2 + z) <= 1 / 3: the series behind s^13 is below 2e-8 of it.
OCTAVO_INLINE F32 softplus(F32 a) {
  const F32 z = exp(-abs(a)), s = z / (z + 2.f), square = s * s;
  F32 p = splat(1.f / 13);
  p = fma(p, square, splat(1.f / 11));
  p = fma(p, square, splat(1.f / 9));
  p = fma(p, square, splat(1.f / 7));
  p = fma(p, square, splat(1.f / 5));
  p = fma(p, square, splat(1.f / 3));
  return max(a, F32{}) + 2.f * fma(p * square, s, s);
}

// GELU by its tanh formula (Hendrycks and Gimpel, 2016), where (1 + tanh(u)) / 2 = sigmoid(2 u).
OCTAVO_INLINE F32 gelu_tanh(F32 a) {
  return a * sigmoid(1.5957691216057308f * fma(a * a * a, splat(0.044715f), a));
}

// GELU: a times the probability that a standard normal is below a. The upper tail is
// e^(-z^2 / 2) times a polynomial in t = 1 / (1 + 0.35 z), fitted for a relative error below
// 4e-8; what remains is the rounding of the exponent, some 1e-6 where the tail is 1e-6.
OCTAVO_INLINE F32 gelu(F32 a) {
  const F32 z = abs(a);
  const F32 t = 1.f / fma(z, splat(0.35f), splat(1.f));
  F32 p = splat(-0.029146135f);
  p = fma(p, t, splat(0.14397268f));
  p = fma(p, t, splat(-0.25571626f));
  p = fma(p, t, splat(0.15917644f));
  p = fma(p, t, splat(-0.023111377f));
  p = fma(p, t, splat(0.10550865f));
  p = fma(p, t, splat(0.11983271f));
  p = fma(p, t, splat(0.1398619f));
  p = fma(p, t, splat(0.1396214f));
  const F32 tail = p * t * exp(z * z * -0.5f);
  return a * (a < F32{} ? tail : 1.f - tail);
}

// A cheap likeness of GELU, the gate of gpt-oss.
OCTAVO_INLINE F32 quick_gelu(F32 a) { return a * sigmoid(1.702f * a); }

OCTAVO_INLINE F32 relu(F32 a) { return max(F32{}, a); }

// Relu squared (So et al., "Primer", 2021).
OCTAVO_INLINE F32 relu2(F32 a) { return relu(a) * relu(a); }

// tanh by exp; an absolute error of 1e-7 is far below what a logit can show.
OCTAVO_INLINE F32 tanh(F32 x) {
  const F32 bounded = min(splat(10.f), max(splat(-10.f), x));
  return 1.f - 2.f / (exp(bounded + bounded) + 1.f);
}

enum class Activation { none, silu, gelu, gelu_tanh, quick_gelu, relu, relu2, sigmoid };

// use(f), f being the function on vectors.
template <class Use>
void with_activation(Activation activation, Use use) {
  switch (activation) {
    case Activation::none:
      return use([](F32 a) { return a; });
    case Activation::silu:
      return use([](F32 a) { return silu(a); });
    case Activation::gelu:
      return use([](F32 a) { return gelu(a); });
    case Activation::gelu_tanh:
      return use([](F32 a) { return gelu_tanh(a); });
    case Activation::quick_gelu:
      return use([](F32 a) { return quick_gelu(a); });
    case Activation::relu:
      return use([](F32 a) { return relu(a); });
    case Activation::relu2:
      return use([](F32 a) { return relu2(a); });
    case Activation::sigmoid:
      return use([](F32 a) { return sigmoid(a); });
  }
}

}  // namespace octavo

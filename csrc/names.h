// What formats and functions are called in Python, in the order of their enums.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>

#include "border.h"

namespace octavo {

inline constexpr const char* kFormats[] = {"f32",  "bf16", "f16",  "q4_0", "q4_1", "q5_0",
                                           "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "mxfp4",
                                           "int8"};
inline constexpr const char* kKVFormats[] = {"f32", "bf16", "f16", "int8"};
inline constexpr const char* kOperands[] = {"f32", "bf16", "int8", "int16"};
inline constexpr const char* kScorings[] = {"softmax", "softmax_of_top", "sigmoid"};
inline constexpr const char* kGroupScores[] = {"max", "top2"};
inline constexpr const char* kActivations[] = {"none",       "silu", "gelu",  "gelu_tanh",
                                               "quick_gelu", "relu", "relu2", "sigmoid"};
inline constexpr const char* kNorms[] = {"rms", "layer"};

template <class Enum, size_t N>
Enum named(const char* const (&names)[N], const std::string& name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  require(found != std::end(names), ("there is no " + name).c_str());
  return static_cast<Enum>(found - std::begin(names));
}

}  // namespace octavo

// The Python module: the variant it was compiled for, which variants this CPU can run, and what
// each file bind_*.cpp adds.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind.h"

#define OCTAVO_STRING_OF(name) #name
#define OCTAVO_STRING(name) OCTAVO_STRING_OF(name)
#define OCTAVO_JOIN_OF(left, right) left##right
#define OCTAVO_JOIN(left, right) OCTAVO_JOIN_OF(left, right)

namespace octavo {

// The instruction sets here are those that CMakeLists.txt compiles each variant with.
std::vector<std::string> cpu_variants() {
  std::vector<std::string> variants{"portable"};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  const bool avx512bf16 = avx512 && __builtin_cpu_supports("avx512vnni") &&
                          __builtin_cpu_supports("avx512bf16");
  if (avx2) variants.emplace_back("avx2");
  if (avx512) variants.emplace_back("avx512");
  if (avx512bf16) variants.emplace_back("avx512bf16");
#endif
  return variants;
}

}  // namespace octavo

NB_MODULE(OCTAVO_JOIN(_native_, OCTAVO_VARIANT), module) {
  module.attr("variant") = OCTAVO_STRING(OCTAVO_VARIANT);
  module.def("cpu_variants", &octavo::cpu_variants);
  octavo::bind_pool(module);
  octavo::bind_linear(module);
  octavo::bind_attention(module);
  octavo::bind_block(module);
  octavo::bind_limits(module);
  octavo::bind_program(module);
  octavo::bind_experts(module);
}

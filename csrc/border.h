// What the files of bindings share: arrays of numpy, and refusing what kernels would not survive.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <vector>

#include "attention.h"
#include "kv_pages.h"

namespace octavo {

template <class T, int Axes>
using Array = nanobind::ndarray<T, nanobind::ndim<Axes>, nanobind::c_contig, nanobind::device::cpu>;

// An array, or None.
using Values = std::optional<Array<const float, 1>>;

inline std::vector<float> floats(const Values& array) {
  if (!array) return {};
  return {array->data(), array->data() + array->size()};
}

inline void require(bool holds, const char* what) {
  if (!holds) throw nanobind::value_error(what);
}

inline void require_values_in_keys(const AttentionSpec& spec, KVFormat format) {
  require(format != KVFormat::int8,
          "attention: values that are a part of keys are not kept in int8: choose a float format");
  require(spec.value_column + spec.v_head_dim <= spec.head_dim,
          "attention: values lie outside of keys");
  require(spec.value_column % 2 == 0 && spec.v_head_dim % 2 == 0,
          "attention: value_column and v_head_dim must be even");
}

inline void require_attention(const AttentionSpec& spec, KVFormat format, int block_size) {
  require(spec.kv_heads > 0 && spec.heads > 0 && spec.heads % spec.kv_heads == 0,
          "attention: kv_heads must divide heads");
  require(spec.head_dim > 0 && spec.head_dim % 2 == 0, "attention: head_dim must be even");
  require(spec.v_head_dim > 0, "attention: v_head_dim must be positive");
  require(spec.scale > 0 && spec.sight.window >= 0 && spec.sight.chunk >= 0,
          "attention: scale, window and chunk must be positive");
  require(spec.sight.window == 0 || spec.sight.chunk == 0,
          "attention: a window or chunks, not both");
  require(block_size > 0 && block_size % PANEL == 0,
          "attention: block_size must be a multiple of 16");
  if (spec.values_in_keys()) require_values_in_keys(spec, format);
}

}  // namespace octavo

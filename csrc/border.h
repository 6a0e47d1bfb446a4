// What the files of bindings share: arrays of numpy, and refusing what kernels would not survive.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "attention.h"

namespace octavo {

template <class T, int Axes>
using Array = nanobind::ndarray<T, nanobind::ndim<Axes>, nanobind::c_contig, nanobind::device::cpu>;

inline void require(bool holds, const char* what) {
  if (!holds) throw nanobind::value_error(what);
}

inline void require_attention(const AttentionSpec& spec, int block_size) {
  require(spec.kv_heads > 0 && spec.heads > 0 && spec.heads % spec.kv_heads == 0,
          "attention: kv_heads must divide heads");
  require(spec.head_dim > 0 && spec.head_dim % 2 == 0, "attention: head_dim must be even");
  require(spec.v_head_dim > 0, "attention: v_head_dim must be positive");
  require(spec.scale > 0 && spec.window >= 0, "attention: scale and window must be positive");
  require(block_size > 0 && block_size % PANEL == 0,
          "attention: block_size must be a multiple of 16");
}

}  // namespace octavo

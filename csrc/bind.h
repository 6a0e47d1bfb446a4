// What each file of bindings adds to the module.
#pragma once

#include <nanobind/nanobind.h>

#include "pool.h"
#include "program.h"

namespace octavo {

void bind_pool(nanobind::module_& module);
void bind_sample(nanobind::class_<Pool>& pool);
void bind_linear(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_block(nanobind::module_& module);
void bind_limits(nanobind::module_& module);
void bind_program(nanobind::module_& module);
void bind_experts(nanobind::module_& module);
void bind_state(nanobind::class_<Program>& program);

// Raise ValueError where a step's tables of states point to what its ops must not touch.
void check_states(const Step& step, const Program& program);
void bind_ops(nanobind::class_<Program>& program);
void bind_attention_op(nanobind::class_<Program>& program);

}  // namespace octavo

"""In which format each tensor is kept in memory: what the file stores, what was asked for, and
what the kernels can multiply, put together before any weights are read.

A format is "f32", "bf16", "f16", a GGUF block format in lower case: blocks of 32 weights with a
scale of their own (k-quants: blocks of 256), or "int8": one scale for each output and each token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from octavo.models.spec import (
    AttentionSpec,
    ExpertsSpec,
    LatentAttentionSpec,
    LinearSpec,
    ModelSpec,
    OpSpec,
    ParamSpec,
)
from octavo.weights.checkpoint import Checkpoint

BLOCK_FORMATS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k", "mxfp4")
INT8 = "int8"
QUANTISED_FORMATS = (*BLOCK_FORMATS, INT8)
FLOAT_FORMATS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}  # by dtype

AS_STORED = "auto"
NONE = "none"


def block_length(format: str) -> int:
    """Weights of a row that a block holds; rows must be multiples of it."""
    return 256 if format.endswith("_k") else 32 if format in BLOCK_FORMATS else 1


def weight_formats(
    spec: ModelSpec, parameters: Checkpoint, dtype: str, quantization: str
) -> dict[str, str]:
    """Name of a matrix -> format; all else is kept as float32 arrays.

    A matrix keeps its block format, or int8, where `quantization` is "auto", takes the named one,
    or `dtype` where that is "none" or its rows do not fit a block. Attention's values are `dtype`
    instead of blocks: nothing normalises what they carry, and they are few, so that floats there
    take a third of all error for a twentieth of the memory. Routers are "f32": what they decide is
    all or nothing.
    """
    formats = {
        param.name: _format(param, parameters.stored(param.name), dtype, quantization)
        for param in spec.params()
        if param.name in spec.matrices
    }
    for op in (op for layer in spec.layers for op in layer.ops):
        for linear in _in_floats(op):
            if formats[linear.weight.name] in BLOCK_FORMATS:
                formats[linear.weight.name] = FLOAT_FORMATS[dtype]
        for linear in op.v_up if isinstance(op, LatentAttentionSpec) else ():
            if formats[linear.weight.name] == INT8:  # a token has one scale there, not one a head
                formats[linear.weight.name] = FLOAT_FORMATS[dtype]
        if isinstance(op, ExpertsSpec):
            formats[op.router.linear.weight.name] = "f32"
    return formats


def _in_floats(op: OpSpec) -> tuple[LinearSpec, ...]:
    if isinstance(op, AttentionSpec):
        return (op.v,)
    if isinstance(op, LatentAttentionSpec):
        return (op.latent, *op.k_up, *op.v_up)
    return ()


def summary(spec: ModelSpec, formats: Mapping[str, str]) -> str:
    """The formats of the matrices, most weights first: "q4_1" or "q4_k, q6_k"."""
    sizes: dict[str, int] = {}
    for param in spec.params():
        if param.name in formats:
            format = formats[param.name]
            sizes[format] = sizes.get(format, 0) + math.prod(param.shape)
    return ", ".join(sorted(sizes, key=lambda format: -sizes[format]))


def _format(param: ParamSpec, stored: str, dtype: str, quantization: str) -> str:
    wanted = stored if quantization == AS_STORED else quantization
    if wanted in QUANTISED_FORMATS and param.shape[-1] % block_length(wanted) == 0:
        return wanted
    return FLOAT_FORMATS[dtype]

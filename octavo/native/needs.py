"""What the native kernels ask of a model's sizes, said before any weights are read."""

from __future__ import annotations

from octavo.base.errors import ConfigError, ModelError
from octavo.models.spec import LatentAttentionSpec, ModelSpec

SUB_BLOCK = 16  # tokens whose keys and values lie together
TOGETHER = 32  # columns of a buffer that share a scale: where a part of it may begin


def check_sizes(spec: ModelSpec, block_size: int) -> None:
    """Raises ModelError where the kernels cannot compute the model, and ConfigError where they
    cannot read blocks of `block_size` tokens."""
    if block_size % SUB_BLOCK:
        raise ConfigError(
            f"block_size must be a multiple of {SUB_BLOCK} on the CPU, got {block_size}"
        )
    for op in (op for layer in spec.layers for op in layer.ops):
        if isinstance(op, LatentAttentionSpec):
            _check("qk_nope_head_dim", op.q_plain.out_features // op.attend.num_heads)
            _check("kv_lora_rank", op.attend.v_head_dim)


def _check(name: str, size: int) -> None:
    if size % TOGETHER:
        raise ModelError(
            f"config: the CPU's kernels need {name} to be a multiple of {TOGETHER}, got {size}"
        )

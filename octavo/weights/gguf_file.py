"""A GGUF file as a checkpoint: names translated, rows unpermuted, quantised types dequantised."""

from __future__ import annotations

import math
import re
from mmap import ACCESS_READ, mmap

import numpy as np

from octavo.base.errors import ModelError
from octavo.files.gguf_header import GgufTensor
from octavo.files.gguf_types import TensorType
from octavo.files.model_files import ModelFiles
from octavo.models.spec import ModelSpec
from octavo.weights.checkpoint import STORED, Checkpoint, Dtype, RawTensor, file_identity

_WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "rope_freqs": "rope_freqs",
}

_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

_PLAIN: dict[TensorType, Dtype] = {
    TensorType.F32: "float32",
    TensorType.F16: "float16",
    TensorType.BF16: "bfloat16",
}

_BLOCKS_TOGETHER = 256


class GgufCheckpoint(Checkpoint):
    """All tensors of a GGUF file; `spec` says how many rows a head has."""

    def __init__(self, files: ModelFiles, spec: ModelSpec) -> None:
        self._path = files.path
        self._tensors = {_translate(name): t for name, t in files.gguf.tensors.items()}
        self._heads = _permuted_heads(spec) if spec.family == "llama" else {}
        with files.path.open("rb") as opened:
            self._data = mmap(opened.fileno(), 0, access=ACCESS_READ)

    def identity(self) -> str:
        return file_identity(self._path)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def stored(self, name: str) -> str:
        kind = self._tensors[name].type
        return _PLAIN.get(kind, kind.name.lower())

    def blocks(self, name: str) -> np.ndarray:
        """A view of the mapped file where the tensor is not permuted."""
        tensor = self._tensors[name]
        packed = np.frombuffer(self._data, np.uint8, tensor.num_bytes, tensor.offset)
        rows = packed.reshape(tensor.shape[0], -1)
        rows = unpermute(rows, self._heads[name]) if name in self._heads else rows
        rows.flags.writeable = False
        return rows

    def read(self, name: str) -> RawTensor:
        """A view of the mapped file where the tensor is neither quantised nor permuted.

        Raises:
            ModelError: the tensor's type cannot be dequantised.
        """
        tensor = self._tensors[name]
        raw = self._plain(tensor) if tensor.type in _PLAIN else self._dequantised(tensor)
        if name in self._heads:
            raw = RawTensor(raw.dtype, unpermute(raw.array, self._heads[name]))
        raw.array.flags.writeable = False
        return raw

    def _plain(self, tensor: GgufTensor) -> RawTensor:
        dtype = _PLAIN[tensor.type]
        flat = np.frombuffer(self._data, STORED[dtype], math.prod(tensor.shape), tensor.offset)
        return RawTensor(dtype, flat.reshape(tensor.shape))

    def _dequantised(self, tensor: GgufTensor) -> RawTensor:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        packed = np.frombuffer(self._data, np.uint8, tensor.num_bytes, tensor.offset)
        block_bytes = tensor.type.block_bytes
        # Blocks stand alone, and dequantize takes 16 rows at a time: longer rows are faster.
        together = math.gcd(tensor.num_bytes // block_bytes, _BLOCKS_TOGETHER)
        try:
            values = dequantize(
                packed.reshape(-1, together * block_bytes), GGMLQuantizationType(tensor.type.code)
            )
        except NotImplementedError as error:
            raise ModelError(
                f"{self._path}: {tensor.name} has type {tensor.type.name}, not supported"
            ) from error
        return RawTensor("float32", values.reshape(tensor.shape))


def unpermute(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo the order of q and k rows in llama files: [num_heads * head_dim, ...], a copy.

    Rows of a head lie there as RoPE pairs, 0 h 1 h+1 2 h+2 ... with h = head_dim / 2, so that
    neighbours turn together; here element i turns with i + h, so they lie as 0 1 2 ... again.
    """
    paired = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return paired.swapaxes(1, 2).reshape(rows.shape)


def _permuted_heads(spec: ModelSpec) -> dict[str, int]:
    """Parameter name -> heads, for the parameters whose rows are permuted."""
    heads: dict[str, int] = {}
    for layer in spec.layers:
        attention = layer.attention
        for linear, count in (
            (attention.q, attention.num_heads),
            (attention.k, attention.num_kv_heads),
        ):
            params = (linear.weight, linear.bias)
            heads |= {param.name: count for param in params if param is not None}
    return heads


def _translate(name: str) -> str:
    """`blk.N.attn_q.weight` -> `model.layers.N.self_attn.q_proj.weight`; unknown names stay."""
    stem, _, kind = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{kind}"
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if match is None or match[2] not in _IN_LAYER:
        return name
    return f"model.layers.{match[1]}.{_IN_LAYER[match[2]]}.{kind}"

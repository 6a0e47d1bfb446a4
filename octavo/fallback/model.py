"""A model that Transformers computes: tested and measured first, its weights loaded later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import nn

from octavo.base.errors import ModelError
from octavo.fallback import loading
from octavo.fallback.classes import model_class
from octavo.fallback.loading import Watch
from octavo.fallback.outline import outline, record_outline
from octavo.fallback.packed import position_offset
from octavo.fallback.quiet import quiet
from octavo.fallback.selftest import self_test
from octavo.fallback.shapes import CallKey, kv_groups
from octavo.fallback.spec import FallbackSpec
from octavo.files.model_files import ModelFiles
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.text_part import TextPart

_ORIGINAL = "original_max_position_embeddings"
_LONGEST = ("max_position_embeddings", "max_target_positions", "max_seq_len", "n_ctx")


@dataclass(frozen=True)
class FallbackModel:
    """What has been learned of a model, and how to load it."""

    spec: FallbackSpec
    checkpoint: Checkpoint | None  # of the text decoder
    config: Any
    made: Any  # its class
    asks_past: bool
    slot_of: Mapping[CallKey, int]
    weight_bytes: int

    def load(
        self, checkpoint: Checkpoint, dtype: str, device: str, watch: Watch = lambda names: names
    ) -> nn.Module:
        """Raises ModelError where tensors are missing or of another shape."""
        return loading.load(
            self.made, self.config, checkpoint, getattr(torch, dtype), device, watch
        )


def examine(
    files: ModelFiles,
    checkpoint: Checkpoint | None,
    dtype: str,
    kv_dtype: str,
    trust_remote_code: bool,
    eos: Any,
) -> FallbackModel:
    """Reads headers only. Without a checkpoint the class says which tensors there are.

    `eos`: token id, or several, where other files than the config say which.

    Raises:
        ModelError: Transformers cannot build the model, or its class fails the self-test.
    """
    made, config, is_part = model_class(files, trust_remote_code)
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise ModelError("config: vocab_size is missing")
    if checkpoint is not None and is_part:
        checkpoint = TextPart(checkpoint)
    try:
        with quiet():
            asks_past = self_test(made, config)
        model = outline(made, config, checkpoint, getattr(torch, dtype))
        recorder = record_outline(model, asks_past)
    except ModelError as error:
        raise ModelError(f"{made.__name__} cannot be served: {error}") from error
    code = [path.read_bytes() for path in sorted(files.path.glob("*.py"))]
    spec = FallbackSpec(
        family=str(config.model_type),
        config=_digest(config, code if trust_remote_code else []),
        vocab_size=config.vocab_size,
        max_model_len=_longest(config) - position_offset(model),
        attends=tuple(slot.attend for slot in recorder.slots),
        kv_groups=kv_groups(recorder.slots, kv_dtype),
        eos_token_ids=_ids(getattr(config, "eos_token_id", None) if eos is None else eos),
        num_parameters=sum(p.numel() for p in model.parameters()),
        tied=bool(getattr(config, "tie_word_embeddings", False)),
        needless=(),
        tensors=_tensors(model) if checkpoint is None else checkpoint.shapes(),
    )
    return FallbackModel(spec, checkpoint, config, made, asks_past, recorder.slot_of, _bytes(model))


def _bytes(model: nn.Module) -> int:
    return sum(x.nbytes for x in (*model.parameters(), *model.buffers()))


def _tensors(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """What is tied is there once."""
    state = model.state_dict(keep_vars=True)
    return dict({id(x): (name, tuple(x.shape)) for name, x in state.items()}.values())


def _digest(config: Any, code: list[bytes]) -> str:
    digest = sha256(config.to_json_string(use_diff=False).encode())
    for text in code:
        digest.update(sha256(text).digest())
    return digest.hexdigest()


def _longest(config: Any) -> int:
    """Where rotary factors depend on the longest sequence of a step (LongRoPE), the length up to
    which they are the short ones, so that sequences do not depend on one another."""
    found = (getattr(config, name, None) for name in _LONGEST)
    longest = next((n for n in found if isinstance(n, int)), None)
    if longest is None:
        raise ModelError("config: max_position_embeddings is missing")
    own = getattr(config, _ORIGINAL, longest)
    short = [int(r.get(_ORIGINAL, own)) for r in _ropes(config) if r["rope_type"] == "longrope"]
    return min([longest, *short])


def _ropes(config: Any) -> list[Mapping[str, Any]]:
    """Rotary parameters: one set, or one for each type of layer."""
    found = getattr(config, "rope_parameters", None) or {}
    return [r for r in (found, *found.values()) if isinstance(r, Mapping) and "rope_type" in r]


def _ids(found: Any) -> tuple[int, ...]:
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list | tuple) else (int(found),)

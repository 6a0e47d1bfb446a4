"""A Transformers model that computes rows of several sequences at once, over paged KV."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from octavo.attention.batch import AttentionBatch
from octavo.attention.reference import ReferenceAttention
from octavo.base.errors import ModelError
from octavo.fallback.interface import Call, Receiver, receive
from octavo.fallback.shapes import CallKey, Recorder, attend_spec


class Paged:
    """Receives a model's calls and attends over its KV cache."""

    def __init__(
        self, config: Any, slot_of: Mapping[CallKey, int], attention: ReferenceAttention
    ) -> None:
        self._config = config
        self._slot_of = slot_of
        self._attention = attention
        self._plan: Any = None
        self._calls: Counter[str] = Counter()

    def begin(self, batch: AttentionBatch) -> None:
        """A step."""
        self._plan = self._attention.plan(batch)
        self._calls.clear()

    def __call__(self, call: Call) -> torch.Tensor:
        slot = self._slot_of[call.path, self._calls[call.path]]
        self._calls[call.path] += 1
        sinks = call.options.get("s_aux")
        return self._attention.run(
            self._plan, slot, *call.rows(), attend_spec(call, self._config), sinks
        )


class Past:
    """Stands for Transformers' cache in models that ask it how long the past of their tokens is:
    a length for each token, [T]. Keeps nothing."""

    def __init__(self, lengths: torch.Tensor) -> None:
        self._lengths = lengths

    def get_seq_length(self, layer: int = 0) -> torch.Tensor:
        return self._lengths

    def update(
        self, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key, value


class PackedModel:
    """Token ids [T] -> logits of chosen tokens [S, vocab], float32.

    With `asks_past`, the model is one that counts positions from the length of its cache.
    """

    def __init__(self, model: nn.Module, receiver: Receiver, asks_past: bool) -> None:
        receive(model, receiver)
        self._model = model
        self._offset = position_offset(model)
        taken = inspect.signature(model.forward).parameters
        self._keeps = "logits_to_keep" in taken
        cache = "cache" if "cache" in taken else "past_key_values"  # its name before 5.24
        self._cache = cache if asks_past else None

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """positions: [T] int64, each in its own sequence; chosen: [S] int64, of the T."""
        more: dict[str, Any] = {"logits_to_keep": chosen} if self._keeps else {}
        if self._cache is not None:
            past = positions - torch.arange(len(positions), device=positions.device)
            more[self._cache] = Past(past)
        found = self._model(
            input_ids=token_ids[None].long(),
            position_ids=positions[None] + self._offset,
            use_cache=False,
            **more,
        ).logits[0]
        return (found if self._keeps else found[chosen]).float()


def position_offset(model: nn.Module) -> int:
    """RoBERTa and its like count positions from behind the one that stands for padding."""
    for path, module in model.named_modules():
        if isinstance(module, nn.Embedding) and path.endswith("position_embeddings"):
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


def record(model: Any, token_ids: torch.Tensor, asks_past: bool) -> Recorder:
    """The calls of one forward pass.

    Raises:
        ModelError: there are none, or one that is not understood.
    """
    recorder = Recorder(model.config.get_text_config(decoder=True))
    positions = torch.arange(len(token_ids), device=token_ids.device)
    PackedModel(model, recorder, asks_past)(token_ids, positions, positions[-1:])
    if not recorder.slots:
        raise ModelError("it does not call Transformers' attention interface")
    return recorder

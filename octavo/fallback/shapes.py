"""What a model's layers keep of each token, learned from one forward pass without weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from octavo.base.errors import ModelError
from octavo.base.kv import KVGroup, KVKind
from octavo.fallback.interface import Call
from octavo.models.memory import kv_head_bytes
from octavo.models.spec import AttendSpec

# Keyword arguments of a call that change nothing about what is computed.
_IDLE = frozenset(
    {
        "dropout",
        "position_ids",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
        "is_causal",
        "scaling",
        "sliding_window",
        "softcap",
        "s_aux",
    }
)

CallKey = tuple[str, int]  # module's path, nth of its calls in one forward pass


@dataclass(frozen=True)
class Slot:
    """KV memory of the calls that bring the same keys and values; the first is `key`."""

    key: CallKey
    attend: AttendSpec


def attend_spec(call: Call, config: Any) -> AttendSpec:
    """How the call attends: by its arguments, and where it brings none by the layer's type.

    Raises:
        ModelError: it asks for something that paged attention does not do.
    """
    _refuse(call)
    options = call.options
    window, chunk = _reach(call, config)
    head_dim = call.query.shape[3]
    scale = options.get("scaling")
    return AttendSpec(
        num_heads=call.query.shape[1],
        num_kv_heads=call.key.shape[1],
        head_dim=head_dim,
        v_head_dim=call.value.shape[3],
        scale=head_dim**-0.5 if scale is None else float(scale),
        window=window,
        chunk=chunk,
        soft_cap=options.get("softcap"),
    )


class Recorder:
    """Receives the calls of a forward pass and computes nothing."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._calls: Counter[str] = Counter()
        self._seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.slots: list[Slot] = []
        self.slot_of: dict[CallKey, int] = {}

    def __call__(self, call: Call) -> torch.Tensor:
        key = call.path, self._calls[call.path]
        self._calls[call.path] += 1
        attend = attend_spec(call, self._config)
        self.slot_of[key] = self._slot(call, attend, key)
        q, _, v = call.rows()
        return q.new_zeros((*q.shape[:2], v.shape[2]))

    def _slot(self, call: Call, attend: AttendSpec, key: CallKey) -> int:
        """Layers that attend over another's very keys and values share its slot."""
        for slot, (k, v) in enumerate(self._seen):
            if k is call.key and v is call.value and _alike(self.slots[slot].attend, attend):
                return slot
        self._seen.append((call.key, call.value))
        self.slots.append(Slot(key, attend))
        return len(self.slots) - 1


def kv_groups(slots: list[Slot], kv_dtype: str) -> tuple[KVGroup, ...]:
    """Slots of equal reach, in order of first appearance."""
    members: dict[tuple[KVKind, int | None], list[int]] = {}
    for n, slot in enumerate(slots):
        members.setdefault(_kind(slot.attend), []).append(n)
    return tuple(
        KVGroup(
            name=kind if window is None else f"{kind}-{window}",
            kind=kind,
            layers=tuple(layers),
            bytes_per_token=sum(_token_bytes(slots[n].attend, kv_dtype) for n in layers),
            window=window,
        )
        for (kind, window), layers in members.items()
    )


def _kind(attend: AttendSpec) -> tuple[KVKind, int | None]:
    if attend.chunk is not None:
        return "chunked", attend.chunk
    return ("full", None) if attend.window is None else ("window", attend.window)


def _token_bytes(attend: AttendSpec, kv_dtype: str) -> int:
    return attend.num_kv_heads * sum(kv_head_bytes(kv_dtype, dim) for dim in attend.kept_dims)


def _alike(a: AttendSpec, b: AttendSpec) -> bool:
    return (a.window, a.chunk) == (b.window, b.chunk)


def _reach(call: Call, config: Any) -> tuple[int | None, int | None]:
    """Window and chunk, in tokens."""
    types = getattr(config, "layer_types", None) or []
    index = getattr(call.module, "layer_idx", None)
    kind = types[index] if isinstance(index, int) and index < len(types) else None
    if kind == "chunked_attention":
        return None, config.attention_chunk_size
    if "sliding_window" in call.options:
        return call.options["sliding_window"], None
    return (config.sliding_window if kind == "sliding_attention" else None), None


def _refuse(call: Call) -> None:
    unknown = [n for n, v in call.options.items() if n not in _IDLE and v is not None]
    if unknown:
        raise ModelError(f"its attention is called with {', '.join(sorted(unknown))}")
    if call.mask is not None:
        raise ModelError("its attention brings a mask of its own")
    if call.query.shape[0] != 1:
        raise ModelError("its attention is called with several batches")
    if call.key.shape[2] != call.query.shape[2]:
        raise ModelError(
            f"its attention has {call.key.shape[2]} keys for {call.query.shape[2]} queries"
        )
    if not getattr(call.module, "is_causal", True) or call.options.get("is_causal") is False:
        raise ModelError("its attention looks ahead, as an encoder's does without is_decoder")

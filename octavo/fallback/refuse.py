"""Models whose attention cannot be paged, known by their class and config alone."""

from __future__ import annotations

from typing import Any

from octavo.base.errors import ModelError

# Of Transformers' names for what a layer does, those that keep the keys and values of each token.
_PAGED = {"full_attention", "sliding_attention", "chunked_attention", "mlp", "moe"}


def refuse_other_states(model_class: Any, config: Any) -> None:
    """Raises ModelError where something besides keys and values is kept, or read."""
    if config.is_encoder_decoder:
        raise ModelError("it is an encoder and a decoder")
    other = set(getattr(config, "layer_types", None) or ()) - _PAGED
    if other:
        names = ", ".join(sorted(other))
        raise ModelError(f"its layers of type {names} keep more than the keys and values of tokens")
    if getattr(model_class, "_is_stateful", False):
        raise ModelError("it keeps a state, which Transformers holds in its own cache")

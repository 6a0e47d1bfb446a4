"""What the engine asks of a model, whatever computes it."""

from __future__ import annotations

from typing import Protocol

from octavo.base.kv import KVGroup


class ModelFacts(Protocol):
    """Its `repr` says which mathematics it is: KV of two models that differ is kept apart by it."""

    @property
    def family(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_model_len(self) -> int:
        """Positions the model was made for."""

    @property
    def kv_groups(self) -> tuple[KVGroup, ...]: ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...

    @property
    def num_parameters(self) -> int:
        """A tied head counts once."""

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""

    @property
    def needless(self) -> tuple[str, ...]:
        """Patterns of tensors that a checkpoint may have and that are not read."""

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of all that is read from a checkpoint."""

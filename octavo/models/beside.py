"""A model that drafts for another lives in the same pages: its layers are numbered behind those of
the other, and share the block tables of layers of their kind.

        page of a block | K V of layer 0 | ... | K V of the last layer | K V of the drafting ones |

So whatever happens to a block (shared, copied, found again, evicted) happens to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from octavo.base.kv import KVGroup
from octavo.models.spec import AttendSpec, ModelSpec


@dataclass(frozen=True)
class Beside:
    """What a model makes room for and tells, for the sake of one that drafts."""

    attends: Mapping[int, AttendSpec] = field(default_factory=dict)  # of layers behind its own
    features: tuple[int, ...] = ()  # layers whose outputs at all tokens are told


NOTHING = Beside()


def drafting_layers(spec: ModelSpec, first: int) -> dict[int, AttendSpec]:
    """How layers attend that are numbered from `first` on."""
    return {first + n: attend for n, attend in spec.attends.items()}


def groups_together(
    groups: tuple[KVGroup, ...], drafting: tuple[KVGroup, ...], first: int
) -> tuple[KVGroup, ...]:
    """KV groups of both, where layers of the drafting model are numbered from `first` on."""
    together = list(groups)
    for group in drafting:
        group = msgspec.structs.replace(group, layers=tuple(first + n for n in group.layers))
        for i, other in enumerate(together):
            if (other.kind, other.window) == (group.kind, group.window):
                together[i] = _joined(other, group)
                break
        else:
            together.append(group)
    return tuple(together)


def _joined(group: KVGroup, other: KVGroup) -> KVGroup:
    alike = group.bytes_per_token * len(other.layers) == other.bytes_per_token * len(group.layers)
    return msgspec.structs.replace(
        group,
        layers=group.layers + other.layers,
        bytes_per_token=group.bytes_per_token + other.bytes_per_token,
        uneven=group.uneven or other.uneven or not alike,
    )

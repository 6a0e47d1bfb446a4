"""Where structures act on a step: masks before its tokens are drawn, and the rare second draw.

A token behind which too few tokens would be left for what its structure still needs is drawn once
more, from those that do not have this fault. All that is accepted of a row passes here, whether it
was drawn alone or behind drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from octavo.base.errors import RequestError
from octavo.grammar.guide import Guide
from octavo.grammar.matcher import Mask
from octavo.sampling.rows import Drawn, SamplingRow
from octavo.worker.batch import Wanted
from octavo.worker.states import States

Masks = dict[int, Mask]  # by index of the draw


@dataclass(slots=True)
class _Part:
    """Consecutive draws that one guide follows."""

    at: int  # the first one's index
    drafts: Sequence[int]
    guide: Guide
    whole: list[bool | None] = field(default_factory=list)  # behind each token that was taken
    error: str | None = None

    @property
    def taken(self) -> int:
        return len(self.whole)


class Guiding:
    """The guided draws of one step."""

    def __init__(self, wanted: Sequence[Wanted], states: States) -> None:
        self._parts: dict[int, _Part] = {}  # by index in `wanted`
        self._closed: set[int] = set()  # draws that were made once more
        own = {part.sequence_id: i for i, part in enumerate(wanted)}  # behind those of its forks
        at = 0
        for i, part in enumerate(wanted):
            guide = states[part.sequence_id].guide
            if guide is not None and part.child is not None:
                mine = guide if own[part.sequence_id] == i else guide.copy()
                self._parts[i] = _Part(at, part.drafts, mine)
            at += part.count

    def __bool__(self) -> bool:
        return bool(self._parts)

    def masks(self) -> Masks:
        """There is none for a draw of any token."""
        found: Masks = {}
        for part in self._parts.values():
            try:
                masks = part.guide.masks(part.drafts)
            except RequestError as error:  # its row alone fails
                part.error = str(error)
                continue
            found |= {part.at + i: mask for i, mask in enumerate(masks) if mask is not None}
        return found

    def settle(
        self, drawn: Sequence[Drawn], again: Callable[[Masks], Sequence[Drawn]]
    ) -> list[Drawn]:
        """What was drawn, once every token of it may stay. `again` draws with other masks, in their
        order."""
        settled = list(drawn)
        for part in self._parts.values():
            if part.error is not None:
                settled[part.at] = Drawn(-1, error=part.error)
        while refused := self._refused(settled):
            self._closed |= refused.keys()
            for i, other in zip(refused, again(refused), strict=True):
                settled[i] = other
        return settled

    def judged(self, index: int, count: int) -> tuple[int | None, list[bool] | None]:
        """Of `wanted[index]`, of which so many tokens are accepted: which was drawn again first,
        and whether the answer is whole behind each; None where it has no structure."""
        part = self._parts.get(index)
        if part is None:
            return None, None
        closed = (i for i in range(count) if part.at + i in self._closed)
        whole = [one for one in part.whole if one is not None]
        return next(closed, None), whole or None

    def _refused(self, drawn: Sequence[Drawn]) -> Masks:
        """Guides take what may stay, up to the first draw that may not."""
        refused: Masks = {}
        for part in self._parts.values():
            while part.taken <= len(part.drafts):
                at = part.at + part.taken
                if drawn[at].error is not None or not _follows(part, drawn[at - 1]):
                    break
                token = drawn[at].token_id
                if at not in self._closed and not part.guide.allows(token):
                    refused[at] = part.guide.only()
                    break
                part.guide.take(token)
                part.whole.append(part.guide.is_whole)
        return refused


def _follows(part: _Part, before: Drawn) -> bool:
    """Whether the next draw is accepted: the one before it is its draft."""
    return not part.taken or part.drafts[part.taken - 1] == before.token_id


def masked(rows: Sequence[SamplingRow], masks: Masks) -> list[SamplingRow]:
    """The rows, some with other masks."""
    if not masks:
        return list(rows)
    return [
        msgspec.structs.replace(row, mask=masks[i]) if i in masks else row
        for i, row in enumerate(rows)
    ]

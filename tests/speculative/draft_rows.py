"""Rows as a worker makes them, of tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from octavo.speculative.proposer import DraftRow


def draft_row(
    token_ids: Sequence[int], most: int, *, sequence_id: int = 0, prompt_len: int = 0
) -> DraftRow:
    """The last token is computed."""
    tokens = np.array(token_ids, np.int32)
    return DraftRow(sequence_id, tokens, prompt_len, max(0, len(tokens) - 1), most, [])


def places(tokens: Sequence[int], wanted: Sequence[int], longest: int) -> tuple[list[int], int]:
    """Positions in `tokens` whose tokens before agree for longest with the end of `wanted`, rising,
    and how many agree: by looking at all of them."""
    agreeing = [_agreeing(tokens[:behind], wanted, longest) for behind in range(len(tokens))]
    most = max(agreeing, default=0)
    return [behind for behind, count in enumerate(agreeing) if count == most], most


def _agreeing(tokens: Sequence[int], wanted: Sequence[int], longest: int) -> int:
    pairs = zip(reversed(tokens), reversed(wanted), range(longest), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

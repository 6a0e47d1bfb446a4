"""An answer's id and a choice's index -> what the engine knows them as.

An answer has one request for each of its prompts, named by the first of its choices.
"""

from __future__ import annotations

from octavo.base.errors import RequestError
from octavo.base.sampling_params import MAX_N
from octavo.engine.history import History, Record


def engine_id(answer_id: str, first: int) -> str:
    """Of the request whose choices begin at index `first`."""
    return f"{answer_id}-{first}" if first else answer_id


def find_choice(history: History, owner: str, answer_id: str, index: int) -> tuple[Record, int]:
    """The record that a choice is in, and which of its sequences it is.

    Raises:
        NotFoundError: the owner has no such answer that runs or is among the last ones.
        RequestError: the answer has no such choice.
    """
    nearest = range(index, max(0, index - MAX_N), -1)
    for first in (*nearest, 0):
        record = history.find(owner, engine_id(answer_id, first))
        if record is not None:
            break
    else:
        return history.get(owner, answer_id), index
    last = first + record.request.params.n - 1
    if index > last:
        raise RequestError(f"index must be between 0 and {last}, got {index}", "index")
    return record, index - first

"""When an answer that goes round in circles is to end."""

from __future__ import annotations

import msgspec

from octavo.base.check import integer

MAX_PATTERN = 1024  # tokens
MAX_COUNT = 2**20


class RepetitionDetection(msgspec.Struct, frozen=True, kw_only=True):
    """End when the output ends in a pattern of `min_pattern_size` to `max_pattern_size` tokens,
    `min_count` times in a row.

    Raises:
        RequestError: a value is outside its range; the message names field and limit.
    """

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int = 2

    def __post_init__(self) -> None:
        name = "repetition_detection."
        integer(name + "max_pattern_size", self.max_pattern_size, 1, MAX_PATTERN)
        integer(name + "min_pattern_size", self.min_pattern_size, 1, self.max_pattern_size)
        integer(name + "min_count", self.min_count, 2, MAX_COUNT)

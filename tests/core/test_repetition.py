from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.base.errors import RequestError
from octavo.base.repetition import MAX_PATTERN, RepetitionDetection
from octavo.core.repetition import Repetitions


def repeats(tokens: list[int], wanted: RepetitionDetection) -> bool:
    """By looking at the end of the whole output."""
    for size in range(wanted.min_pattern_size, wanted.max_pattern_size + 1):
        whole = size * wanted.min_count
        if len(tokens) >= whole and tokens[-whole:] == tokens[-size:] * wanted.min_count:
            return True
    return False


@st.composite
def detections(draw: st.DrawFn) -> RepetitionDetection:
    most = draw(st.integers(1, 6))
    return RepetitionDetection(
        max_pattern_size=most,
        min_pattern_size=draw(st.integers(1, most)),
        min_count=draw(st.integers(2, 4)),
    )


@given(detections(), st.lists(st.integers(0, 2), max_size=80))
def test_as_by_looking_at_the_whole_output(wanted: RepetitionDetection, tokens: list[int]) -> None:
    followed = Repetitions(wanted)
    found = [followed.append(token) for token in tokens]
    assert found == [repeats(tokens[: i + 1], wanted) for i in range(len(tokens))]


@given(detections(), st.lists(st.integers(0, 1), max_size=40), st.integers(0, 40))
def test_begun_anew_from_what_was_generated(
    wanted: RepetitionDetection, tokens: list[int], split: int
) -> None:
    whole, resumed = Repetitions(wanted), Repetitions(wanted, tokens[:split])
    for token in tokens[:split]:
        whole.append(token)
    for token in tokens[split:]:
        assert whole.append(token) == resumed.append(token)


def test_a_pattern_ends_it_at_its_last_token() -> None:
    followed = Repetitions(RepetitionDetection(max_pattern_size=3, min_pattern_size=2, min_count=3))
    tokens = [9, 9, 9, 9, 5, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert [followed.append(token) for token in tokens].index(True) == len(tokens) - 1


def test_a_token_costs_the_same_however_long_the_output() -> None:
    wanted = RepetitionDetection(max_pattern_size=MAX_PATTERN, min_count=2)
    followed = Repetitions(wanted)
    seconds = []
    for part in range(4):
        begin = time.perf_counter()
        for token in range(5000):
            assert not followed.append(part * 5000 + token)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds[1:]) < 3 * seconds[0]


@pytest.mark.parametrize(
    "field,options",
    [
        ("max_pattern_size", {"max_pattern_size": 0}),
        ("max_pattern_size", {"max_pattern_size": MAX_PATTERN + 1}),
        ("min_pattern_size", {"max_pattern_size": 3, "min_pattern_size": 4}),
        ("min_pattern_size", {"max_pattern_size": 3, "min_pattern_size": 0}),
        ("min_count", {"max_pattern_size": 3, "min_count": 1}),
    ],
)
def test_values_that_are_refused(field: str, options: dict[str, int]) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        RepetitionDetection(**options)
    assert caught.value.field == f"repetition_detection.{field}"

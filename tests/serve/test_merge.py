"""Streams read at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from octavo.serve.merge import merge


class Source:
    """Counts up to `stop`, then raises `error` if there is one, or waits for ever."""

    def __init__(self, stop: int, error: Exception | None = None, endless: bool = False) -> None:
        self.stop, self.error, self.endless = stop, error, endless
        self.closed = False

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.stop):
                await asyncio.sleep(0)
                yield number
            if self.error:
                raise self.error
            if self.endless:
                await asyncio.Event().wait()
        finally:
            self.closed = True


@pytest.mark.parametrize("stops", [[3], [3, 0, 5], [1] * 20])
async def test_everything_arrives_in_order(stops: list[int]) -> None:
    sources = [Source(stop) for stop in stops]
    got: list[list[int]] = [[] for _ in stops]
    async for index, item in merge([source.items() for source in sources]):
        got[index].append(item)
    assert got == [list(range(stop)) for stop in stops]
    assert all(source.closed for source in sources)


@pytest.mark.parametrize("count", [1, 3])
async def test_an_error_in_one_closes_all(count: int) -> None:
    sources = [Source(2, error=ValueError("bad")), *[Source(2, endless=True)] * (count - 1)]
    with pytest.raises(ValueError, match="bad"):
        async for _ in merge([source.items() for source in sources]):
            pass
    assert all(source.closed for source in sources)


@pytest.mark.parametrize("count", [1, 3])
async def test_leaving_early_closes_all(count: int) -> None:
    sources = [Source(9, endless=True) for _ in range(count)]
    async with aclosing(merge([source.items() for source in sources])) as merged:
        for _ in range(2 * count):
            await anext(merged)
    assert all(source.closed for source in sources)

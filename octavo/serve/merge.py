"""Several streams read at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(
    streams: Sequence[AsyncGenerator[T, None]],
) -> AsyncGenerator[tuple[int, T], None]:
    """Items of all streams as they come, each with its stream's index.

    Closing it, or an error in one stream, closes all of them.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    queue: asyncio.Queue[tuple[int, T] | asyncio.Task[None]] = asyncio.Queue()
    pumps = [asyncio.create_task(_pump(i, stream, queue)) for i, stream in enumerate(streams)]
    for pump in pumps:
        pump.add_done_callback(queue.put_nowait)
    try:
        ended = 0
        while ended < len(pumps):
            got = await queue.get()
            if isinstance(got, asyncio.Task):
                got.result()  # raises what the stream raised
                ended += 1
            else:
                yield got
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    index: int,
    stream: AsyncGenerator[T, None],
    queue: asyncio.Queue[tuple[int, T] | asyncio.Task[None]],
) -> None:
    async with aclosing(stream):
        async for item in stream:
            queue.put_nowait((index, item))

"""Checks of structures in an event loop: nobody waits but who asked."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from octavo.base.structured import StructuredOutputsParams, Thinking
from octavo.grammar.checker import Checker


class CompileService:
    """Checks one structure after the other in a process of its own, which it starts at once."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._thread = ThreadPoolExecutor(1, "structures")  # in the order in which they came
        self._thread.submit(checker.start)

    async def check(self, structure: StructuredOutputsParams, thinking: Thinking | None) -> None:
        """The time that it may take begins when its turn comes.

        Raises:
            RequestError: it is wrong or not supported, or compiling it takes too much time or
                memory.
        """
        if not self._checker.is_known(structure, thinking):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._checker.check, structure, thinking)

    async def close(self) -> None:
        """End the process, and whatever it compiles."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._checker.close)

"""Progress on a terminal. Elsewhere nothing is shown, nor is tqdm imported: that takes a while."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self


class Bar(Protocol):
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def update(self, count: float = 1) -> object: ...


class _Hidden:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, count: float = 1) -> None:
        pass


def progress(
    total: int, what: str, unit: str = "", *, shown: bool = True, leave: bool = True
) -> Bar:
    """A bar that counts to `total`; invisible where standard error is no terminal."""
    if not (shown and sys.stderr.isatty()):
        return _Hidden()
    from tqdm import tqdm

    bar: Bar = tqdm(total=total, desc=what, unit=unit, leave=leave)
    return bar

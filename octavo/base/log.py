"""Logging to stderr, one short line an event."""

from __future__ import annotations

import logging
import sys


def logger(name: str) -> logging.Logger:
    return logging.getLogger(f"octavo.{name}")


def configure(level: int = logging.INFO) -> None:
    """Set up the `octavo` logger of this process; called once, by a process's main function."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger("octavo")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False

"""A conversation in the terminal. Knows messages and text, not tokens."""

from __future__ import annotations

import sys
from contextlib import closing

from octavo.base.errors import RequestError
from octavo.base.sampling_params import SamplingParams
from octavo.llm import LLM


def converse(llm: LLM, params: SamplingParams, system: str | None = None) -> None:
    """Read a line, answer it, until end of input. Ctrl-C stops an answer, not the talk; an empty
    line is passed over; /reset begins anew."""
    start = [{"role": "system", "content": system}] if system else []
    messages = list(start)
    print("/reset begins anew, Ctrl-D ends", file=sys.stderr)
    while (line := _read()) is not None:
        if line == "/reset":
            messages = list(start)
        elif line:
            asked = [*messages, {"role": "user", "content": line}]
            answer = _answer(llm, params, asked)
            if answer is not None:
                messages = [*asked, {"role": "assistant", "content": answer}]


def _read() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        return None


def _answer(llm: LLM, params: SamplingParams, messages: list[dict[str, str]]) -> str | None:
    """Print the answer as it comes. What was said is remembered; nothing of a turn that failed."""
    said, error = "", None
    try:
        with closing(llm.stream({"messages": messages}, params)) as pieces:
            for piece in pieces:
                said, error = said + piece.text, piece.error
                print(piece.text, end="", flush=True)
    except KeyboardInterrupt:
        pass
    except RequestError as refusal:
        error = str(refusal)
    print()
    if error is not None:
        print(f"octavo: {error}; this turn is forgotten", file=sys.stderr)
    return said if error is None else None

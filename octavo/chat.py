"""A conversation in the terminal. Knows messages and text, not tokens."""

from __future__ import annotations

import sys

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
            messages.append({"role": "user", "content": line})
            messages.append({"role": "assistant", "content": _answer(llm, params, messages)})


def _read() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except (EOFError, KeyboardInterrupt):
        return None


def _answer(llm: LLM, params: SamplingParams, messages: list[dict[str, str]]) -> str:
    """Print the answer as it comes; what was said is what is remembered."""
    said = ""
    try:
        prompt = {"prompt_token_ids": llm.text.encode_chat(messages)}
        for piece in llm.stream(prompt, params):
            said += piece.text
            print(piece.text, end="", flush=True)
    except KeyboardInterrupt:
        pass
    except RequestError as error:
        print(f"octavo: {error}", end="", file=sys.stderr)
    print()
    return said

"""What bytes each token stands for, read off a tokenizer's decoder.

A text is the tokens' bytes, one after another, decoded as UTF-8. With this one definition a text
can be made token by token at constant cost; it equals the decoder's own wherever the bytes are
valid UTF-8. Knows no prompts and no requests.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

from octavo.base.errors import ModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """The printable character of each byte in a byte-level vocabulary (GPT-2, 2019)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


BYTE_ALPHABET = _byte_alphabet()


@dataclass(frozen=True)
class Spelling:
    """How a token's string in the vocabulary becomes bytes."""

    byte_level: bool = False  # each character names a byte
    byte_fallback: bool = False  # <0xE2> is the byte E2
    replacements: tuple[tuple[str, str], ...] = ()
    prefix: str = ""  # before every token
    strip: int = 0  # spaces taken away at the very start of a text

    @classmethod
    def of(cls, backend: Backend, source: str) -> Spelling:
        """Read it off the decoder of `backend`; `source` names the file, for messages.

        Raises:
            ModelError: the decoder is of a kind that no generating model uses.
        """
        if backend.decoder is None:  # whole words, which a decode joins by spaces
            return cls(prefix=" ", strip=1)
        fields: dict[str, Any] = {}
        for part in _parts(json.loads(backend.decoder.__getstate__())):
            _add_part(fields, part, source)
        return cls(**fields)

    def bytes_of(self, token: str) -> bytes:
        if self.byte_level:
            try:
                return bytes([BYTE_ALPHABET[char] for char in token])
            except KeyError:  # an added token, spelled as it is
                return token.encode()
        if self.byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for old, new in self.replacements:
            token = token.replace(old, new)
        return (self.prefix + token).encode()


def leading_spaces(text: str, most: int) -> int:
    """How many spaces `text` begins with, at most `most`."""
    return min(most, len(text) - len(text.lstrip(" ")))


def _parts(decoder: dict[str, Any]) -> list[dict[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [part for inner in decoder["decoders"] for part in _parts(inner)]


def _add_part(fields: dict[str, Any], part: dict[str, Any], source: str) -> None:
    replacements = fields.get("replacements", ())
    match part:
        case {"type": "ByteLevel"}:
            fields["byte_level"] = True
        case {"type": "ByteFallback"}:
            fields["byte_fallback"] = True
        case {"type": "Fuse"}:
            pass
        case {"type": "Replace", "pattern": {"String": old}, "content": new}:
            fields["replacements"] = (*replacements, (old, new))
        case {"type": "Strip", "content": " ", "start": count, "stop": 0}:
            fields["strip"] = count
        case {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme}:
            fields["replacements"] = (*replacements, (mark, " "))
            fields["strip"] = 0 if scheme == "never" else 1
        case _:
            raise ModelError(f"{source}: the decoder {json.dumps(part)} is not supported")

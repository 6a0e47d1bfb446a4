"""Formats that shape strings. Other formats are notes and change nothing.

Each is a part of what its standard allows: the part that every checker accepts.
"""

from __future__ import annotations

from functools import cache

from octavo.grammar.pattern import parse_pattern
from octavo.grammar.regex import Regex, both

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
_HOUR = "(?:[01][0-9]|2[0-3])"
_TIME = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{{1,9}})?(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_OF_DAY = "(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_OF_YEAR = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_LABEL = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,31}"  # up to 63 characters
_HOST = f"{_LABEL}(?:\\.{_LABEL})*"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"{_BYTE}(?:\\.{_BYTE}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_CHARACTER = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"


def _ipv6() -> str:
    """RFC 3986, 3.2.2: `::` stands for one or more groups of zeros."""
    ways = [f"(?:{_H16}:){{6}}{_LS32}"]
    for before in range(7):  # up to this many groups in front of ::
        front = f"(?:(?:{_H16}:){{0,{before - 1}}}{_H16})?" if before else ""
        behind = 5 - before
        if behind >= 0:
            ways.append(f"{front}::(?:{_H16}:){{{behind}}}{_LS32}")
        else:
            ways.append(f"{front}::" + (_H16 if behind == -1 else ""))
    return "|".join(f"(?:{way})" for way in ways)


_PATTERNS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:[0-9]+W|{_OF_YEAR}(?:T{_OF_DAY})?|T{_OF_DAY})",
    "email": f"{_ATOM}(?:\\.{_ATOM}){{0,2}}@{_HOST}",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uri": (
        f"[A-Za-z][A-Za-z0-9+.-]*:(?://{_HOST}(?::[0-9]{{1,5}})?(?:/{_CHARACTER}*)*"
        f"|{_CHARACTER}+(?:/{_CHARACTER}*)*)"
        f"(?:\\?(?:{_CHARACTER}|[/?])*)?(?:#(?:{_CHARACTER}|[/?])*)?"
    ),
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
}
_LONGEST = {"hostname": 253, "email": 254}
KNOWN = tuple(_PATTERNS)


@cache
def format_strings(name: str) -> Regex:
    """Strings of the format of this name, one of `KNOWN`."""
    strings = parse_pattern(_PATTERNS[name], anchored=True)
    if name in _LONGEST:
        return both(strings, parse_pattern(f"[^\\n]{{1,{_LONGEST[name]}}}", anchored=True))
    return strings

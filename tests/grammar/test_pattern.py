"""Patterns mean what they mean elsewhere: Python's `re` is the judge where both know the syntax."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from octavo.base.errors import RequestError
from octavo.grammar.classes import property_class
from octavo.grammar.pattern import MAX_COUNT, MAX_LENGTH, MAX_NESTING, parse_pattern
from octavo.grammar.regex import NOTHING

ATOMS = ["a", "b", "0", "_", "é", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\.", r"\n"]
ATOMS += ["[ab]", "[^a]", "[a-c0-2]", r"[\w-]", r"[^\d\sé]", r"[\]\-^]", "B", "[A-B]", "😀"]
TEXTS = st.text("abAB0_ \n-]^.é😀", max_size=7)
COUNTS = ["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "*?", "+?", "{1,3}?"]


def wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(?:" + "|".join(parts) + ")"),
        st.tuples(inner, st.sampled_from(COUNTS)).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.tuples(st.sampled_from(["(?=%s)", "(?!%s)", "(?i:%s)", "(?P<x>%s)"]), inner).map(
            lambda pair: pair[0] % re.sub(r"\?P<\w+>", "", pair[1])
        ),
        inner.map("^{}".format),
        inner.map("{}$".format),
    )


PATTERNS = st.recursive(st.sampled_from(ATOMS), wrapped, max_leaves=7)


@settings(max_examples=400, deadline=None)
@given(PATTERNS, TEXTS, st.booleans(), st.sampled_from(["", "i", "s"]))
def test_patterns_match_what_they_do_in_python(pattern, text, anchored, flags):
    twin = re.sub(r"(?<!\\)\$", r"\\Z", pattern)
    if pattern.count("(?P<x>") > 1:
        assume(False)
    options = re.ASCII if flags == "" else re.ASCII | getattr(re, flags.upper())
    if "i" in flags + pattern:
        options &= ~re.ASCII  # which would fold only ASCII
        assume(text.isascii() or r"\w" not in pattern.lower())
    try:
        found = parse_pattern(pattern, anchored, flags)
    except RequestError as error:
        assert "not supported" in str(error)
        reject()
    want = (re.fullmatch if anchored else re.search)(twin, text, options)
    assert found.matches(text.encode()) == (want is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^a|b", "xb", True),
        ("^a|b", "xa", False),
        (r"^(?!.*foo)[a-z]+$", "barfoo", False),
        (r"^(?!.*foo)[a-z]+$", "barfo", True),
        (r"^(?=.{8,}$)(?=.*\d).*$", "abcdefg1", True),
        (r"^(?=.{8,}$)(?=.*\d).*$", "abcdef1", False),
        (r"^\uD83D\uDE00\x41\u{42}\cJ\0$", "😀AB\n\0", True),
        (r"^\s{3}$", "\u00a0\ufeff\u2028", True),
        (r"^.$", "\u2028", False),
        (r"^\d$", "٣", False),
        ("(?i)straße", "STRAßE", True),
        ("(?i)^k$", "\u212a", True),  # the sign of Kelvin
        ("(?i)^[^k]$", "K", False),
        ("a{,2}c{d{2}$", "aac{dd", True),
        (r"\A[\b]\z", "\b", True),
        (r"^[\w-.]+$", "a-.b", True),
        ("(?<year>[0-9]{4})", "in 1984", True),
        ("", "", True),
        ("|a", "x", True),
        ("(a$|b)c?$", "xa", True),
        ("(a$|b)c$", "xac", False),
    ],
)
def test_what_only_some_dialects_know(pattern, text, matches):
    assert parse_pattern(pattern).matches(text.encode()) == matches


@pytest.mark.parametrize("name", ["L", "Lu", "Letter", "gc=Nd", "General_Category=Zs", "P", "Cn"])
def test_a_property_holds_the_characters_of_its_category(name):
    short = {"Letter": "L"}.get(name, name.rpartition("=")[2])
    ranges = property_class(name)
    inside = {code for low, high in ranges for code in range(low, high + 1)}
    for code in (*range(0xD800), *range(0xE000, 0x110000)):
        assert (code in inside) == unicodedata.category(chr(code)).startswith(short), hex(code)


def test_a_property_and_its_opposite():
    assert parse_pattern(r"^\p{Lu}\P{Lu}\pL[\p{Nd}x]$").matches("Éé٣٣".encode()) is False
    assert parse_pattern(r"^\p{Lu}\P{Lu}\pL[\p{Nd}x]$").matches("Ééß٣".encode()) is True


def test_what_can_never_match_is_nothing():
    assert parse_pattern("a^b", anchored=True) == NOTHING


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "a ( that nothing closes (at position 0)"),
        ("ab)", "a ) that closes nothing (at position 2)"),
        ("x[a", "a [ that nothing closes (at position 1)"),
        ("a**", "a quantifier behind a quantifier"),
        ("a{2}{3}", "a quantifier behind a quantifier"),
        ("a++", "possessive"),
        ("*", "nothing to repeat"),
        ("^*", "nothing to repeat"),
        ("(?=a)+", "nothing to repeat"),
        (r"(a)\1", r"a backreference (\1) is not supported (at position 3)"),
        (r"(?<x>a)\k<x>", "a backreference"),
        ("(?P=x)", "a backreference"),
        ("(?<=a)", "lookbehind"),
        ("(?<!a)", "lookbehind"),
        ("(?>a)", "atomic"),
        (r"\ba", "a word's edge"),
        (r"\q", "no known escape"),
        (r"\01", "octal"),
        ("[]", "an empty class"),
        ("[^]", "an empty class"),
        ("[b-a]", "a range out of order"),
        ("[[:alpha:]]", "[:name:]"),
        ("a{2,1}", "counts out of order"),
        (f"a{{{MAX_COUNT + 1}}}", f"more than {MAX_COUNT}"),
        ("a{1," + "9" * 5000 + "}", f"more than {MAX_COUNT}"),
        (r"\u12", "hexadecimal"),
        (r"\u{110000}", "no character"),
        (r"\ud800", "alone is no character"),
        (r"\ud800\u0041", "alone is no character"),
        ("\ud800", "alone is no character"),
        (r"\p{Script=Greek}", "only general categories"),
        (r"\p{L", r"a \p{ that nothing closes"),
        ("(?x)a", "the flag 'x'"),
        ("(?#a)", "a comment"),
        ("(?", "no known group"),
        ("a\\", "the end, where an escape should be"),
        ("(" * (MAX_NESTING + 1), f"more than {MAX_NESTING} groups"),
        ("(a$)*", "repeating a group"),
        ("a?^b", "^ behind what may be empty"),
        ("a" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}"),
    ],
)
def test_what_is_refused_is_named(pattern, message):
    with pytest.raises(RequestError) as caught:
        parse_pattern(pattern)
    assert message in str(caught.value)
    assert caught.value.field == "regex"

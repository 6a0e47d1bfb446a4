"""Grammars that are written as text: Lark and EBNF."""

from __future__ import annotations

import pytest

from octavo.base.errors import RequestError
from octavo.grammar.ebnf import is_ebnf, parse_ebnf
from octavo.grammar.ebnf_text import ebnf_text
from octavo.grammar.lark import parse_lark
from octavo.grammar.regex import text
from octavo.grammar.rules import Choice, Grammar, Lexeme, Ref, Seq
from tests.grammar.bytewise import CALL, DONE, NAMES, accepts


def nested(schema: object) -> Grammar:
    """In place of a compiler of schemas: its `const` in any number of brackets."""
    value = text(str(schema["const"]))
    inside = Seq((Lexeme(text("[")), Ref("value"), Lexeme(text("]"))))
    return Grammar(Ref("value"), {"value": Choice((Lexeme(value), inside))})


def lark(source: str) -> Grammar:
    return parse_lark(source, NAMES.get, nested)


ARITHMETIC = r"""
// Sums of products, as one writes them.
start: expr NL?   # with a line end
?expr: expr "+" term -> add
     | expr "-" term
     | term
term.2: factor | term "*" factor
factor: NUMBER | "(" expr ")" | FUNCTION "(" [expr ("," expr)*] ")"
NUMBER: "0".."9"~1..3 ("." /[0-9]/+)?
FUNCTION.1: /[a-z]+/i & ~("sin" | "COS"i)
NL: "\n"
%import common (INT, WS_INLINE -> SPACE)
%ignore SPACE
"""


@pytest.mark.parametrize(
    ("sentence", "right"),
    [
        ("1+2*3-4", True),
        (" 1 + f( 2, 3.5 ) * g()\n", True),
        ("((1))", True),
        ("Tan(1)", True),
        ("sin(1)", False),
        ("Cos(1)", False),
        ("cost(1)", True),
        ("1+", False),
        ("+1", False),
        ("1234", False),
        ("", False),
    ],
)
def test_a_grammar_in_lark(sentence, right):
    assert accepts(lark(ARITHMETIC), sentence) == right


@pytest.mark.parametrize(
    ("source", "sentence", "right"),
    [
        ('start: <|call|> "x" <|done|>', [CALL, "x", DONE], True),
        ('start: <|call|> "x" <|done|>', [CALL, "x"], False),
        ('start: <|call|> "x"', ["<|call|>x"], False),
        (f"start: <[{CALL}]> <[{CALL}-{DONE}]>+", [CALL, DONE, CALL], True),
        (f"start: <[{CALL},97]>", ["a"], True),
        (f"start: <[{CALL},97]>", [DONE], False),
        ('start: "f" %json {"const": "1"} %json {"const": 2}', "f[[1]]2", True),
        ('start: "f" %json {"const": "1"} %json {"const": 2}', "f[[2]]1", False),
        ('start: "a"{2,3} "b"{,1} "c"{1,} "d"~2 "e"~0..1', "aabccdde", True),
        ('start: "a"{2,3} "b"{,1} "c"{1,} "d"~2 "e"~0..1', "abccdde", False),
        ('start: "aB"i', "Ab", True),
        (r'start: "\u00e9\n\"\\\ud83d\ude00\x41"', 'é\n"\\😀A', True),
        (r"start: /a\/b./s", "a/b\n", True),
        ("start: | A\nA: /a/", "", True),
        ('start: A | "b" // or\n | "c"\nA: "a"', "c", True),
        ('start: TEXT "</end>"\nTEXT: /(?s:.*)/ & ~/(?s:.*<.*)/', "one\ntwo</end>", True),
        ('start: TEXT "</end>"\nTEXT: /(?s:.*)/ & ~/(?s:.*<.*)/', "<one</end>", False),
        ('start: T\nT: "b" | "a" & "c"', "b", True),
        ('start: T\nT: ~"a" "b"', "cb", True),
        ('start: T\nT: ~"a" "b"', "ab", False),
        ('start: a\na: a a2 | a | "x"\na2: "y" | "z"', "xyzy", True),
        ('start: [b] "c"\n!b: "b" b?', "bbc", True),
        ('start: list\nlist: list "," "x" | "x"', "x,x,x", True),
        ('start: x | "q" %json {"const": 1}\nx: "x"', "q1", True),
        ('%import common.INT\n%import common.WORD -> W\nstart: INT "-" W', "12-ab", True),
        (f'start: "{"a" * 3000}"', "a" * 3000, True),
    ],
)
def test_what_lark_says(source, sentence, right):
    assert accepts(lark(source), sentence) == right


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("start: a", "line 1, column 8: a is not defined"),
        ("start: A", "line 1, column 8: A is no terminal that is defined"),
        ('a: "x"', "no rule named start"),
        ('start: "x" start', "start has no text that comes to an end"),
        ('start: X\nX: "a" & "b"', "start has no text that comes to an end"),
        ("start: start | start", "start is made of itself only"),
        ('start: a\na: b "x"|"y"\nb: a', "line 2, column 1: a rule that begins with itself"),
        ('start: a\na: b "x"|"y"\nb: a', "a -> b -> a"),
        ('start: "x"? start "y" | "z"', "start -> start"),
        ("start: A\nA: B\nB: A", "line 3, column 4: a terminal refers to itself: A -> B -> A"),
        ("start: A\n\nA: b", "line 3, column 4: b is no terminal"),
        ("start: A\nA: <|call|>", "a terminal is made of text only"),
        ('start: a & "b"\na: "x"', "& and ~ are of terminals, not of a"),
        ('start: "x', "line 1, column 8: '\"x' is not understood"),
        ("start: $", "is not understood"),
        ('start: ("a"', "'the end' where | or ) should be"),
        ('start: "a")', "line 1, column 11: ')' is not understood here"),
        ('start: "a"\nstart: "b"', "line 2, column 1: start is defined twice"),
        ("start: /a(?<=b)/", "line 1, column 8: regex: lookbehind"),
        ("start: /a/x", "the flag 'x'"),
        ('start[lazy]: "x"', "the attributes [lazy] are not supported"),
        ('start[suffix="y"]: "x"', "the attributes [suffix"),
        ('start: a{"x"}\na{b}: b', "is not understood"),
        ('start: "a"..', "a text must be behind .."),
        ('start: "b".."a"', "a range is of two characters in order"),
        ("start: <|no|>", "the model has no token <|no|>"),
        ("start: <[]>", "is no list of ids"),
        ("start: <[9-8]>", "in order"),
        ("start: <[1-99999]>", "at most 4096 ids"),
        ('start: %json {"const": 1, "const": 2}', "the name 'const' is twice"),
        ("start: %json {", "grammar is not JSON"),
        ("start: %json " + "[" * 65, "nested more than 64 deep"),
        ('start: "a"{99999}', "a count must be at most 10000"),
        ('start: "a"{2,1}', "counts out of order"),
        ('start: "a"*+', "a repetition behind a repetition"),
        ('%import other.X\nstart: "x"', "only common can be imported"),
        ('%import common.X\nstart: "x"', "common has no X here"),
        ('%import common\nstart: "x"', "%import common.NAME"),
        ('%declare X\nstart: "x"', "%declare is not supported"),
        ("start: " + "(" * 100, "more than 64 groups in groups"),
        ("start: A\nA: " + "~" * 100 + '"a"', "more than 64 groups in groups"),
        ("start: A\nA: ~", "~ of nothing"),
        (r'start: "\ud800"', "half of a surrogate pair"),
        (r'start: "\q"', r"\q is no known escape"),
        (r'start: "\u{110000}"', "is no character"),
        ("start: A0\n" + "".join(f"A{i}: A{i + 1}\n" for i in range(99)), "more than 64 terminals"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(source, message):
    with pytest.raises(RequestError) as caught:
        lark(source)
    assert message in str(caught.value)
    assert caught.value.field == "grammar"


JSON = r"""
root   ::= object  # as in many examples
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value
    ("," ws value)*
  )? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.mark.parametrize(
    ("sentence", "right"),
    [
        (r'{"a": [1, true, {"b":"c\n\u1234é"}], "c": -0.5}', True),
        ("{}", True),
        ("[]", False),
        ('{"a":}', False),
        ('{"a":"\n"}', False),
        ('{"a":1', False),
    ],
)
def test_a_recursive_grammar_in_ebnf(sentence, right):
    assert is_ebnf(JSON) and not is_ebnf(ARITHMETIC)
    assert accepts(parse_ebnf(JSON), sentence) == right


@pytest.mark.parametrize(
    ("source", "sentence", "right"),
    [
        ('root ::= "ab" "c" | "a" "bd"', "abd", True),  # no lexer takes the longest here
        ('root ::= "ab" "c" | "a" "bd" | "(" root ")"', "(abd)", True),
        ('root ::= [a-z]* "z" | "(" root ")"', "(abzz)", True),
        ('root ::= [a-z]* "z" | "(" root ")"', "(abzy)", False),
        ('root ::= ab-c? .\nab-c ::= [^a\\]] "-"', "b-x", True),
        ('root ::= ab-c? .\nab-c ::= [^a\\]] "-"', "]-x", False),
        ('root ::= "a"{2}\n | "b"{1,} \n | "c"{,2}', "cc", True),
        ('root ::= root "x" | "y"', "yxx", True),
        (
            "root ::= a12\na0 ::= [xy]\n" + "".join(f"a{i + 1} ::= a{i} a{i}\n" for i in range(12)),
            "xy" * 2048,
            True,
        ),
    ],
)
def test_what_ebnf_says(source, sentence, right):
    assert accepts(parse_ebnf(source), sentence) == right


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('foo ::= "a"', "no rule named root"),
        ("root ::= foo", "line 1, column 10: foo is not defined"),
        ('root ::= "a" root', "root has no text that comes to an end"),
        ('root ::= a\na ::= b "x"|"y"\nb ::= a', "a -> b -> a"),
        ('"a"', "line 1, column 1: '\"a\"' is not understood here"),
        ("root ::= [b-a]", "a range out of order"),
        ('root ::= "a" & "b"', "is not understood"),
    ],
)
def test_what_is_wrong_in_ebnf(source, message):
    with pytest.raises(RequestError) as caught:
        parse_ebnf(source)
    assert message in str(caught.value)
    assert caught.value.field == "grammar"


@pytest.mark.parametrize(
    ("source", "right", "wrong"),
    [
        ('start: T "x"\nT: /[^x]*/ & ~/.*é😀.*/', ["x", "é\n😀x", "😀éx"], ["aé😀x", "ax "]),
        ('start: "(" start ")" | /[ab]{2,3}/', ["((ab))", "bab"], ["((ab)", "b", "abab"]),
        ("start: A\nA: ~/[\ud7ff-\U0001f600]*/", ["a", "ab\n", "\U0001f601"], ["", "\ue000"]),
    ],
)
def test_a_grammar_written_as_ebnf_is_the_same(source, right, wrong):
    grammar = parse_ebnf(ebnf_text(lark(source)))
    assert [accepts(grammar, sentence) for sentence in right] == [True] * len(right)
    assert [accepts(grammar, sentence) for sentence in wrong] == [False] * len(wrong)

"""Answers as models write them, in every format, and what they say."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace
from tokenizers import AddedToken
from vocabularies import byte_level

from octavo.text.formats.description import Description
from octavo.text.formats.events import CallArguments, CallBegin, CallEnd, Event, Reasoning, Text
from octavo.text.formats.known import KNOWN
from octavo.text.formats.output_format import OutputFormat
from octavo.text.tokenizer import Tokenizer

# ruff: noqa: RUF001  (DeepSeek's markers have bars and spaces of their own)

FORMATS = {one.name: one for one in KNOWN}
TYPES = {"s": "string", "n": "number", "i": "integer", "b": "boolean", "l": "array", "o": "object"}


def tool(name: str, *keys: str) -> dict[str, Any]:
    """A tool; the first letter of an argument's name says its type."""
    properties = {key: {"type": TYPES[key[0]]} for key in keys}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("find", "s", "n", "l", "o", "s2"), tool("now"), tool("get-time_2", "s")]

# Format, prompt's state, answer, what it says: "text", ["reasoning"], (name, arguments) or
# (name, arguments, "cut").
GOLDENS: list[tuple[str, str, str, list[Any]]] = [
    ("hermes", "may", "Just text, <b> and { braces }.\n", ["Just text, <b> and { braces }.\n"]),
    ("hermes", "may", "", []),
    (
        "hermes",
        "may",
        "<think>\nA plan.\n\nOf two.\n</think>\n\nI look.\n\n<tool_call>\n"
        '{"name": "find", "arguments": {"s": "}{\\"]\\u00e9 é\\n", "o": {"a": [{"b": {}}, []]}}}'
        '\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\nDone.',
        [
            ["A plan.\n\nOf two."],
            "I look.",
            ("find", '{"s": "}{\\"]\\u00e9 é\\n", "o": {"a": [{"b": {}}, []]}}'),
            ("now", "{}"),
            "Done.",
        ],
    ),
    (
        "hermes",
        "closed",
        '<tool_call>{"arguments":{"l":[{"a":1},{"a":2}]},"name":"find"}</tool_call>'
        '<tool_call>{"name":"now"}</tool_call><tool_call>{"name":"now","arguments":null}'
        '</tool_call> <tool_call>{"name": "now", "arguments": "{\\"s\\": \\"\\u00e9\\"}"}',
        [
            ("find", '{"l":[{"a":1},{"a":2}]}'),
            ("now", "{}"),
            ("now", "{}"),
            ("now", '{"s": "é"}'),
        ],
    ),
    (  # not a tool, not JSON, no arguments, and a call behind all that
        "hermes",
        "closed",
        '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call> <tool_call>{"name": \n'
        '<tool_call>[1]</tool_call> <tool_call>{"name": "now", "arguments": [1]}</tool_call>'
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
        [
            '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call> <tool_call>{"name": \n'
            '<tool_call>[1]</tool_call> <tool_call>{"name": "now", "arguments": [1]}</tool_call>',
            ("now", "{}"),
        ],
    ),
    (  # arguments that break are given as they are, up to the end of the call
        "hermes",
        "closed",
        '<tool_call>{"name": "find", "arguments": {"s": "a\nb", "n": .5}}</tool_call> And?',
        [("find", '{"s": "a\\nb", "n": .5}}'), "And?"],
    ),
    (
        "hermes",
        "closed",
        'Wait. <tool_call>{"name": "find", "arguments": {"s": "a<tool_call>b</tool_call>", "n": 1',
        ["Wait.", ("find", '{"s": "a<tool_call>b</tool_call>", "n": 1', "cut")],
    ),
    ("hermes", "closed", 'A <tool_call>{"name": "fi', ['A <tool_call>{"name": "fi']),
    ("hermes", "closed", "A <tool_cal", ["A <tool_cal"]),
    ("hermes", "may", "a <think>b</think>", ["a <think>b</think>"]),
    ("hermes", "open", "thought</think>Answer", [["thought"], "Answer"]),
    ("hermes", "open", "<think>thought</think>\n\n", [["<think>thought"]]),
    (
        "qwen3_coder",
        "closed",
        "Ok.\n<tool_call>\n<function=find>\n<parameter=s>\n  two\nlines <a> \n</parameter>\n"
        "<parameter=n>\n-1.5\n</parameter>\n<parameter=l>\n[1, {}]\n</parameter>\n<parameter=s2>\n"
        "12\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
        "</tool_call>",
        [
            "Ok.",
            ("find", '{"s": "  two\\nlines <a> ", "n": -1.5, "l": [1, {}], "s2": "12"}'),
            ("now", "{}"),
        ],
    ),
    (
        "glm45",
        "may",
        "<think>Hm.</think>\nSure.\n<tool_call>find\n<arg_key>s</arg_key>\n<arg_value>a\n b"
        '</arg_value>\n<arg_key>o</arg_key>\n<arg_value>{"k": [null]}</arg_value>\n</tool_call>\n'
        "<tool_call>now\n</tool_call>",
        [["Hm."], "Sure.", ("find", '{"s": "a\\n b", "o": {"k": [null]}}'), ("now", "{}")],
    ),
    (
        "glm45",
        "closed",
        "<tool_call>nothing\n</tool_call> <tool_call>now and then",
        ["<tool_call>nothing\n</tool_call> <tool_call>now and then"],
    ),
    (
        "llama3_json",
        "closed",
        '{"name": "find", "parameters": {"s": "a; b"}}; {"name": "now", "parameters": {}}',
        [("find", '{"s": "a; b"}'), ("now", "{}")],
    ),
    (
        "llama3_json",
        "closed",
        '<|python_tag|>{"type": "function", "name": "get-time_2", "parameters": {"s": "CET"}}',
        [("get-time_2", '{"s": "CET"}')],
    ),
    (
        "llama3_json",
        "closed",
        '{"name": "Ada", "parameters": 3}\nand {"name": "now", "parameters": {}}',
        ['{"name": "Ada", "parameters": 3}\nand {"name": "now", "parameters": {}}'],
    ),
    (
        "pythonic",
        "closed",
        """[find(s='it\\'s, "é" \\x41', n=-1e3, l=[True, (None, 'x'),], o={'a': {"b": []}}), """
        "now()]",
        [
            (
                "find",
                '{"s": "it\'s, \\"é\\" A", "n": -1000.0, "l": [true, [null, "x"]], '
                '"o": {"a": {"b": []}}}',
            ),
            ("now", "{}"),
        ],
    ),
    ("pythonic", "closed", "[1, 2] and [now()]", ["[1, 2] and [now()]"]),
    (
        "lfm2",
        "closed",
        'I see.<|tool_call_start|>[get-time_2(s="CET")]<|tool_call_end|>Then.',
        ["I see.", ("get-time_2", '{"s": "CET"}'), "Then."],
    ),
    (
        "olmo3",
        "closed",
        '<function_calls>\nfind(s="a", o={"b": null})\nnow()\n</function_calls>',
        [("find", '{"s": "a", "o": {"b": null}}'), ("now", "{}")],
    ),
    (
        "mistral",
        "may",
        '[THINK]So.[/THINK]Yes[TOOL_CALLS] [{"name": "find", "arguments": {"n": 1}, "id": '
        '"a1b2c3d4e"}, {"name": "now", "arguments": {}, "id": "a1b2c3d4f"}]',
        [["So."], "Yes", ("find", '{"n": 1}'), ("now", "{}")],
    ),
    (
        "mistral_args",
        "closed",
        'Yes.[TOOL_CALLS]find[ARGS]{"s": "[ARGS]"}[TOOL_CALLS]now[ARGS][TOOL_CALLS]'
        'get-time_2[ARGS]{"s": "x"}[TOOL_CALLS]now{}',
        [
            "Yes.",
            ("find", '{"s": "[ARGS]"}'),
            ("now", "{}"),
            ("get-time_2", '{"s": "x"}'),
            ("now", "{}"),
        ],
    ),
    (
        "deepseek_v3",
        "open",
        "Hm.\n</think>\n\nI do.<｜tool▁calls▁begin｜>"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
        'find\n```json\n{"s": "```"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function'
        "<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [["Hm."], "I do.", ("find", '{"s": "```"}'), ("now", "{}")],
    ),
    (
        "deepseek_v31",
        "closed",
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>{"n": 2}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [("find", '{"n": 2}'), ("now", "{}")],
    ),
    (
        "kimi_k2",
        "closed",
        "Ok <|tool_calls_section_begin|><|tool_call_begin|>functions.find:0"
        '<|tool_call_argument_begin|>{"n": 2}<|tool_call_end|><|tool_call_begin|>functions.now:1'
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        ["Ok", ("find", '{"n": 2}'), ("now", "{}")],
    ),
    (
        "openai",
        "closed",
        "<|channel|>analysis<|message|>Think. <b><|end|><|start|>assistant<|channel|>commentary"
        "<|message|>I will look.<|end|><|start|>assistant<|channel|>analysis<|message|>More.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.find <|constrain|>json<|message|>"
        '{"s":"x"}<|call|>',
        [["Think. <b>"], "I will look.", ["More."], ("find", '{"s":"x"}')],
    ),
    (
        "openai",
        "closed",
        "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>42"
        "<|return|>",
        [["Easy."], "42"],
    ),
    (
        "openai",
        "closed",
        " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
        [("now", "{}")],
    ),
    (
        "functiongemma",
        "closed",
        'See: <start_function_call>call:find{l:[1,<escape>a,"}b<escape>],o:{k v:{},t:true},'
        "s:<escape><escape>}<end_function_call><start_function_call>call:now{}<end_function_call>",
        [
            "See:",
            ("find", '{"l": [1, "a,\\"}b"], "o": {"k v": {}, "t": true}, "s": ""}'),
            ("now", "{}"),
        ],
    ),
    (
        "gemma4",
        "may",
        '<|channel>thought\nWell.<channel|><|tool_call>call:find{s:<|"|>a<|"|>,n:1.5}<tool_call|>',
        [["Well."], ("find", '{"s": "a", "n": 1.5}')],
    ),
    (
        "gemma3",
        "closed",
        "Let me.\n```tool_code\nfind(s='a', n=2)\n```\n```python\nx()\n```",
        ["Let me.", ("find", '{"s": "a", "n": 2}'), "```python\nx()\n```"],
    ),
    (
        "phi4_mini_json",
        "closed",
        '<|tool_call|>[{"name": "find", "arguments": {"n": 1}}, {"name": "now", "arguments": {}}]'
        "<|/tool_call|>",
        [("find", '{"n": 1}'), ("now", "{}")],
    ),
    (
        "phi4_mini_json",
        "closed",
        'A function functools[{"name": "now", "arguments": {}}]',
        ["A function", ("now", "{}")],
    ),
    (
        "granite",
        "closed",
        'Ok<|tool_call|>[{"name": "now", "arguments": {}}]',
        ["Ok", ("now", "{}")],
    ),
    (
        "hunyuan_a13b",
        "may",
        "<think>a</think><tool_calls>[\n"
        '    {"name": "find", "arguments": {"n": 1}}\n]</tool_calls>',
        [["a"], ("find", '{"n": 1}')],
    ),
    (
        "internlm",
        "closed",
        'A.<|action_start|><|plugin|>\n{"name": "now", "parameters": {}}<|action_end|>\n',
        ["A.", ("now", "{}")],
    ),
    (
        "command_r7b",
        "may",
        "<|START_THINKING|>I plan.<|END_THINKING|><|START_ACTION|>[\n"
        '    {"tool_call_id": "0", "tool_name": "find", "parameters": {"n": 1}},\n'
        '    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        [["I plan."], ("find", '{"n": 1}'), ("now", "{}")],
    ),
    (
        "command_r7b",
        "closed",
        "<|START_RESPONSE|>So it is.<|END_RESPONSE|>",
        ["So it is."],
    ),
    (
        "seed_oss",
        "may",
        "<seed:think>a\nb</seed:think>\n<seed:tool_call>\n<function=find>\n<parameter=s>x\n"
        "</parameter>\n</function>\n</seed:tool_call>",
        [["a\nb"], ("find", '{"s": "x\\n"}')],
    ),
    (
        "minimax_m2",
        "open",
        'a</think>\n\n<minimax:tool_call>\n<invoke name="find">\n<parameter name="s">x</parameter>'
        '\n<parameter name="n">3</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n'
        "</minimax:tool_call>",
        [["a"], ("find", '{"s": "x", "n": 3}'), ("now", "{}")],
    ),
]
NAMES = [f"{format}-{number}" for number, (format, *_) in enumerate(GOLDENS)]


def expected(parts: list[Any]) -> list[Event]:
    """The events, with ids as `numbered` gives them."""
    events: list[Event] = []
    calls = 0
    for part in parts:
        if isinstance(part, str):
            events.append(Text(part))
        elif isinstance(part, list):
            events.append(Reasoning(part[0]))
        else:
            events.append(CallBegin(calls, numbered(part[0], calls), part[0]))
            events.append(CallArguments(calls, part[1]))
            events += [CallEnd(calls)] * (len(part) == 2)
            calls += 1
    return events


def numbered(name: str, index: int) -> str:
    return f"{name}/{index}"


def vocabulary(*added: str, special: bool = False) -> Tokenizer:
    """Bytes and a few words, and these tokens."""
    backend = byte_level()
    tokens = [AddedToken(token, special=special, normalized=False) for token in added]
    (backend.add_special_tokens if special else backend.add_tokens)(tokens)
    return Tokenizer(backend)


def markers(format: Description) -> list[str]:
    """The delimiters of a format that look like tokens."""
    pattern = re.compile(r"<[^<>\s{}]+>|\[/?[A-Z_]+\]")
    found = {marker for one in format.literals for marker in pattern.findall(one)}
    return sorted(found - {"<parameter=>", "<function=>"})


def bound(
    format: Description, marked: bool, special: bool = False
) -> tuple[OutputFormat, Tokenizer]:
    """With its markers as tokens of the vocabulary, or as text."""
    tokenizer = vocabulary(*(markers(format) if marked else []), special=special)
    return OutputFormat(format, tokenizer), tokenizer


def without(events: list[Event], hidden: list[str]) -> list[Event]:
    """Events as they are where these markers have no text."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, Text | Reasoning | CallArguments):
            text = event.text
            for marker in hidden:
                text = text.replace(marker, "")
            event = replace(event, text=text)
            if not text:
                continue
        found.append(event)
    return found

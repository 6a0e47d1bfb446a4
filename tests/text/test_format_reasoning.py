"""Where reasoning begins and ends: {the template opens it, the model may, it is off} x {closed,
never closed, cut}, and how many tokens it has."""

from __future__ import annotations

import random

import pytest
from chat_styles import DEEPSEEK_V31, GLM45, HARMONY, QWEN3, QWEN3_THINKING, STYLES
from format_goldens import FORMATS, GOLDENS, NAMES, TOOLS, bound, vocabulary
from test_format_goldens import assembled, cuttings, in_pieces, parsed, thinking

from octavo.base.output import Delta
from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.base.structured import Marker
from octavo.text.assembler import Assembler
from octavo.text.chat_template import ChatTemplate
from octavo.text.formats.choose import choose
from octavo.text.formats.events import Reasoning, Text

CHAT = [{"role": "user", "content": "Is <think> or </think> a word?"}]
ENDS = {  # of an answer, behind what opens the reasoning
    "closed": ("why\n</think>\n\nso", [Reasoning("why"), Text("so")]),
    "unclosed": ("why so\n", [Reasoning("why so\n")]),
    "truncated": ("why </thi", [Reasoning("why </thi")]),
}


def prompt(template: str, **options: object) -> str:
    return ChatTemplate(template, {"bos_token": ""}).render(CHAT, **options)


@pytest.mark.parametrize("marked", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("begin", ["template", "model", "off"])
def test_matrix(begin, end, marked):
    template = QWEN3_THINKING if begin == "template" else QWEN3
    tokenizer = vocabulary(*(["<think>", "</think>"] if marked else []))
    format = choose(tokenizer, ChatTemplate(template, {}))
    text = prompt(template, enable_thinking=begin != "off")
    found = format.thinking(text)
    assert found.state == {"template": "open", "model": "may", "off": "closed"}[begin]
    assert format.thinking(tokenizer.encode(text)) == found
    assert found.closes == Marker("</think>", tokenizer.added_tokens.get("</think>"))

    answer, events = ENDS[end]
    if begin == "model":
        answer = "<think>\n" + answer
    elif begin == "off":
        events = [Text(answer)]
    ids = tokenizer.encode(answer)
    for pieces in cuttings(ids, random.Random(0)):
        parser = format.parser(TOOLS, found)
        deltas = list(assembled(tokenizer, pieces))
        got = [event for delta in deltas for event in parser.feed(delta)]
        kinds = (Reasoning, Text)
        joined = [k("".join(e.text for e in got if isinstance(e, k))) for k in kinds]
        assert [one for one in joined if one.text] == events
    for pieces in cuttings(answer, random.Random(0)) if not marked else ():
        assert parsed(format, found.state, in_pieces(pieces)) == events


@pytest.mark.parametrize(
    ("template", "options", "state"),
    [
        (QWEN3, {"enable_thinking": True}, "may"),
        (GLM45, {}, "may"),
        (GLM45, {"enable_thinking": False}, "closed"),
        (DEEPSEEK_V31, {}, "closed"),
        (DEEPSEEK_V31, {"thinking": True}, "open"),
        (STYLES["deepseek_r1"][0], {}, "open"),
    ],
)
def test_state_of_a_prompt(template, options, state):
    format = choose(vocabulary(), ChatTemplate(template, {"bos_token": ""}))
    assert format.thinking(prompt(template, **options)).state == state


def test_state_where_a_message_is_continued():
    format = choose(vocabulary(), ChatTemplate(QWEN3, {}))
    template = ChatTemplate(QWEN3, {})
    for begun, state in (
        ("<think>\nwell", "open"),
        ("It is", "closed"),
        ("<think>a</think>", "closed"),
    ):
        chat = [*CHAT, {"role": "assistant", "content": begun}]
        text = template.render(chat, add_generation_prompt=False, continue_final_message=True)
        assert format.thinking(text).state == state


def test_formats_without_one_block_of_reasoning():
    for name, template in (("hermes", STYLES["hermes"][0]), ("openai", HARMONY)):
        format = choose(vocabulary(), ChatTemplate(template, {}))
        assert (format.name, format.thinking("x")) == (name, None)


@pytest.mark.parametrize("special", [False, True], ids=["shown", "hidden"])
@pytest.mark.parametrize(("name", "state", "answer", "parts"), GOLDENS, ids=NAMES)
def test_reasoning_tokens_are_those_between_the_markers(name, state, answer, parts, special):
    """Markers that are tokens: the ids say it."""
    format, tokenizer = bound(FORMATS[name], marked=True, special=special)
    ids = tokenizer.encode(answer)
    wanted = between(tokenizer, format, ids, state)
    for pieces in cuttings(ids, random.Random(1), everywhere=False):
        parser = format.parser(TOOLS, thinking(state))
        for delta in assembled(tokenizer, pieces):
            parser.feed(delta)
        assert parser.reasoning_tokens == wanted


def between(tokenizer, format, ids, state) -> int:
    """By brute force."""
    reasoning = format.description.reasoning
    if reasoning is None:
        return 0
    opens, closes = map(tokenizer.encode, reasoning)
    count, at, inside = 0, 0, state == "open"
    may = state == "may" or format.description.reopens
    while at < len(ids):
        if inside and ids[at : at + len(closes)] == closes:
            inside, at = False, at + len(closes)
        elif not inside and may and ids[at : at + len(opens)] == opens:
            inside, at, may = True, at + len(opens), format.description.reopens
        else:
            count += inside
            at += 1
            may = may and (inside or format.description.reopens)
    return count


def test_reasoning_tokens_where_markers_are_text():
    """A token belongs to what its first character belongs to."""
    format, tokenizer = bound(FORMATS["hermes"], marked=False)
    answer = "<think>one 😀 two</think>three"
    ids = tokenizer.encode(answer)
    starts = [len(tokenizer.decode(ids[:i]).encode()) for i in range(len(ids))]
    begin, end = (len(answer.partition(mark)[0].encode()) for mark in ("one", "</think>"))
    wanted = sum(begin <= start < end for start in starts)
    for pieces in cuttings(ids, random.Random(2)):
        parser = format.parser(TOOLS, thinking("may"))
        for delta in assembled(tokenizer, pieces):
            parser.feed(delta)
        assert parser.reasoning_tokens == wanted


def test_the_end_of_an_answer_is_no_reasoning():
    """Reasoning that never closes; the last token ended the request and has no text."""
    tokenizer = vocabulary("<think>", "</think>", "<end>")
    format = choose(tokenizer, ChatTemplate(QWEN3, {}))
    ids = tokenizer.encode("why<end>")
    request = Request(request_id="r", prompt_token_ids=[0], params=SamplingParams(max_tokens=99))
    delta = Delta(request_id="r", token_ids=ids, finish_reason="stop")
    parser = format.parser(TOOLS, thinking("open"))
    assert parser.feed(Assembler(request, tokenizer).feed(delta)) == [Reasoning("why")]
    assert parser.reasoning_tokens == len(ids) - 1

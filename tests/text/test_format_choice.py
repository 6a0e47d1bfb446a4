"""Formats are found by the chat template, prove themselves, and are refused where they do not."""

from __future__ import annotations

import re

import pytest
from chat_styles import CHATML, HERMES, QWEN3, STYLES
from format_goldens import FORMATS, markers, vocabulary

from octavo.base.errors import ConfigError
from octavo.text.chat_template import ChatTemplate
from octavo.text.formats.choose import choose
from octavo.text.formats.output_format import OutputFormat
from octavo.text.formats.probe import Probe
from octavo.text.formats.prove import TOOLS, prove, shown_by
from octavo.text.renderer import Renderer

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
PLAIN = vocabulary()


def chosen(template: str, parser: str = "auto", tokens: list[str] | None = None) -> OutputFormat:
    tokenizer = vocabulary(*tokens) if tokens else PLAIN
    return choose(tokenizer, ChatTemplate(template, NAMES), parser)


@pytest.mark.parametrize("style", STYLES)
def test_public_styles_are_known(style):
    template, name = STYLES[style]
    for tokens in (markers(FORMATS[name]), None):
        format = chosen(template, tokens=tokens)
        assert (format.name, format.tools_refused) == (name, None)
    assert format.reasons == ("think" in template.lower() or name == "openai")


@pytest.mark.parametrize("style", STYLES)
def test_a_broken_delimiter_is_refused(style):
    """Each literal of the template's own way, changed in the template alone."""
    template, name = STYLES[style]
    tried = 0
    for literal in sorted({word for one in literals_of(name) for word in one.split()}):
        if len(literal) < 3 or literal not in template or not shown(template, literal):
            continue
        tried += 1
        broken = template.replace(literal, "§" + literal[1:])
        format = chosen(broken, name)
        assert format.tools_refused, literal
        assert format.parser(TOOLS) is not None  # reads reasoning and text all the same
    assert tried or name == "pythonic"


def literals_of(name: str) -> list[str]:
    calls = FORMATS[name].calls
    keys = [f'"{key}"' for one in calls for key in one.keys[:2]]
    return [*keys, *(literal for one in calls for literal in one.literals)]


def shown(template: str, literal: str) -> bool:
    """Whether the template writes the literal in a turn of calls."""
    probe = Probe(ChatTemplate(template, NAMES))
    turn = probe.calls([("probe_all", {"text": "a", "flag": True})], TOOLS)
    return turn is not None and literal in turn


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (CHATML.replace("turn(m)", "m.content"), "does not show calls"),
        (HERMES.replace("| tojson }}}", "| upper }}}"), "reads|came back"),
        (HERMES.replace("call.function.arguments | tojson", "'{}'"), "reads|came back"),
        (HERMES.replace("</tool_call>", "{% if loop.first %}</tool_call>{% endif %}*"), "left"),
    ],
)
def test_what_cannot_be_read_has_a_reason(template, reason):
    for parser in ("hermes", "auto"):
        format = chosen(template, parser)
        if parser == "hermes" and reason == "does not show calls":
            assert format.tools_refused is None  # the operator says so, and it reads what it writes
        else:
            assert re.search(reason, format.tools_refused)


def test_a_template_that_writes_arguments_as_they_come_is_given_text():
    for parser in ("hermes", "auto"):
        assert chosen(HERMES.replace("| tojson }}}", "}}}"), parser).tools_refused is None


@pytest.mark.parametrize(
    ("style", "changes"),
    [
        ("hermes", {"<tool_call>": "<|act|>", "</tool_call>": "<|/act|>"}),
        ("hermes", {'"name"': '"tool"', '"arguments"': '"input"', "tool_call>": "do>"}),
        ("hunyuan", {"<tool_calls>": "CALLS:", "</tool_calls>": ":CALLS"}),
        ("mistral_args", {"[TOOL_CALLS]": "@@call ", "[ARGS]": " with "}),
        ("deepseek_v31", {"｜": "|", "tool▁": "fn_"}),  # noqa: RUF001
        ("qwen3_coder", {"<function=": "<fn ", "<parameter=": "<arg ", "</parameter": "</arg"}),
        ("glm45", {"arg_key": "k", "arg_value": "v", "tool_call>": "c>"}),
        ("olmo3", {"function_calls": "python"}),
        ("function_gemma", {"start_function_call": "begin", "<escape>": "<q>"}),
        ("llama3", {'"parameters"': '"args"'}),
    ],
)
def test_unknown_delimiters_are_read_off_the_template(style, changes):
    template, _ = STYLES[style]
    for old, new in changes.items():
        assert old in template
        template = template.replace(old, new)
    format = chosen(template)
    assert (format.name, format.tools_refused) == ("inferred", None)


def test_unknown_markers_of_reasoning_are_read_off_the_template():
    template = QWEN3.replace("<think>", "<|plan|>").replace("</think>", "<|/plan|>")
    format = chosen(template)
    assert format.description.reasoning == ("<|plan|>", "<|/plan|>")
    assert not chosen(HERMES).reasons


def test_names_of_parsers():
    template = ChatTemplate(QWEN3, NAMES)
    assert choose(PLAIN, template, "qwen3").name == "hermes"
    assert not choose(PLAIN, template, "hermes", "none").reasons
    assert choose(PLAIN, template, "auto", "mistral").description.reasoning == (
        "[THINK]",
        "[/THINK]",
    )
    with pytest.raises(ConfigError, match="tool_call_parser 'x' is unknown; there are auto, "):
        choose(PLAIN, template, "x")
    with pytest.raises(ConfigError, match="reasoning_parser 'x' is unknown; there are auto, none"):
        choose(PLAIN, template, "auto", "x")
    assert "no chat template" in choose(PLAIN, None).tools_refused
    assert Renderer(PLAIN, template, "qwen3").format.name == "hermes"


def test_every_format_reads_what_it_writes():
    """Those whose models' templates show no calls are proved by this alone."""
    template = CHATML.replace("turn(m)", "m.content")
    for name in FORMATS:
        assert chosen(template, name).tools_refused is None, name
        assert chosen(template, name, markers(FORMATS[name])).tools_refused is None, name


def test_a_proof_says_what_is_wrong():
    probe = Probe(ChatTemplate(HERMES, NAMES))
    why = prove(FORMATS["llama3_json"], shown_by(probe), PLAIN)
    assert re.match(r"calls of \['probe_all'\] came back as \[\], read from '<tool_call>", why)

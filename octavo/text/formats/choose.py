"""Which format a model's answers have."""

from __future__ import annotations

import msgspec

from octavo.base.errors import ConfigError
from octavo.text.chat_template import ChatTemplate
from octavo.text.formats.description import Description
from octavo.text.formats.infer import infer
from octavo.text.formats.known import KNOWN, REASONING
from octavo.text.formats.output_format import OutputFormat
from octavo.text.formats.probe import Probe
from octavo.text.formats.prove import NOT_SHOWN, fits, prove, shown_by, unread
from octavo.text.formats.write import write
from octavo.text.tokenizer import Tokenizer

AUTO = "auto"
NONE = "none"
TOOL_CALL_PARSERS = sorted({name for one in KNOWN for name in (one.name, *one.aliases)})
REASONING_PARSERS = sorted(REASONING)

Pair = tuple[str, str]


def choose(
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    tool_call_parser: str = AUTO,
    reasoning_parser: str = AUTO,
) -> OutputFormat:
    """The format of these names, or for "auto" the one that fits the template. Whether calls can
    be read is proved, see `OutputFormat.tools_refused`.

    Raises:
        ConfigError: a name is unknown.
    """
    named = _named(tool_call_parser)
    pair = _reasoning(reasoning_parser, named, tokenizer, template)
    if template is None:
        refused: str | None = "the model has no chat template"
        return OutputFormat(_whole(named, pair), tokenizer, tools_refused=refused)
    probe = Probe(template, pair)
    found, refused = _calls(named, probe, tokenizer)
    if pair is None and reasoning_parser == AUTO:
        pair = probe.reasoning
    description = _whole(found, pair)
    if found is not None and found.reopens and reasoning_parser != NONE:
        description = found
    return OutputFormat(description, tokenizer, header=probe.header, tools_refused=refused)


def _whole(found: Description | None, pair: Pair | None) -> Description:
    """With the markers of the model's reasoning."""
    return msgspec.structs.replace(found or Description(name="text"), reasoning=pair)


def _named(name: str) -> Description | None:
    if name == AUTO:
        return None
    for one in KNOWN:
        if name in (one.name, *one.aliases):
            return one
    known = ", ".join(TOOL_CALL_PARSERS)
    raise ConfigError(f"tool_call_parser {name!r} is unknown; there are auto, {known}")


def _reasoning(
    name: str, named: Description | None, tokenizer: Tokenizer, template: ChatTemplate | None
) -> Pair | None:
    """Markers that the name says, or that the template or the vocabulary has."""
    if name == NONE:
        return None
    if name in REASONING:
        return REASONING[name]
    if name != AUTO:
        known = ", ".join(REASONING_PARSERS)
        raise ConfigError(f"reasoning_parser {name!r} is unknown; there are auto, none, {known}")
    own = named.reasoning if named is not None else None
    source = template.source if template is not None else ""
    for pair in (*([own] if own else []), *REASONING.values()):
        markers = [marker.strip() for marker in pair]
        if all(marker in source or marker in tokenizer.added_tokens for marker in markers):
            return pair
    return None


def _calls(
    named: Description | None, probe: Probe, tokenizer: Tokenizer
) -> tuple[Description | None, str | None]:
    """The format of calls, and why they cannot be read."""
    render = shown_by(probe)
    if named is not None:
        why = prove(named, render, tokenizer)
        if why == NOT_SHOWN:  # then at least it reads what it writes itself
            why = prove(named, lambda calls: write(named.calls[0], calls), tokenizer)
        return named, why
    inferred = infer(probe)
    own = Description(name="inferred", calls=(inferred,)) if inferred is not None else None
    why = unread(render)
    for tried, meant in (*_candidates(), *([(own, own)] if own else [])):
        if fits(tried, render, tokenizer):
            why = prove(tried, render, tokenizer)
            if why is None:
                return meant, None
    return None, why


def _candidates() -> list[tuple[Description, Description]]:
    """Known formats, and what is meant by them. Those whose first way of writing calls fits come
    first: grammars write in that."""
    first = [(msgspec.structs.replace(one, calls=one.calls[:1]), one) for one in KNOWN]
    return [*first, *((one, one) for one in KNOWN)]

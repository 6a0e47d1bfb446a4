"""What a format's grammar lets a model write is read back as right calls, and only that is let."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from format_goldens import FORMATS, markers, numbered, vocabulary
from jsonschema import Draft202012Validator
from test_format_goldens import thinking

from octavo.base.errors import RequestError
from octavo.base.structured import StructuredOutputsParams
from octavo.grammar.compile import compile_structure
from octavo.grammar.completion import Completion
from octavo.grammar.llguidance import LLGuidance
from octavo.grammar.vocabulary import Vocabulary
from octavo.text.assembler import TextDelta
from octavo.text.formats.events import CallArguments, CallBegin, CallEnd, Text, merged
from octavo.text.formats.output_format import OutputFormat
from octavo.text.formats.write import write

PROPERTIES = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "unit": {"type": "string", "enum": ["c", "f"]},
    "sure": {"type": "boolean"},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            },
        },
    }
    for name, properties, required in (("weather", PROPERTIES, ["days"]), ("now", {}, []))
]
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
NOW = {"type": "function", "function": {"name": "now"}}
STEPS = 30  # tokens of a random walk, then the shortest way to the end
COMMON = ("hermes", "llama3_json", "minimax_m2", "mistral", "openai", "functiongemma", "glm45")
CASES = [(name, marked) for name in FORMATS for marked in (True, False)]


class Room:
    """A format, and grammars in a vocabulary of bytes and its markers."""

    def __init__(self, name: str, marked: bool) -> None:
        tokenizer = vocabulary(*(markers(FORMATS[name]) if marked else []), special=True)
        end = tokenizer.token_id("<|im_end|>")
        tokens = [tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)]
        self.tokenizer = tokenizer
        self.vocabulary = Vocabulary(tokens, tokenizer.special_ids, (end,))
        self.format = OutputFormat(FORMATS[name], tokenizer)
        self._backend = LLGuidance(self.vocabulary)

    def rules(self, choice, parallel=True):
        text = self.format.grammar(TOOLS, choice, parallel)
        return compile_structure(
            StructuredOutputsParams(grammar=text), None, self.tokenizer.token_id
        )

    def matcher(self, choice, parallel=True):
        return self._backend.compile(self.rules(choice, parallel)).matcher()

    def accepts(self, answer, choice, parallel=True) -> bool:
        matcher = self.matcher(choice, parallel)
        ids = self.tokenizer.encode(answer)
        return all(matcher.consume(id) for id in ids) and matcher.is_whole

    def walk(self, choice, parallel, source: random.Random) -> list[int]:
        """A random answer."""
        rules = self.rules(choice, parallel)
        matcher, completion = self.matcher(choice, parallel), Completion(rules, self.vocabulary)
        position, ids = completion.start, []
        mask = np.zeros(self.vocabulary.words, dtype=np.int32)
        while len(ids) < STEPS:
            matcher.mask(mask)
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            token_id = int(source.choice(np.flatnonzero(bits)))
            if token_id in self.vocabulary.eos_ids:
                return ids
            assert matcher.consume(token_id)
            position = completion.push(position, token_id)
            ids.append(token_id)
        return ids + completion.tokens(position)

    def events(self, ids):
        data = b"".join(self.tokenizer.token_bytes(id) for id in ids)
        ends, length = [], 0
        for id in ids:
            length += len(self.tokenizer.token_bytes(id))
            ends.append(len(data[:length].decode(errors="ignore")))
        delta = TextDelta(text=data.decode(), token_ids=ids, ends=ends, finish_reason="stop")
        return merged(self.format.parser(TOOLS, thinking("closed"), numbered).feed(delta))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "marked"), CASES)
def test_random_answers_are_right_calls(name, marked):
    room, source = Room(name, marked), random.Random(name)
    for choice, parallel in (("required", True), ("required", False), (NOW, True), ("auto", True)):
        for _ in range(1 + (choice == "auto")):
            ids = room.walk(choice, parallel, source)
            events = room.events(ids)
            names = [event.name for event in events if isinstance(event, CallBegin)]
            case = (choice, room.tokenizer.decode(ids, skip_special_tokens=False), events)
            if choice == "required":
                assert names and (parallel or len(names) == 1), case
            elif choice == NOW:
                assert names == ["now"], case
            if choice != "auto":
                assert not any(isinstance(event, Text) for event in events), case
            assert sum(isinstance(event, CallEnd) for event in events) == len(names), case
            for event in events:
                if isinstance(event, CallArguments):
                    schema = SCHEMAS[names[event.index]]
                    assert Draft202012Validator(schema).is_valid(json.loads(event.text)), case


@pytest.mark.parametrize(("name", "marked"), [one for one in CASES if one[0] in COMMON])
def test_which_answers_are_let(name, marked):
    room, format = Room(name, marked), FORMATS[name]
    several = format.calls[0].between is not None
    here, now = ("weather", {"days": 2, "unit": "c"}), ("now", {})

    def written(*calls):
        return write(format.calls[0], calls).replace("'", '"')

    free = format.answers + "Some text."
    for choice in ("auto", "required"):
        assert room.accepts(written(here), choice)
        assert room.accepts(written(here, now), choice) == several
        assert room.accepts(written(now), choice, parallel=False)
        assert not room.accepts(written(now, now), choice, parallel=False)
        assert not room.accepts(written(("other", {})), choice)
        assert not room.accepts(written(("weather", {"unit": "c"})), choice)
        assert not room.accepts(written(("weather", {"days": 2, "unit": "k"})), choice)
        assert room.accepts(free, choice) == (choice == "auto")
        if not (format.answers or format.calls[0].anchored):
            assert room.accepts(free + written(now), choice) == (choice == "auto")
    assert room.accepts(written(now), NOW) and not room.accepts(written(here), NOW)


def test_what_a_format_cannot_hold_to_is_refused():
    schema = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^a$"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    hermes, glm = (OutputFormat(FORMATS[name], vocabulary()) for name in ("hermes", "glm45"))
    assert "%json" in hermes.grammar(tools, "auto")
    with pytest.raises(RequestError, match=r"tools: f\.code cannot hold to pattern"):
        glm.grammar(tools, "auto")

"""Why a prompt was not found whole: the right token, the right message, the caller's own text."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import pytest
from fake_engine import CHATML, FakeEngine, byte_renderer
from fastapi import FastAPI
from vocabularies import sentencepiece

from octavo.base.request import Request
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import ServerSettings
from octavo.engine.history import Record
from octavo.serve.app import build_app
from octavo.serve.explain import explain
from octavo.serve.openai.template import outline
from octavo.text.chat_template import ChatTemplate
from octavo.text.renderer import Renderer
from octavo.text.tokenizer import Tokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
TALK = [
    {"role": "system", "content": "Today is Monday, 12:05. You answer in one word."},
    {"role": "user", "content": "Capital of France?"},
    {"role": "assistant", "content": "Paris, of course: it always was."},
    {"role": "user", "content": "  And of Japan? "},
]
# The template differs in what it does with a message; the message that a place lies in does not.
TRIMMING = CHATML.replace("m.content }}", "m.content | trim }}")
SYSTEM_LAST = """{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}
{% endfor %}{% for m in messages if m.role == 'system' %}({{ m.content }}){% endfor %}"""
DATED = "{{ strftime_now('%f') }} is the date.\n" + CHATML
DATED_EACH = CHATML.replace("{{ m.role }}", "{{ m.role }} at {{ strftime_now('%f') }}")
MINDFUL = """{% for m in messages %}{% if not m.content[-1:] in '.?! ' %}{{ raise_exception('no') }}
{%- endif %}{{ m.content }}{% endfor %}"""


def shared(one: Sequence[object], other: Sequence[object]) -> int:
    """Length of the run that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


class CachingEngine(FakeEngine):
    """Finds what a prompt has in common with earlier ones."""

    def _deltas(self, request: Request) -> Any:
        prompt = request.prompt_token_ids
        known = [r.prompt_token_ids for r in self.requests[:-1]]
        self.cached = max((shared(prompt, k) for k in known), default=0)
        self.cached = min(self.cached, len(prompt) - 1)
        self.miss = "diverged" if self.cached else "cold"
        if self.cached == len(prompt) - 1:
            self.miss = None
        return super()._deltas(request)


class MissingEngine(FakeEngine):
    """Finds a prompt up to the first #."""

    def _deltas(self, request: Request) -> Any:
        self.cached, self.miss = request.prompt_token_ids.index(ord("#")), "diverged"
        return super()._deltas(request)


def served(engine: FakeEngine, renderer: Renderer | None = None) -> httpx.AsyncClient:
    app = build_app(engine, renderer or byte_renderer(), ServerSettings())  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://octavo")


@pytest.fixture
def engine() -> FakeEngine:
    return CachingEngine(max_model_len=4096)


@pytest.fixture
async def http(engine: FakeEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with served(engine) as client:
        yield client


async def report(http: httpx.AsyncClient, route: str = CHAT, **body: Any) -> dict[str, Any]:
    """In the usage, which is what the route for it says as well."""
    asked = await http.post(route, json=body | {"cache_explain": True, "max_tokens": 1})
    assert asked.status_code == 200, asked.text
    answer = asked.json()
    found: dict[str, Any] = answer["usage"]["prompt_tokens_details"]["cache"]
    assert found == (await http.get(f"/v1/cache/explain/{answer['id']}")).json()
    assert found["request_id"] == answer["id"]
    assert found["hit_tokens"] == answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found


def changed(index: int, old: str, new: str, key: str = "content") -> list[dict[str, str]]:
    talk = [dict(message) for message in TALK]
    assert old in talk[index][key]
    talk[index][key] = talk[index][key].replace(old, new)
    return talk


PLACES: list[tuple[int, str, str, str, str]] = [
    (0, "content", "12:05", "12:06", "system"),
    (0, "content", "one word", "few words", "system"),
    (0, "role", "system", "developer", "system"),
    (1, "role", "user", "human", "messages[1]"),
    (1, "content", "Capital", "Kapital", "messages[1]"),
    (1, "content", "?", "!", "messages[1]"),
    (1, "content", "France?", "France", "messages[2]"),  # the end of a turn opens the next one
    (2, "content", "Paris", "Lyon", "messages[2]"),
    (2, "content", "was.", "was?", "messages[2]"),
    (3, "content", "Japan", "Jamaica", "messages[3]"),
]


@pytest.mark.parametrize(("index", "key", "old", "new", "segment"), PLACES)
async def test_a_changed_token_is_found_in_its_message(
    http: httpx.AsyncClient,
    engine: FakeEngine,
    index: int,
    key: str,
    old: str,
    new: str,
    segment: str,
) -> None:
    await report(http, messages=TALK)
    found = await report(http, messages=changed(index, old, new, key))
    first, second = (request.prompt_token_ids for request in engine.requests)
    missed = shared(first, second)
    assert (found["missed_at"], found["hit_tokens"]) == (missed, missed)
    assert found["prompt_tokens"] == len(second)
    assert (found["segment"], found["reason"]) == (segment, "diverged")
    same = shared(old, new)
    assert found["before"].endswith(old[:same])
    assert found["after"].startswith(new[same:][:40])
    assert len(found["before"]) <= 40
    assert len(found["after"]) <= 40


@pytest.mark.parametrize(
    "template",
    [CHATML, TRIMMING, SYSTEM_LAST, DATED, DATED_EACH],
    ids=["chatml", "trims", "system last", "dated", "each dated"],
)
@pytest.mark.parametrize(("index", "old"), [(0, "one"), (1, "of"), (2, "always"), (3, "Japan")])
async def test_whatever_the_template_makes_of_messages(template: str, index: int, old: str) -> None:
    def as_parts(talk: list[dict[str, str]]) -> list[dict[str, Any]]:
        texts = [[m["content"][:7], m["content"][7:]] for m in talk]
        return [
            {"role": m["role"], "content": [{"type": "text", "text": t} for t in two]}
            for m, two in zip(talk, texts, strict=True)
        ]

    engine = MissingEngine()
    async with served(engine, byte_renderer(template)) as http:
        for form in (list, as_parts):
            found = await report(http, messages=form(changed(index, old, "#")))
            assert found["segment"] == ("system" if index == 0 else f"messages[{index}]")
            assert found["after"].startswith("#")


def test_a_tokenizer_that_adds_spaces() -> None:
    """It puts one after each special token, which the template has not written."""
    tokenizer = Tokenizer(sentencepiece(), special_tokens={"bos_token": "<s>"})
    template = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"
    renderer = Renderer(tokenizer, ChatTemplate(template, {}))
    talk = [{"role": "user", "content": f"turn {i}!"} for i in range(40)]
    prompt = renderer.encode_chat(talk)
    body = json.dumps({"messages": talk}).encode()
    request = Request(request_id="a", prompt_token_ids=prompt, params=SamplingParams())
    record = Record(request, outline(renderer, body, len(prompt)))
    record.miss = "diverged"
    ends = [place for place, id in enumerate(prompt) if id == tokenizer.token_id("</s>")]
    for index, end in enumerate(ends):
        record.num_cached_tokens = end - 1
        found = explain(tokenizer, record, "a")
        assert (found.segment, found.after[:5]) == (f"messages[{index}]", "!</s>")


async def test_a_template_that_minds_the_marks_leaves_the_message_open(
    engine: FakeEngine,
) -> None:
    async with served(engine, byte_renderer(MINDFUL)) as http:
        await report(http, messages=TALK)
        found = await report(http, messages=changed(1, "France", "Spain"))
    assert found["segment"] == "prompt"
    assert found["after"].startswith("Spain?")


async def test_a_body_out_of_proportion_is_not_kept(http: httpx.AsyncClient) -> None:
    await http.post(CHAT, json={"messages": TALK})
    for odd, country, segment in (("x", "Spain", "messages[1]"), ("x" * 20_000, "Chad", "prompt")):
        body = {"messages": changed(1, "France", country), "chat_template_kwargs": {"odd": odd}}
        assert (await report(http, **body))["segment"] == segment


async def test_a_text_has_no_messages(http: httpx.AsyncClient) -> None:
    cold = await report(http, TEXT, prompt="One é two")
    assert (cold["reason"], cold["missed_at"], cold["segment"]) == ("cold", 0, "prompt")
    assert (cold["before"], cold["after"]) == ("", "One é two")
    half = await report(http, TEXT, prompt="One è two")  # the last byte of the letter differs
    assert (half["missed_at"], half["before"], half["after"]) == (5, "One ", "è two")


async def test_a_whole_hit_has_no_place(http: httpx.AsyncClient) -> None:
    await report(http, messages=TALK)
    found = await report(http, messages=TALK)
    assert found["hit_tokens"] == found["prompt_tokens"] - 1
    del found["request_id"], found["prompt_tokens"], found["hit_tokens"]
    assert set(found.values()) == {None}


@pytest.mark.parametrize(
    ("index", "old", "new", "advises"),
    [
        (0, "12:05", "12:06", True),
        (0, "Monday", "Sunday", True),
        (0, "one word", "few words", False),
        (1, "France", "1814", False),
        (2, "Paris", "75001", False),
    ],
)
async def test_advice_where_what_changes_comes_first(
    http: httpx.AsyncClient, index: int, old: str, new: str, advises: bool
) -> None:
    await report(http, messages=TALK)
    advice = (await report(http, messages=changed(index, old, new)))["advice"]
    assert (advice is not None) == advises
    assert not advises or ("put what changes behind what stays" in advice and "\n" not in advice)


async def test_no_advice_where_little_is_lost(http: httpx.AsyncClient) -> None:
    for sum in ("2 + 2", "2 + 3"):
        found = await report(http, messages=[{"role": "user", "content": sum}])
    assert (found["segment"], found["reason"], found["advice"]) == ("messages[0]", "diverged", None)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("evicted", "--kv-memory"),
        ("state", "--state-interval"),
        ("salt", "cache_salt"),
        ("disabled", "--no-prefix-caching"),
        ("epoch", None),
        ("adapter", None),
        ("cold", None),
    ],
)
async def test_every_reason_is_told(reason: str, says: str | None) -> None:
    engine = FakeEngine()
    engine.miss = reason
    async with served(engine) as http:
        found = await report(http, messages=TALK)
    assert (found["reason"], found["missed_at"]) == (reason, 3)
    assert found["advice"] is None if says is None else says in found["advice"]


async def test_a_stream_tells_with_its_usage(http: httpx.AsyncClient) -> None:
    for route, body in ((CHAT, {"messages": TALK}), (TEXT, {"prompt": "xyz"})):
        options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        more = {"stream": True, "cache_explain": True, **options}
        events = (await http.post(route, json=body | more)).text.split("\n\n")[:-2]
        usages = [json.loads(event.removeprefix("data: "))["usage"] for event in events]
        details = [usage["prompt_tokens_details"] for usage in usages]
        assert details[-1]["cache"]["reason"] == "cold"
        assert not any("cache" in detail for detail in details[:-1])


async def test_nothing_is_told_unasked(http: httpx.AsyncClient) -> None:
    answer = await http.post(CHAT, json={"messages": TALK})
    assert answer.json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_each_prompt_of_several(http: httpx.AsyncClient) -> None:
    body = {"prompt": ["one", "two three"], "n": 2, "max_tokens": 1}
    answer = (await http.post(TEXT, json=body)).json()
    url = f"/v1/cache/explain/{answer['id']}"
    lengths = [(await http.get(url, params={"index": i})).json()["prompt_tokens"] for i in range(4)]
    assert lengths == [3, 3, 9, 9]
    for index in ("4", "-1", "x"):
        refused = await http.get(url, params={"index": index})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "index")


async def test_the_log_tells_at_debug_without_the_prompt(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await http.post(CHAT, json={"messages": TALK})
    with caplog.at_level(logging.DEBUG, logger="octavo.serve"):
        await http.post(CHAT, json={"messages": changed(1, "France", "Spain")})
        await http.post(CHAT, json={"messages": TALK})
    diverged, whole = [r.getMessage() for r in caplog.records if r.name == "octavo.serve"]
    assert "prompt tokens were cached; diverged at token 74, in messages[1]" in diverged
    assert whole.endswith("prompt tokens were cached")
    assert "Spain" not in diverged


async def test_nothing_is_found_out_unasked(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Callable[[], None]:
        raise AssertionError("the chat is rendered once more")

    monkeypatch.setattr("octavo.text.renderer.Renderer.sections", never)
    assert (await http.post(CHAT, json={"messages": TALK})).status_code == 200


def test_the_schema_names_every_field(app: FastAPI) -> None:
    properties = app.openapi()["components"]["schemas"]["CacheReport"]["properties"]
    assert set(properties) == {
        "request_id",
        "prompt_tokens",
        "hit_tokens",
        "reason",
        "missed_at",
        "segment",
        "before",
        "after",
        "advice",
    }
    reasons = {"cold", "diverged", "evicted", "state", "salt", "adapter", "epoch", "disabled"}
    [enum] = [way["enum"] for way in properties["reason"]["anyOf"] if "enum" in way]
    assert set(enum) == reasons

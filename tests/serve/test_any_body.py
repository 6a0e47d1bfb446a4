"""Whatever JSON is sent, the answer is an answer or a client's error, and the server lives."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from fake_engine import FakeEngine, byte_renderer
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.base.settings import ServerSettings
from octavo.serve.app import build_app
from octavo.serve.openai.refusals import UNSERVED
from octavo.serve.openai.schemas import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    ForkBody,
    TokenizeBody,
)

ROUTES = {
    "/v1/chat/completions": (ChatBody, {"messages": [{"role": "user", "content": "hi"}]}),
    "/v1/completions": (CompletionBody, {"prompt": "hi"}),
    "/v1/fork": (ForkBody, {"request_id": "ANSWER"}),
    "/tokenize": (TokenizeBody, {"prompt": "hi"}),
    "/detokenize": (DetokenizeBody, {"tokens": [65]}),
}
NUMBERS = st.integers() | st.sampled_from([0, 1, -1, 2**31, 2**63, 2**64]) | st.floats()
TEXTS = st.text(st.characters(exclude_categories=()), max_size=12)  # surrogates too
LEAVES = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": TEXTS | VALUES, "content": TEXTS | VALUES}), max_size=3
)


def bodies(route: str) -> st.SearchStrategy[dict[str, object]]:
    schema, good = ROUTES[route]
    names = st.sampled_from([*schema.model_fields, *UNSERVED]) | TEXTS
    fields = st.dictionaries(names, VALUES, max_size=3)
    odd = st.fixed_dictionaries({}, optional={"messages": MESSAGES, "tokens": st.lists(NUMBERS)})
    return st.builds(lambda a, b: {**good, **a, **b}, fields, odd)


@pytest.mark.parametrize("route", ROUTES)
def test_no_body_is_the_servers_fault(route: str) -> None:
    app = build_app(FakeEngine(), byte_renderer(), ServerSettings())
    with asyncio.Runner() as runner:

        async def post(body: object) -> httpx.Response:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as http:
                headers = {"content-type": "application/json"}
                answered = await http.post("/v1/completions", json={"prompt": "hi"})
                content = json.dumps(body).replace("ANSWER", answered.json()["id"])
                return await http.post(route, content=content, headers=headers)

        @given(bodies(route) | VALUES)
        @settings(max_examples=150, deadline=None)
        def play(body: object) -> None:
            answer = runner.run(post(body))
            assert answer.status_code in (200, 400, 404), answer.text
            if answer.status_code != 200:
                assert answer.json()["error"]["message"]

        play()

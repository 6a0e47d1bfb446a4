"""The official SDK, with answers checked strictly against its own types."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import openai
import pytest
from fake_engine import FakeEngine
from fastapi import FastAPI

USER = [{"role": "user", "content": "Capital of France?"}]


@pytest.fixture
async def sdk(app: FastAPI) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with openai.AsyncOpenAI(
        base_url="http://octavo/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx.AsyncClient(transport=transport),
        _strict_response_validation=True,
    ) as client:
        yield client


async def test_chat(sdk: openai.AsyncOpenAI) -> None:
    answer = await sdk.chat.completions.create(
        model="tiny", messages=USER, logprobs=True, top_logprobs=2
    )
    choice = answer.choices[0]
    assert answer.id.startswith("chatcmpl-")
    assert answer._request_id == answer.id
    assert (choice.message.role, choice.message.content) == ("assistant", "Paris.")
    assert choice.finish_reason == "stop"
    assert [entry.token for entry in choice.logprobs.content] == [*"Paris.", "<|im_end|>"]
    assert bytes(choice.logprobs.content[0].bytes) == b"P"
    assert answer.usage.completion_tokens == 7
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.system_fingerprint.startswith("fp_")


async def test_chat_stream(sdk: openai.AsyncOpenAI) -> None:
    stream = await sdk.chat.completions.create(
        model="tiny",
        messages=USER,
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "Paris."
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.total_tokens == chunks[-1].usage.prompt_tokens + 7


async def test_chat_stream_helper(sdk: openai.AsyncOpenAI) -> None:
    """The accumulator raises on events out of order."""
    async with sdk.chat.completions.stream(model="tiny", messages=USER) as stream:
        kinds = {event.type async for event in stream}
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert (await stream.get_final_completion()).choices[0].message.content == "Paris."


async def test_completions(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    answer = await sdk.completions.create(
        model="tiny", prompt=["one", "two"], logprobs=2, max_tokens=3, seed=5
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert {choice.text for choice in answer.choices} == {"Par"}
    assert answer.choices[0].logprobs.tokens == ["P", "a", "r"]
    assert answer.choices[0].logprobs.text_offset == [0, 1, 2]
    assert answer.usage.prompt_tokens == 6
    assert answer.usage.completion_tokens == 6
    assert answer.usage.prompt_tokens_details.cached_tokens == 6
    assert [request.params.seed for request in engine.requests] == [5, 5]


async def test_completions_stream(sdk: openai.AsyncOpenAI) -> None:
    """Strictly but for one thing: the SDK's type for a completion forbids a null finish_reason,
    which OpenAI's own server sends in every chunk but the last."""
    sdk._strict_response_validation = False
    stream = await sdk.completions.create(model="tiny", prompt=[1, 2, 3], stream=True)
    chunks = [chunk async for chunk in stream]
    for chunk in chunks:
        fields = chunk.model_dump(exclude_unset=True)
        fields["choices"][0]["finish_reason"] = fields["choices"][0]["finish_reason"] or "stop"
        openai.types.Completion.model_validate(fields, strict=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Paris."
    assert [c.choices[0].finish_reason for c in chunks] == [None] * 6 + ["stop"]


async def test_models(sdk: openai.AsyncOpenAI) -> None:
    listed = [model async for model in sdk.models.list()]
    assert [model.id for model in listed] == ["tiny"]
    assert await sdk.models.retrieve("tiny") == listed[0]
    assert (await sdk.models.retrieve("./models/tiny")).id == "tiny"
    with pytest.raises(openai.NotFoundError):
        await sdk.models.retrieve("org/other")


async def test_errors_are_the_sdks_own(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await sdk.chat.completions.create(model="tiny", messages=USER, temperature=9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        await sdk.completions.create(model="other", prompt="x")
    assert missing.value.code == "not_found"
    engine.dead = "killed"
    with pytest.raises(openai.InternalServerError, match="killed"):
        await sdk.completions.create(model="tiny", prompt="x", stream=True)


async def test_an_error_event_raises(sdk: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    engine.fails_after = (2, openai.OpenAIError("internal"))
    stream = await sdk.chat.completions.create(model="tiny", messages=USER, stream=True)
    with pytest.raises(openai.APIError, match="internal error"):
        async for _ in stream:
            pass

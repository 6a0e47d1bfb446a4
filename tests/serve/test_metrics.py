"""What /metrics says after known requests."""

from __future__ import annotations

import httpx
from fake_engine import FakeEngine
from prometheus_client.parser import text_string_to_metric_families

from octavo.base.output import Delta, EngineStats

LABELS = {"model_name": "tiny", "engine": "0"}


async def values(http: httpx.AsyncClient) -> dict[str, float]:
    """Every sample by its name, with labels beside the usual ones in brackets."""
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            assert LABELS.items() <= sample.labels.items()
            more = sorted(set(sample.labels) - set(LABELS))
            name = sample.name + "".join(f"[{sample.labels[label]}]" for label in more)
            assert name not in found
            found[name] = sample.value
    return found


async def test_requests_are_counted(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.per_delta = 2
    for max_tokens in (16, 16, 4):
        await http.post("/v1/completions", json={"prompt": "abc", "max_tokens": max_tokens})
    found = await values(http)
    assert found["octavo:request_success_total[stop]"] == 2
    assert found["octavo:request_success_total[length]"] == 1
    assert found["octavo:request_success_total[abort]"] == 0
    assert found["octavo:prompt_tokens_total"] == 9
    assert found["octavo:generation_tokens_total"] == 7 + 7 + 4
    assert found["octavo:time_to_first_token_seconds_count"] == 3
    assert found["octavo:e2e_request_latency_seconds_count"] == 3
    # 7 tokens in deltas of 2, 2, 2, 1: five of them came after the first delta
    assert found["octavo:inter_token_latency_seconds_count"] == 5 + 5 + 2


async def test_several_answers_are_one_request(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    """Time between tokens is that of each answer."""
    engine.says = ["ab", "abcd"]
    await http.post("/v1/completions", json={"prompt": "xyz", "n": 2, "max_tokens": 4})
    found = await values(http)
    assert found["octavo:request_success_total[length]"] == 1
    assert found["octavo:request_success_total[stop]"] == 0
    assert found["octavo:prompt_tokens_total"] == 3
    assert found["octavo:generation_tokens_total"] == 3 + 4
    assert found["octavo:time_to_first_token_seconds_count"] == 1
    assert found["octavo:inter_token_latency_seconds_count"] == 2 + 3


async def test_what_is_told_of_a_prompt_is_no_token(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    body = {"prompt": "abcdef", "prompt_logprobs": 1, "max_tokens": 2}
    await http.post("/v1/completions", json=body)
    await http.post("/v1/completions", json=body | {"max_tokens": 0})
    found = await values(http)
    assert found["octavo:prompt_tokens_total"] == 12
    assert found["octavo:generation_tokens_total"] == 2
    assert found["octavo:time_to_first_token_seconds_count"] == 1
    assert found["octavo:inter_token_latency_seconds_count"] == 1
    assert found["octavo:request_success_total[length]"] == 2


async def test_answers_that_repeat_themselves_are_counted(
    http: httpx.AsyncClient, engine: FakeEngine
) -> None:
    engine.ends_with = Delta("x", [65], finish_reason="repetition")
    answer = await http.post("/v1/completions", json={"prompt": "abc"})
    assert answer.json()["choices"][0]["finish_reason"] == "repetition"
    assert (await values(http))["octavo:request_success_total[repetition]"] == 1


async def test_errors_and_refusals(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.fails_after = (1, ValueError("bug"))
    await http.post("/v1/completions", json={"prompt": "abc"})
    await http.post("/v1/completions", json={"prompt": ""})
    found = await values(http)
    assert found["octavo:request_success_total[error]"] == 1
    assert found["octavo:e2e_request_latency_seconds_count"] == 1


async def test_the_engines_numbers(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.stats = EngineStats(
        running=3,
        waiting=2,
        kv_blocks_used=25,
        kv_blocks=100,
        states_used=6,
        states=12,
        preemptions_total=4,
        kv_copies_total=6,
        prefix_query_tokens_total=1000,
        prefix_hit_tokens_total=640,
        drafts_total=50,
        draft_tokens_total=150,
        accepted_tokens_total=70,
        accepted_per_position_total=[40, 20, 10],
    )
    found = await values(http)
    assert found["octavo:num_requests_running"] == 3
    assert found["octavo:num_requests_waiting"] == 2
    assert found["octavo:kv_cache_usage_perc"] == 0.25
    assert found["octavo:state_usage_perc"] == 0.5
    assert found["octavo:num_preemptions_total"] == 4
    assert found["octavo:kv_copies_total"] == 6
    assert found["octavo:prefix_cache_queries_total"] == 1000
    assert found["octavo:prefix_cache_hits_total"] == 640
    assert found["octavo:spec_decode_num_drafts_total"] == 50
    assert found["octavo:spec_decode_num_draft_tokens_total"] == 150
    assert found["octavo:spec_decode_num_accepted_tokens_total"] == 70
    by_position = [
        found[f"octavo:spec_decode_num_accepted_tokens_per_pos_total[{i}]"] for i in range(3)
    ]
    assert by_position == [40, 20, 10]


async def test_every_metric_has_its_alias(http: httpx.AsyncClient) -> None:
    await http.post("/v1/completions", json={"prompt": "abc"})
    found = await values(http)
    own = {name.removeprefix("octavo:"): v for name, v in found.items() if name[0] == "o"}
    alias = {name.removeprefix("vllm:"): v for name, v in found.items() if name[0] == "v"}
    assert own == alias
    assert len(own) + len(alias) == len(found)

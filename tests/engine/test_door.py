"""What the door refuses, and what it fills in."""

from __future__ import annotations

import math

import msgspec
import pytest

from octavo.base.errors import RequestError
from octavo.base.kv import KVGroup, KVLayout, Pool
from octavo.base.repetition import RepetitionDetection
from octavo.base.sampling_params import SamplingParams
from octavo.engine.door import Door
from octavo.engine.info import EngineInfo

LAYOUT = KVLayout(
    block_size=16,
    groups=(KVGroup(name="full", layers=(0,), bytes_per_token=4),),
    pools=(Pool(page_bytes=64, num_blocks=5, groups=(0,)),),
)
INFO = EngineInfo(
    model="m",
    family="llama",
    dtype="float32",
    kv_dtype="float32",
    weight_format="f32",
    runner="none",
    vocab_size=100,
    max_num_seqs=8,
    max_model_len=32,
    eos_token_ids=(2, 3),
    layout=LAYOUT,
    generation_defaults={},
    table="",
)


@pytest.mark.parametrize(
    "prompt,field",
    [([], "prompt"), ([1] * 32, "prompt"), ([100], "prompt"), ([-1], "prompt"), ([True], "prompt")],
)
def test_prompts_that_are_refused(prompt, field):
    with pytest.raises(RequestError) as caught:
        Door(INFO).request(prompt, SamplingParams())
    assert caught.value.field == field


@pytest.mark.parametrize(
    "options",
    [
        {"stop_token_ids": [100]},
        {"logit_bias": {100: 1.0}},
        {"allowed_token_ids": [5, 100]},
        {"logprob_token_ids": [100]},
        {"bad_words": ["x"], "bad_word_ids": [[5], [7, 100]]},
        {"bad_words": ["x"]},
        {"logits_processors": ["other"]},
        {"logprobs": 21},
        {"logprobs": -1},
        {"prompt_logprobs": 21},
        {"prompt_logprob_start": 2, "prompt_logprobs": 1},
    ],
)
def test_parameters_that_this_engine_cannot_take(options):
    with pytest.raises(RequestError) as caught:
        Door(INFO).request([1], SamplingParams(**options))
    assert caught.value.field == next(iter(options))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": math.nan},
        {"temperature": -0.1},
        {"temperature": "hot"},
        {"top_p": 0.0},
        {"top_p": math.inf},
        {"top_k": -2},
        {"min_p": 1.1},
        {"max_tokens": 0},
        {"allowed_token_ids": []},
        {"allowed_token_ids": 5},
        {"allowed_token_ids": [1.5]},
        {"bad_words": "text"},
        {"bad_words": [""]},
        {"bad_words": ["x"] * 1025},
        {"bad_word_ids": [[]]},
        {"bad_word_ids": [[-1]]},
        {"logprob_token_ids": [1] * 129},
        {"logprobs_mode": "raw_logits"},
        {"prompt_logprobs": -2},
        {"prompt_logprob_start": -1},
        {"repetition_detection": {"max_pattern_size": 3}},
        {"logits_processors": ["x"] * 9},
        {"logits_processors": [5]},
        {"extra_args": [1]},
        {"stream_interval": 0},
        {"spaces_between_special_tokens": 1},
        {"skip_reading_prefix_cache": "yes"},
        {"max_tokens": -5},
        {"max_tokens": 1.5},
        {"min_tokens": 17},
        {"repetition_penalty": 0},
        {"presence_penalty": 2.1},
        {"seed": 2**63},
        {"logprobs": -2},
        {"stop": [""]},
        {"stop": ["x"] * 17},
        {"stop_token_ids": [-1]},
        {"logit_bias": {1: 101}},
        {"n": 0},
        {"stop": 5},
        {"stop_token_ids": 5},
        {"logit_bias": [1]},
    ],
)
def test_values_outside_their_range_name_field_and_limit(options):
    [field] = options
    with pytest.raises(RequestError, match=field) as caught:
        SamplingParams(**options)
    assert caught.value.field == field


def test_what_is_open_is_filled_in():
    door = Door(INFO, seed=1)
    request = door.request([5] * 20, SamplingParams(max_tokens=None))
    assert request.params.max_tokens == 12
    assert request.params.seed is not None
    assert request.eos_token_ids == (2, 3)
    assert door.request([5], SamplingParams(ignore_eos=True)).eos_token_ids == ()
    assert door.request([5] * 31, SamplingParams(max_tokens=9, min_tokens=4)).params.min_tokens == 1


def test_what_logprobs_mean_is_settled():
    door = Door(msgspec.structs.replace(INFO, logprobs_mode="processed"))
    assert door.request([5], SamplingParams()).params.logprobs_mode == "processed"
    assert door.request([5], SamplingParams(logprobs_mode="raw")).params.logprobs_mode == "raw"
    assert SamplingParams(logprob_token_ids=[4]).logprobs == 0


def test_an_engine_may_tell_any_number_of_logprobs():
    params = SamplingParams(logprobs=-1, prompt_logprobs=50)
    door = Door(msgspec.structs.replace(INFO, max_logprobs=-1))
    assert door.request([5], params).params.logprobs == -1
    with pytest.raises(RequestError, match="prompt_logprobs must be between 0 and 49"):
        door = Door(msgspec.structs.replace(INFO, max_logprobs=49))
        door.request([5], msgspec.structs.replace(params, logprobs=3))


def test_a_prompt_that_is_only_computed_may_fill_the_context():
    params = SamplingParams(max_tokens=0, prompt_logprobs=0, prompt_logprob_start=32)
    assert Door(INFO).request([1] * 32, params).params.max_tokens == 0
    with pytest.raises(RequestError, match="at most 32 fit"):
        Door(INFO).request([1] * 33, params)


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_token_ids": [1]},
        {"bad_words": ["x"]},
        {"logits_processors": ["x"]},
        {"repetition_detection": RepetitionDetection(max_pattern_size=3)},
        {"logprob_token_ids": [1]},
        {"prompt_logprobs": 1},
        {"logprobs": -1},
    ],
)
def test_controls_that_beams_have_no_use_for(options):
    [field] = options
    with pytest.raises(RequestError, match="not supported with use_beam_search") as caught:
        SamplingParams(n=2, use_beam_search=True, **options)
    assert caught.value.field == field


def test_params_cross_a_wire_whole():
    params = SamplingParams(
        bad_words=["x"],
        bad_word_ids=[[1], [2, 3]],
        allowed_token_ids=[4],
        repetition_detection=RepetitionDetection(max_pattern_size=3),
        extra_args={"by": [1.5]},
        logits_processors=["tilt"],
    )
    packed = msgspec.msgpack.encode(params)
    assert msgspec.msgpack.decode(packed, type=SamplingParams) == params


def test_seeds_are_drawn_anew_and_alike_for_a_seeded_door():
    def draw(seed):
        door = Door(INFO, seed)
        return [door.request([5], SamplingParams()).params.seed for _ in range(3)]

    assert draw(1) == draw(1)
    assert len({*draw(1), *draw(2)}) == 6
    assert Door(INFO, 1).request([5], SamplingParams(seed=9)).params.seed == 9
    seeds = {door.request([5], SamplingParams(seed=-1)).params.seed for door in [Door(INFO, 1)] * 2}
    assert len(seeds) == 2


def test_beams_must_have_room_together():
    """Four blocks: three beams of two blocks each fit if they share the first."""
    beams = SamplingParams(n=3, use_beam_search=True, max_tokens=15)
    assert Door(INFO).request([1] * 17, beams).params.n == 3
    alone = msgspec.structs.replace(INFO, prefix_caching=False)
    for info, params in ((alone, beams), (INFO, msgspec.structs.replace(beams, n=8))):
        with pytest.raises(RequestError, match="do not fit in the KV cache together") as caught:
            Door(info).request([1] * 17, params)
        assert caught.value.field == "n"

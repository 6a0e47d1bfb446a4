"""Each way does to requests what its name says, and a trace follows the tokens that it is about."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tiny_models import tiny_model

from octavo.base.plan import TokenLogprobs
from octavo.base.sampling_params import SamplingParams
from octavo.base.settings import EngineSettings
from octavo.engine.door import Door
from octavo.files.model_files import ModelFiles
from octavo.verify.streams import Stream, differences
from octavo.verify.subject import ITSELF, Subject
from octavo.verify.trace import Trace
from octavo.verify.ways import alone, forked, partial_hit, preempted, single, together, warm

OUTPUT = 9


class Counting:
    """An observer of how often each sequence's tokens were computed, and of rows in a step."""

    def __init__(self):
        self.introduced: Counter[tuple[int, ...]] = Counter()  # by prompt
        self.computed = 0
        self.most_rows = 0

    def begin(self, plan):
        self.introduced.update(tuple(new.token_ids[: new.prompt_len]) for new in plan.new)
        self.computed += plan.num_tokens
        self.most_rows = max(self.most_rows, len(plan.rows))

    def wrote(self, batch, op, rows):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model(folder, "llama")
    return folder


@pytest.fixture
def subject(folder):
    made = []

    def make(observer=None, **options):
        settings = EngineSettings.flat(model=str(folder), threads=1, kv_memory="8MiB")
        made.append(Subject(settings, ModelFiles("tiny", folder), options, observer))
        return made[-1]

    yield make
    for one in made:
        one.close()


def asked(subject, *prompts, **params):
    door = Door(subject.info)
    own = {"max_tokens": OUTPUT, "ignore_eos": True, "logprobs": 1, "seed": 3} | params
    return [
        door.request(prompt, SamplingParams(**own), request_id=f"verify-{n}")
        for n, prompt in enumerate(prompts)
    ]


def tokens(seed, length=40):
    return random.Random(seed).choices(range(512), k=length)


def test_alone_together_and_warm(subject):
    counts = Counting()
    one = subject(counts)
    requests = asked(one, tokens(1), tokens(2), tokens(1))
    reference = alone(one, requests)
    assert counts.most_rows == 1
    assert counts.computed == 3 * (40 + OUTPUT - 1)  # nothing was found, nothing twice
    assert differences(together(one, requests), reference, requests) == []
    assert counts.most_rows == 3
    before = one.hit_tokens
    assert differences(warm(one, requests), reference, requests) == []
    assert one.hit_tokens >= before + 3 * 39


def test_partial_hits_end_within_blocks(subject):
    one = subject()
    requests = asked(one, tokens(1), tokens(2))
    reference = alone(one, requests)
    before = one.hit_tokens
    assert differences(partial_hit(one, requests), reference, requests) == []
    assert one.hit_tokens == before + 2 * 30  # three quarters of the prompts


@pytest.mark.parametrize("caching", [True, False])
def test_preempted_sequences_come_back_twice(subject, caching):
    counts = Counting()
    one = subject(counts, prefix_caching=caching)
    requests = asked(one, tokens(1), tokens(2))
    reference = alone(one, requests)
    counts.introduced.clear()
    counts.computed = 0
    assert differences(preempted(one, requests), reference, requests) == []
    assert set(counts.introduced.values()) == {3}
    once = 2 * (40 + OUTPUT - 1)
    assert counts.computed >= 3 * 2 * 40 if not caching else once <= counts.computed < 2 * once


def test_one_of_several_answers_and_forks(subject):
    counts = Counting()
    one = subject(counts)
    requests = asked(one, tokens(1), n=3) + asked(one, tokens(2), tokens(3))[1:]
    reference = alone(one, requests)
    assert set(reference) == {(0, 0), (0, 1), (0, 2), (1, 0)}
    found = single(one, requests)
    assert set(found) == {(0, 0)}
    assert differences(found, reference, requests) == []
    counts.introduced.clear()
    found = forked(one, requests)
    assert set(found) == {(1, 0)}
    assert differences(found, reference, requests) == []
    forks = [prompt for prompt in counts.introduced if len(prompt) == 40 + OUTPUT // 2]
    assert forks == [tuple(tokens(3) + reference[1, 0].tokens[: OUTPUT // 2])]


def test_a_trace_looks_at_what_begins_like_its_stream(subject):
    """Whoever asked, in whatever chunks: here the first 21 tokens of another request."""
    mine, other = tokens(1), tokens(1)[:21] + tokens(9)
    trace = Trace(mine)
    one = subject(trace, max_num_batched_tokens=8, max_num_seqs=8)
    alone(one, asked(one, other))
    assert {position for position, _ in trace.digests} == set(range(21))
    ops = {segment for _, segment in trace.digests}
    assert len(trace.digests) == 21 * len(ops) > 21 * 3 * 6  # three layers
    for way in (
        {},
        {"async_scheduling": True},
        {"speculation": "ngram"},
        {"speculation": "draft", "draft_model": ITSELF},
    ):
        again = Trace(mine, trace.digests)
        two = subject(again, **way)
        together(two, asked(two, mine, other))
        assert again.first is None
        assert {position for position, _ in again.digests} == set(range(40))
    place, digest = (17, max(ops)), b"other"
    wrong = Trace(mine, trace.digests | {place: digest, (18, 0): digest})
    three = subject(wrong)
    together(three, asked(three, mine))
    assert wrong.first is not None and wrong.first[0] == place
    assert str(wrong.first[1]) == "layer 2, op down"


def test_streams_part_where_any_bit_does():
    def told(logprobs):
        return [TokenLogprobs(5, p, 1, [(5, p)]) for p in logprobs]

    def stream(*logprobs, prompt=(), end=("length", None)):
        return Stream(told(logprobs), told(prompt), end)

    whole = stream(-1.0, 0.0)
    assert whole.parts_from(stream(-1.0, 0.0), 10) is None
    assert whole.parts_from(stream(-1.0, -0.0), 10) == 11
    assert whole.parts_from(stream(-1.0 - 2**-52, 0.0), 10) == 10
    assert whole.parts_from(stream(-1.0), 10) == 11
    assert whole.parts_from(stream(-1.0, 0.0, end=("stop", 5)), 10) == 12
    nan = stream(float("nan"))
    assert nan.parts_from(stream(float("nan")), 10) is None
    asked, other = stream(-1.0, prompt=[-2.0, -3.0]), stream(-1.0, prompt=[-2.0, -3.5])
    assert asked.parts_from(other, 3) == 2
    assert asked.at(2, 3).logprob == -3.0 and asked.at(3, 3).logprob == -1.0
    assert asked.at(4, 3) is None

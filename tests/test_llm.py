"""The offline face: shapes, order, streams, and what goes wrong with one prompt or one step."""

from __future__ import annotations

import threading

import pytest
from tiny_chat import tiny_chat_model

from octavo import LLM, SamplingParams
from octavo.base.errors import ConfigError, RequestError
from octavo.models.memory import longest_sequence

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
PROMPT = list(range(10, 50))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_chat_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def llm(folder):
    made = LLM(str(folder), kv_memory="8MiB", threads=1)
    yield made
    assert made.stats.kv_blocks_used == made.stats.running == made.stats.waiting == 0


def ask(llm, *prompts, params=GREEDY):
    return llm.generate(list(prompts), params, use_tqdm=False)


def tokens(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def test_every_form_of_prompt_in_input_order(llm):
    text = "The capital of France"
    ids = llm.text.tokenizer.encode(text)
    forms = [text, ids, {"prompt": text}, {"prompt_token_ids": ids}, tuple(ids)]
    outputs = ask(llm, *forms)
    assert len({tuple(t) for t in tokens(outputs)}) == 1
    assert [o.prompt for o in outputs] == [text, None, text, None, None]
    assert all(o.prompt_token_ids == ids for o in outputs)
    assert outputs[0].outputs[0].text == llm.text.tokenizer.decode(tokens(outputs)[0])
    assert tokens(llm.generate(text, GREEDY)) == tokens(llm.generate(ids, GREEDY))


def test_one_bad_prompt_costs_the_others_nothing(llm):
    bad = [[], [10**6], "x " * 2000, {}, {"prompt": 5}, {"prompt_token_ids": "text"}, "\ud800"]
    bad += [{"prompt": "a", "cache_salt": 5}, b"abc"]
    outputs = ask(llm, "good", *bad, "good")
    assert tokens([outputs[0]]) == tokens([outputs[-1]]) != [[]]
    for output in outputs[1:-1]:
        assert output.error
        assert output.outputs[0].finish_reason == "error"


def test_one_bad_conversation_costs_the_others_nothing(llm):
    good = [{"role": "user", "content": "hello"}]
    outputs = llm.chat([good, [{"role": "user", "content": [{"type": "image"}]}], good], GREEDY)
    assert tokens([outputs[0]]) == tokens([outputs[2]]) != [[]]
    assert outputs[1].error
    assert tokens(llm.chat(good, GREEDY)) == tokens([outputs[0]])


def test_lists_of_params_and_priorities_must_match(llm):
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (1, 3)]
    assert [len(t) for t in tokens(ask(llm, "a", "b", params=params))] == [1, 3]
    with pytest.raises(RequestError, match="2 sampling_params for 1 prompts"):
        ask(llm, "a", params=params)
    with pytest.raises(RequestError, match="1 priorities for 2 prompts"):
        llm.generate(["a", "b"], GREEDY, priority=[1])


@pytest.mark.parametrize(
    "prompts,params",
    [("a", {"temperature": 0}), (None, None), (5, None), (b"abc", None), (["a"], ["greedy"])],
)
def test_what_is_no_prompt_or_no_params_is_said_so(llm, prompts, params):
    with pytest.raises(RequestError):
        llm.generate(prompts, params, use_tqdm=False)


def test_logprobs_by_position_and_token(llm):
    [output] = ask(llm, "a", params=SamplingParams(max_tokens=4, logprobs=2, seed=1))
    answer = output.outputs[0]
    assert len(answer.logprobs) == len(answer.token_ids)
    for token, position in zip(answer.token_ids, answer.logprobs, strict=True):
        assert 2 <= len(position) <= 3
        assert {1, 2} <= {p.rank for p in position.values()}
        assert position[token].decoded_token == llm.text.tokenizer.token(token)
    drawn = (p[t].logprob for t, p in zip(answer.token_ids, answer.logprobs, strict=True))
    assert answer.cumulative_logprob == pytest.approx(sum(drawn))


def test_prompt_logprobs_by_position_and_token(llm):
    params = SamplingParams(max_tokens=0, prompt_logprobs=2)
    one, several = ask(llm, [9], [9, 10, 11, 12], params=params)
    assert one.prompt_logprobs == [None]
    assert several.prompt_logprobs[0] is None
    assert [next(iter(position)) for position in several.prompt_logprobs[1:]] == [10, 11, 12]
    assert several.outputs[0].finish_reason == "length"
    late = SamplingParams(max_tokens=2, prompt_logprobs=2, prompt_logprob_start=3)
    [output] = ask(llm, [9, 10, 11, 12], params=late)
    assert output.prompt_logprobs == [None] * 3 + several.prompt_logprobs[3:]
    assert len(output.outputs[0].token_ids) == 2


def test_named_tokens_are_told_of_and_what_was_cut(llm):
    asked = {"max_tokens": 3, "seed": 1, "top_k": 2, "logprob_token_ids": [5, 6]}
    raw, cut = ask(
        llm,
        PROMPT,
        PROMPT,
        params=[SamplingParams(**asked), SamplingParams(**asked, logprobs_mode="processed")],
    )
    mine, other = raw.outputs[0], cut.outputs[0]
    assert mine.token_ids == other.token_ids
    assert mine.log_masses is None
    assert len(other.log_masses) == 3
    for id, full, kept, mass in zip(
        mine.token_ids, mine.logprobs, other.logprobs, other.log_masses, strict=True
    ):
        assert [*full] == [*kept] == list(dict.fromkeys([id, 5, 6]))
        assert full[5].rank is None or id == 5
        assert kept[id].logprob == pytest.approx(full[id].logprob - mass, abs=1e-4)


def test_a_seed_that_was_drawn_gives_the_answer_again(llm):
    params = SamplingParams(temperature=1.5, max_tokens=12, n=2, ignore_eos=True)
    first, other = ask(llm, PROMPT, PROMPT, params=params)
    again = SamplingParams(temperature=1.5, max_tokens=12, n=2, ignore_eos=True, seed=first.seed)
    [same] = ask(llm, PROMPT, params=again)
    ids = [[answer.token_ids for answer in o.outputs] for o in (first, same, other)]
    assert ids[0] == ids[1] != ids[2]
    assert first.seed == same.seed != other.seed


def test_bad_words_that_are_no_text_are_refused(llm):
    [refused] = ask(llm, PROMPT, params=SamplingParams(bad_words=["\ud800"]))
    assert refused.error == "bad_words must be text"


def test_pieces_of_a_stream_hold_as_many_tokens_as_asked(llm):
    whole = tokens(ask(llm, PROMPT, params=LONG))[0]
    params = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True, stream_interval=7)
    pieces = list(llm.stream(PROMPT, params))
    assert [len(piece.token_ids) for piece in pieces] == [7] * 8 + [4]
    assert [token for piece in pieces for token in piece.token_ids] == whole


def test_a_fork_tells_nothing_of_its_prompt(llm):
    params = SamplingParams(max_tokens=8, prompt_logprobs=1, bad_words=["x"], ignore_eos=True)
    [output] = ask(llm, PROMPT, params=params)
    fork = llm.fork(output, [5])
    assert fork.prompt_logprobs is None
    assert len(fork.outputs[0].token_ids) == 8
    assert fork.num_cached_tokens == len(PROMPT) + 7


def test_a_stop_string_ends_and_frees(llm):
    [whole] = ask(llm, "a", params=LONG)
    stop = whole.outputs[0].text[5:9]
    [cut] = ask(llm, "a", params=SamplingParams(temperature=0.0, max_tokens=60, stop=stop))
    assert cut.outputs[0].text == whole.outputs[0].text[: whole.outputs[0].text.index(stop)]
    assert (cut.outputs[0].finish_reason, cut.outputs[0].stop_reason) == ("stop", stop)


def test_streams_left_early_interleaved_and_beside_a_batch(llm):
    [alone] = ask(llm, PROMPT, params=LONG)
    left = llm.stream(PROMPT, LONG)
    next(left)
    left.close()
    assert llm.stats.running == 0
    first, second = llm.stream(PROMPT, LONG), llm.stream(PROMPT, LONG)
    pairs = list(zip(first, second, strict=False))
    beside = llm.stream(PROMPT, LONG)
    head = next(beside)
    assert tokens(ask(llm, PROMPT, params=LONG)) == tokens([alone])
    rest = [head, *beside]
    for pieces in (rest, [a for a, _ in pairs], [b for _, b in pairs]):
        ids = [token for piece in pieces for token in piece.token_ids]
        assert ids == alone.outputs[0].token_ids[: len(ids)]
    assert len(rest) == 60
    first.close()
    second.close()


def test_threads_share_one_model(llm):
    expected = tokens(ask(llm, PROMPT, [7, 8], params=LONG))
    found = {}

    def work(i):
        found[i] = tokens(ask(llm, PROMPT, [7, 8], params=LONG))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found.values()) == [expected] * 4


@pytest.mark.parametrize("place", ["forward", "sample"])
def test_a_step_that_fails_costs_its_requests_and_nothing_else(llm, place, monkeypatch, caplog):
    expected = tokens(ask(llm, PROMPT))
    with monkeypatch.context() as patch:
        break_next(patch, llm, place, ValueError("broken"))
        lost, other = ask(llm, [*PROMPT[1:], 5, 6, 7], [9])
    assert lost.error == other.error == "ValueError while computing"
    assert lost.outputs[0].finish_reason == "error"
    again = ask(llm, [*PROMPT[1:], 5, 6, 7], PROMPT)
    assert again[0].num_cached_tokens == 0, "what was never written must not be found"
    assert tokens([again[1]]) == expected


@pytest.mark.parametrize("place", ["forward", "sample"])
def test_an_interrupt_in_a_step_leaves_nothing_behind(llm, place, monkeypatch):
    fresh = [*PROMPT[2:], 5, 6, 7]
    with monkeypatch.context() as patch:
        break_next(patch, llm, place, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            ask(llm, fresh)
    assert llm.stats.kv_blocks_used == 0
    [again] = ask(llm, fresh)
    assert again.num_cached_tokens == 0
    assert len(again.outputs[0].token_ids) == 8


def test_an_interrupt_in_one_stream_does_not_silence_another(llm, monkeypatch):
    first, second = llm.stream(PROMPT, LONG), llm.stream([7, 8], LONG)
    next(first), next(second)
    with monkeypatch.context() as patch:
        break_next(patch, llm, "sample", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            list(first)
    assert [piece.finish_reason for piece in second][-1] == "error"


def break_next(patch, llm, place, error):
    def broken(*_):
        raise error

    patch.setattr(llm._local.engine._executor._worker._runner, place, broken)


def test_without_a_tokenizer(folder):
    llm = LLM(str(folder), kv_memory="8MiB", threads=1, skip_tokenizer_init=True)
    by_ids, by_text = ask(llm, PROMPT, "text")
    assert len(by_ids.outputs[0].token_ids) == 8
    assert by_ids.outputs[0].text == ""
    assert "skip_tokenizer_init" in by_text.error
    [stopped] = ask(llm, PROMPT, params=SamplingParams(stop="x"))
    assert "stop strings need a tokenizer" in stopped.error


def test_dummy_weights_need_no_weight_file(folder, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ConfigError):
        LLM(str(tmp_path), kv_memory="8MiB")
    made = [LLM(str(tmp_path), kv_memory="8MiB", load_format="dummy", seed=s) for s in (1, 1, 2)]
    first, same, other = (tokens(ask(llm, PROMPT, params=LONG)) for llm in made)
    assert first == same != other


def test_kv_in_int8(folder):
    """The same cold and warm and on both paths; more tokens fit than in floats."""
    options = {"kv_memory": "1MiB", "threads": 1, "dtype": "float32"}
    floats = LLM(str(folder), **options)
    native, torch = (
        LLM(str(folder), kv_dtype="int8", model_impl=by, **options) for by in ("native", "torch")
    )
    cold = ask(native, PROMPT, params=LONG)
    assert tokens(cold) == tokens(ask(native, PROMPT, params=LONG))
    assert tokens(cold) == tokens(ask(torch, PROMPT, params=LONG))
    assert native.info.kv_dtype == torch.info.kv_dtype == "int8" != floats.info.kv_dtype
    more, fewer = (longest_sequence(llm.info.layout) for llm in (native, floats))
    assert more > 3 * fewer
    assert "int8" in native.info.table

"""What evaluations ask of a server, against Transformers; and having an answer again."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import torch
from tiny_chat import tiny_chat_model
from transformers import AutoModelForCausalLM
from vocabularies import TRICKY

from octavo import LLM
from octavo.bench.online import own_server
from octavo.files.model_files import ModelFiles
from octavo.text.tokenizer import load_tokenizer

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
OPTIONS = {"dtype": "float32", "kv_memory": "16MiB", "threads": 1}
PROMPTS = [text for text in TRICKY if len(text) > 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_chat_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return load_tokenizer(ModelFiles("tiny", folder))


@pytest.fixture(scope="module")
def truth(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def logprobs(ids):
        """[token, vocabulary], of what follows each token."""
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].log_softmax(-1)

    return logprobs


@pytest.fixture(scope="module")
def url(folder):
    """Of a server that computes prompts in chunks of 8 tokens."""
    flags = ["--dtype", "float32", "--kv-memory", "16MiB", "--threads", "1"]
    flags += ["--max-num-seqs", "8", "--max-num-batched-tokens", "8"]
    with asyncio.Runner() as runner:
        server = own_server(str(folder), flags)
        yield runner.run(server.__aenter__())
        runner.run(server.__aexit__(None, None, None))


@pytest.fixture
async def http(url):
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


async def ask(http, route=TEXT, **body):
    answer = await http.post(route, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("max_tokens", [0, 1])
async def test_the_logprobs_of_prompts_are_transformers(http, tokenizer, truth, max_tokens):
    """Cold, warm, in chunks, beside each other; and whether each token is the likeliest."""
    body = {"prompt": PROMPTS, "echo": True, "logprobs": 1, "max_tokens": max_tokens}
    body |= {"temperature": 0, "cache_salt": str(max_tokens)}
    cold, warm = await ask(http, **body), await ask(http, **body)
    assert cold["choices"] == warm["choices"]
    for text, choice in zip(PROMPTS, cold["choices"], strict=True):
        ids, found = tokenizer.encode(text), choice["logprobs"]
        expected = truth(ids)
        assert choice["text"][: len(text)] == text
        assert len(found["tokens"]) == len(ids) + max_tokens
        assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
        for i, id in enumerate(ids[1:], 1):
            told, top = found["token_logprobs"][i], found["top_logprobs"][i]
            assert told == pytest.approx(expected[i - 1, id].item(), abs=1e-4)
            assert max(top.values()) == pytest.approx(expected[i - 1].max().item(), abs=1e-4)
            assert (told == max(top.values())) == (expected[i - 1].argmax() == id)


async def test_a_greedy_answer_is_told_as_greedy(http, truth):
    ids, n = [70, 71, 72], 6
    for _ in range(n):
        ids.append(int(truth(ids)[-1].argmax()))
    answer = await ask(http, prompt=ids, echo=True, logprobs=1, max_tokens=0)
    logprobs = answer["choices"][0]["logprobs"]
    pairs = zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True)
    assert [told == max(top.values()) for told, top in list(pairs)[-n:]] == [True] * n


async def test_text_offsets_are_where_tokens_begin(http, tokenizer):
    for text in PROMPTS:
        answer = await ask(http, prompt=text, echo=True, logprobs=0, max_tokens=8, seed=1)
        [choice] = answer["choices"]
        logprobs = choice["logprobs"]
        ends = [*logprobs["text_offset"][1:], len(choice["text"])]
        for token, begin, end in zip(
            logprobs["tokens"], logprobs["text_offset"], ends, strict=True
        ):
            shown = choice["text"][begin:end].lstrip("\ufffd")  # cut off by the token before
            hidden = token.startswith("<|") and begin >= len(text)
            if not token.startswith("\\x") and not hidden:
                assert shown.startswith(token)


async def test_every_form_of_prompt_is_echoed_alike(http, tokenizer):
    text = "The capital of France"
    ids = tokenizer.encode(text)
    body = {"echo": True, "logprobs": 2, "max_tokens": 4, "seed": 5, "n": 2}
    alone = (await ask(http, prompt=text, **body))["choices"]
    assert (await ask(http, prompt=ids, **body))["choices"] == alone
    several = (await ask(http, prompt=[ids, ids], **body))["choices"]
    assert [{**choice, "index": i % 2} for i, choice in enumerate(several)] == alone * 2
    assert alone[0]["text"] != alone[1]["text"]


@pytest.mark.parametrize("route", [TEXT, CHAT])
async def test_a_reported_seed_gives_the_answer_again(http, route):
    talk = [{"role": "user", "content": "hello"}]
    prompt = {"messages": talk} if route == CHAT else {"prompt": ["hello", "there"]}
    body = {**prompt, "temperature": 1.5, "max_tokens": 12, "n": 2, "return_token_ids": True}
    first = await ask(http, route, **body)
    again = await ask(http, route, **body, seed=first["seed"])
    other = await ask(http, route, **body)
    ids = [[choice["token_ids"] for choice in a["choices"]] for a in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert first["seed"] == again["seed"] != other["seed"]
    assert first["system_fingerprint"] == other["system_fingerprint"]


async def test_all_kinds_of_logprobs(http):
    """Nothing that is sent is outside JSON, and processed logprobs say what was cut."""
    body = {"prompt": "hello", "logprobs": 3, "max_tokens": 6, "seed": 3, "top_k": 2}
    body |= {"logprob_token_ids": [5, 6]}
    raw = await ask(http, **body)
    cut = await ask(http, **body, logprobs_mode="processed")
    assert (raw["logprobs_mode"], cut["logprobs_mode"]) == ("raw", "processed")
    ours, theirs = (answer["choices"][0]["logprobs"] for answer in (cut, raw))
    assert ours["tokens"] == theirs["tokens"]
    assert "log_mass" not in theirs
    for cut_one, mass, raw_one in zip(
        ours["token_logprobs"], ours["log_mass"], theirs["token_logprobs"], strict=True
    ):
        assert cut_one == pytest.approx(raw_one - mass, abs=1e-4)
    assert -9999.0 in [value for top in ours["top_logprobs"] for value in top.values()]
    for top in ours["top_logprobs"] + theirs["top_logprobs"]:
        assert list(top.values()) == sorted(top.values(), reverse=True)


def test_the_fingerprint_is_of_what_the_bits_depend_on(folder, tmp_path):
    def digest(place=folder, **options):
        llm = LLM(str(place), **(OPTIONS | options))
        llm.close()
        return llm.info.digest

    own = digest()
    elsewhere = tmp_path / "copy"
    elsewhere.mkdir()
    for file in folder.iterdir():
        (elsewhere / file.name).write_bytes(file.read_bytes())
    same = [digest(elsewhere), digest(threads=2), digest(prefix_caching=False)]
    same += [digest(speculation="ngram"), digest(max_num_batched_tokens=64, async_scheduling=True)]
    assert set(same) == {own}
    others = [digest(kv_dtype="int8"), digest(dtype="bfloat16"), digest(model_impl="torch")]
    assert len({own, *others}) == 4
    model = AutoModelForCausalLM.from_pretrained(elsewhere)
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    model.save_pretrained(elsewhere)
    for shard in elsewhere.glob("*-of-*"):
        shard.unlink()
    (elsewhere / "model.safetensors.index.json").unlink()
    assert digest(elsewhere) != own

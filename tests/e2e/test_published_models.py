"""Models as they were published, against Transformers reading the same file."""

from __future__ import annotations

import pytest
import torch

from octavo import LLM, SamplingParams
from octavo.base.errors import ModelError
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles

QUESTIONS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "The three laws of thermodynamics are",
    "Water boils at",
    "In 1969, the first human",
    "Dear Sir or Madam,",
    "import numpy as np\n\nx = np.",
    "Roses are red, violets are",
    "The mitochondria is",
    "Q: What is 12 times 12?\nA:",
    "The quick brown fox",
    "To make an omelette, first",
    "SELECT name FROM users WHERE",
    "La capitale de l'Espagne est",
    "Photosynthesis is the process by which",
    "She opened the door and saw",
    "The theory of relativity was developed by",
    "1, 1, 2, 3, 5, 8,",
    "The best way to learn a language is",
]
LENGTH = 64


def test_greedy_tokens_equal_transformers(default_model):
    check_greedy(default_model, [QUESTIONS])


@pytest.mark.slow
def test_gemma_beyond_its_windows(gemma):
    check_greedy(gemma, [QUESTIONS[:6], ["In 1969, " + "the fox jumped over the lazy dog. " * 80]])


@pytest.fixture
def gemma() -> ModelFiles:
    """Gemma-3-270M as Q4_K_M, where the user accepted its terms and pulled it."""
    try:
        return locate("gemma3-270m")
    except ModelError as error:
        pytest.skip(str(error))


def check_greedy(files, batches):
    import transformers

    llm = LLM(str(files.path), dtype="float32", kv_memory="512MiB", max_model_len=1024)
    batches = [[llm.text.tokenizer.encode(text) for text in texts] for texts in batches]
    params = SamplingParams(temperature=0.0, max_tokens=LENGTH, ignore_eos=True)
    together = [prompt for prompts in batches for prompt in prompts]
    ours = [o.outputs[0].token_ids for o in llm.generate(together, params, use_tqdm=False)]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        files.path.parent, gguf_file=files.path.name, dtype=torch.float32
    )
    theirs = [tokens for prompts in batches for tokens in generate_together(model, prompts)]
    assert ours == theirs


def generate_together(model, prompts):
    """All prompts in one batch, padded on the left."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    model.generation_config.eos_token_id = None
    with torch.inference_mode():
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0
        )
    return out[:, longest:].tolist()


def test_it_knows_the_capital_of_japan(default_model):
    llm = LLM(str(default_model.path), kv_memory="64MiB", max_model_len=1024)
    [answer] = llm.chat(
        [{"role": "user", "content": "What is the capital of Japan?"}],
        SamplingParams(temperature=0.0, max_tokens=20),
        use_tqdm=False,
    )
    assert "Tokyo" in answer.outputs[0].text


def test_a_conversation_computes_only_what_its_cached_run_lacks(default_model):
    """From the first token whose id differs: the last one generated, and what is new."""
    llm = LLM(str(default_model.path), kv_memory="256MiB", max_model_len=2048)
    params = SamplingParams(temperature=0.0, max_tokens=24)
    talk, run = [], []
    for turn in range(10):
        talk.append({"role": "user", "content": f"Tell me one thing about the number {turn}."})
        [answer] = llm.chat(talk, params, use_tqdm=False)
        prompt, said = answer.prompt_token_ids, answer.outputs[0]
        assert answer.num_cached_tokens == common(prompt[:-1], run)
        assert turn == 0 or len(prompt) - answer.num_cached_tokens < 30
        run = (prompt + said.token_ids)[:-1]  # whose KV is computed
        talk.append({"role": "assistant", "content": said.text})


def common(a: list[int], b: list[int]) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def test_eight_answers_to_a_long_prompt_compute_it_once(default_model):
    llm = LLM(str(default_model.path), kv_memory="256MiB", max_model_len=2048)
    prompt = (llm.text.tokenizer.encode(" ".join(QUESTIONS)) * 9)[:1003]
    params = SamplingParams(n=8, seed=1, max_tokens=20, ignore_eos=True)
    [output] = llm.generate([prompt], params, use_tqdm=False)
    assert llm.stats.computed_tokens_total == 1003 + 8 * 19
    assert llm.stats.kv_copies_total == 7
    assert len({tuple(answer.token_ids) for answer in output.outputs}) > 2

"""An EAGLE-3 head drafts: it guesses what a plain reading of its tensors says, and answers stay the
same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from drafting import always, answers, close_to_best, listen, load, some_requests
from tiny_heads import HEAD_DIM, HEADS, KV_HEADS, tiny_head
from tiny_models import tiny_model
from torch.nn import functional as F

from octavo import SamplingParams
from octavo.base.errors import ConfigError
from octavo.speculative.eagle import EagleProposer

LAYERS = [0, 2, 1]  # whose outputs the head reads


@pytest.fixture(autouse=True)
def _always(monkeypatch):
    always(monkeypatch)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A folder and its model."""
    folder = tmp_path_factory.mktemp("target")
    return folder, tiny_model(folder, "qwen3", num_hidden_layers=4)


def drafting(folder: Any, head: Any, impl: str = "native", **options: Any):
    return load(folder, impl, speculation="eagle", draft_model=str(head), **options)


class Plain:
    """One head over a whole sequence, with no cache, as its paper describes it."""

    def __init__(
        self,
        tensors: dict[str, np.ndarray],
        model: Any,
        layers: list[int],
        normed_stream: bool = False,
    ) -> None:
        self.of = {name: torch.from_numpy(t) for name, t in tensors.items() if name != "t2d"}
        self.model, self.layers, self.normed_stream = model, layers, normed_stream
        self._seen: list[tuple[list[int], torch.Tensor]] = []
        self.embedding = self.of.get("embed_tokens.weight", model.model.embed_tokens.weight)

    @torch.no_grad()
    def check(self, known: list[int], guesses: list[int]) -> None:
        """Each guess is the likeliest token behind the known ones and the guesses before it."""
        told = self._told(known)
        # Before the first token nothing is known; behind the newest but one, the head's own output.
        mind = [torch.zeros_like(told[0]), *told[:-1]]
        for i, token in enumerate(guesses):
            x = self._layer([*known, *guesses[:i]], torch.stack(mind))
            mind.append(x[-1])
            assert close_to_best(self._logits(x[-1]), token)

    def _told(self, known: list[int]) -> torch.Tensor:
        """Features as the head takes them; a token's do not depend on later ones."""
        for tokens, told in self._seen:
            if tokens[: len(known)] == known:
                return told[: len(known)]
        hidden = self.model(torch.tensor([known]), output_hidden_states=True).hidden_states
        told = torch.cat([hidden[n + 1][0] for n in self.layers], -1) @ self.of["fc.weight"].T
        self._seen.append((known, told))
        return told

    def _logits(self, x: torch.Tensor) -> np.ndarray:
        """Over the target's vocabulary."""
        drafted = self.of["lm_head.weight"] @ self._norm("norm", x)
        ids = torch.arange(len(drafted)) + self.of.get("d2t", 0)
        spread = torch.full((512,), drafted.min() - 1)
        spread[ids] = drafted
        return spread.numpy()

    def _layer(self, tokens: list[int], mind: torch.Tensor) -> torch.Tensor:
        normed = self._norm("midlayer.hidden_norm", mind)
        embedded = self._norm("midlayer.input_layernorm", self.embedding[torch.tensor(tokens)])
        pair = torch.cat((embedded, normed), -1)
        q, k, v = (self._heads(pair, name) for name in "qkv")
        together = HEADS // KV_HEADS
        mixed = F.scaled_dot_product_attention(
            _turned(q),
            _turned(k).repeat_interleave(together, 0),
            v.repeat_interleave(together, 0),
            is_causal=True,
        )
        x = normed if self.normed_stream else mind
        x = x + mixed.transpose(0, 1).flatten(1) @ self._of("self_attn.o_proj").T
        y = self._norm("midlayer.post_attention_layernorm", x)
        inner = F.silu(y @ self._of("mlp.gate_proj").T) * (y @ self._of("mlp.up_proj").T)
        return x + inner @ self._of("mlp.down_proj").T

    def _heads(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return (x @ self._of(f"self_attn.{name}_proj").T).view(len(x), -1, HEAD_DIM).transpose(0, 1)

    def _of(self, name: str) -> torch.Tensor:
        return self.of[f"midlayer.{name}.weight"]

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * self.of[f"{name}.weight"]


def _turned(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions of [heads, tokens, dim], half-split."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1])[:, None] * 10000.0 ** -(torch.arange(half) / half)
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


@pytest.mark.parametrize("impl", ["native", "torch"])
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"embedding": True, "drafted": 512},
        {"norm_before_residual": True, "eagle_config": {}},
    ],
    ids=["drafts some tokens", "embeds and drafts all", "normed, the usual layers"],
)
def test_guesses_are_those_of_a_plain_reading(target, tmp_path, kind, impl, monkeypatch):
    folder, model = target
    tensors = tiny_head(
        tmp_path, **{"eagle_config": {"eagle_aux_hidden_state_layer_ids": LAYERS}, **kind}
    )
    layers = [1, 1, 0] if kind.get("eagle_config") == {} else LAYERS
    plain = Plain(tensors, model, layers, kind.get("norm_before_residual", False))
    said = listen(monkeypatch, EagleProposer)
    llm = drafting(folder, tmp_path, impl, num_drafts=3, max_num_batched_tokens=100)
    greedy = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    llm.generate([prompt for prompt, _ in some_requests(5)], greedy, use_tqdm=False)
    for known, guesses in reversed(said):
        plain.check(known, guesses)
    assert sum(len(guesses) for _, guesses in said) > 40


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"async_scheduling": True},
        {"max_num_seqs": 4, "max_num_batched_tokens": 17},
        {"kv_memory": "330KiB", "max_model_len": 110, "max_num_seqs": 8},
    ],
    ids=["plainly", "ahead", "in small steps", "where memory is short"],
)
def test_answers_are_the_same_with_guesses_accepted_and_rejected(target, tmp_path, options):
    """Of four tokens that may be said and drafted, some are right by chance."""
    folder, _ = target
    tensors = tiny_head(tmp_path, drafted=4)
    few = (tensors["d2t"] + np.arange(4)).tolist()
    asked = some_requests(24, allowed_token_ids=few)
    plain = answers(load(folder), asked)
    llm = drafting(folder, tmp_path, **options)
    assert answers(llm, asked) == plain
    assert answers(llm, asked) == plain
    assert 20 < llm.stats.accepted_tokens_total < llm.stats.draft_tokens_total
    assert llm.stats.kv_blocks_used == 0


def test_guesses_behind_a_rejected_one_are_those_of_a_plain_reading(target, tmp_path, monkeypatch):
    """What was accepted, and what was not, leaves the head with the target's own features."""
    folder, model = target
    tensors = tiny_head(tmp_path, drafted=4)
    few = (tensors["d2t"] + np.arange(4)).tolist()
    said = listen(monkeypatch, EagleProposer)
    llm = drafting(folder, tmp_path, prefix_caching=False)
    params = SamplingParams(seed=1, max_tokens=40, ignore_eos=True, allowed_token_ids=few)
    llm.generate([prompt for prompt, _ in some_requests(4)], params, use_tqdm=False)
    assert 0 < llm.stats.accepted_tokens_total < llm.stats.draft_tokens_total
    plain = Plain(tensors, model, [0, 1, 1])
    for known, guesses in reversed(said):
        plain.check(known, guesses)
    assert len(said) > 20


def test_new_weights_and_sleep_go_on_with_the_head(target, tmp_path):
    folder, model = target
    tiny_head(tmp_path)
    prompts = [prompt for prompt, _ in some_requests(4)]
    greedy = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    llm = drafting(folder, tmp_path)

    def said() -> list[list[int]]:
        return [o.outputs[0].token_ids for o in llm.generate(prompts, greedy, use_tqdm=False)]

    first = said()
    llm.sleep()
    llm.wake_up()
    assert said() == first
    llm.update_weights({n: (t + 0.01).numpy() for n, t in model.state_dict().items()})
    drafted = llm.stats.draft_tokens_total
    assert said() != first
    assert llm.stats.draft_tokens_total > drafted
    llm.update_weights({n: t.numpy() for n, t in model.state_dict().items()})
    assert said() == first


def test_weights_and_kv_of_the_head_are_planned_and_shown(target, tmp_path):
    folder, _ = target
    tensors = tiny_head(tmp_path)
    info = drafting(folder, tmp_path).info
    [group] = info.layout.groups
    assert group.layers == (0, 1, 2, 3, 4)
    of_head = 2 * KV_HEADS * HEAD_DIM * 4
    assert group.bytes_per_token == load(folder).info.layout.groups[0].bytes_per_token + of_head
    count = sum(t.size for name, t in tensors.items() if name not in ("d2t", "t2d"))
    assert f"{count:,} parameters" in info.table


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "architectures .* are not one of"),
        ({"num_hidden_layers": 2}, "num_hidden_layers must be 1"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 9]}}, "of 4 layers"),
        ({"width": 96}, "misshapen 1 tensor: fc.weight"),
        ({"hidden_size": 32}, "it has no embedding and 32 is not the model's hidden_size, 64"),
        ({"embedding": True, "vocab_size": 100}, "it must know all 512 tokens of the model"),
        ({"drafted": 600}, "it drafts tokens that are none of the model's 512"),
        ({"draft_vocab_size": 100}, "d2t has not 100 entries"),
    ],
)
def test_a_head_that_is_not_understood_is_refused(target, tmp_path, kind, told):
    tiny_head(tmp_path, **kind)
    with pytest.raises(ConfigError, match=f"draft_model {tmp_path}: .*{told}"):
        drafting(target[0], tmp_path)


def test_a_head_without_its_files_is_refused(target, tmp_path):
    tiny_head(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model\.safetensors is missing"):
        drafting(target[0], tmp_path)

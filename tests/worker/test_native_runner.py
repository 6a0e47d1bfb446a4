"""The native program against its torch twin, and against itself however a step was cut."""

from __future__ import annotations

import random

import gguf
import numpy as np
import pytest
import torch
from steps import Steps
from tiny_gguf import tiny_gguf
from tiny_int8 import quantise_activations, tiny_int8
from tiny_models import DENSE, tiny_model

from octavo.files.model_files import ModelFiles
from octavo.models.families import model_spec
from octavo.models.memory import kv_layout
from octavo.native.kv import allocate
from octavo.native.library import library, usable_variants
from octavo.native.memory import weight_bytes
from octavo.weights.formats import BLOCK_FORMATS, weight_formats
from octavo.weights.open import open_checkpoint
from octavo.worker.native_runner import NativeRunner
from octavo.worker.torch_runner import TorchRunner

VOCAB = 512
HEAD = ["lm_head"]
WIDE = {  # rows that k-quants can cut
    "hidden_size": 256,
    "intermediate_size": 512,
    "head_dim": 64,
}


class Case:
    """A tiny model and runners for it."""

    def __init__(self, path, dtype: str, kv_dtype: str | None = None) -> None:
        self.files = ModelFiles("tiny", path)
        self.dtype, self.kv_dtype = dtype, kv_dtype or dtype
        self.spec = model_spec(self.files, self.kv_dtype)
        self.layout = kv_layout(self.spec.kv_groups, 16, 4_000_000)
        self.checkpoint = open_checkpoint(self.files, "auto", self.spec, 0)

    def native(self, variant=None, quantization="none", threads=2, hidden_of=()):
        native = library(variant)
        formats = weight_formats(self.spec, self.checkpoint, self.dtype, quantization)
        runner = NativeRunner(
            native,
            self.spec,
            self.layout,
            self.checkpoint,
            formats,
            self.kv_dtype,
            threads,
            self.files.path.parent / "cache",
            hidden_of=hidden_of,
        )
        assert runner.weight_bytes == weight_bytes(native, self.spec, formats)
        return runner

    def torch(self):
        return TorchRunner(
            self.spec, self.layout, self.checkpoint, self.dtype, self.kv_dtype, "cpu"
        )


def some_tokens(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(length)]


PROMPTS = {f"s{i}": some_tokens(i, n) for i, n in enumerate((1, 7, 16, 33, 48, 61))}


@pytest.mark.parametrize("variant", usable_variants())
@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("family", DENSE)
def test_native_equals_torch(family, kv_dtype, variant, tmp_path):
    """What is kept in coarser numbers may be rounded to the other side: rarely."""
    tiny_model(tmp_path, family)
    case, limit = Case(tmp_path, "float32", kv_dtype), 2e-4 if kv_dtype == "float32" else 2e-3
    native, twin = (Steps(r, case.layout) for r in (case.native(variant), case.torch()))
    rows = list(PROMPTS.items())
    assert close(native.run(rows), twin.run(rows), limit)
    more = [(name, some_tokens(9, 3)) for name in PROMPTS]
    assert close(native.run(more), twin.run(more), limit)


def close(ours, theirs, limit=2e-4) -> bool:
    return bool(np.abs(ours - theirs).max() < limit * np.abs(theirs).max())


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "float16", "int8"])
def test_bytes_planned_are_bytes_allocated(kv_dtype, tmp_path):
    tiny_model(tmp_path, "qwen2_mixed")
    case = Case(tmp_path, "float32", kv_dtype)
    made = allocate(library(), case.layout, kv_dtype, case.spec.attends, {})
    assert sum(pool.nbytes for pool in made.pools) == case.layout.total_bytes
    places = made.attention.values()
    assert {id(place.memory) for place in places} == {id(pool) for pool in made.pools}


@pytest.mark.parametrize("variant", usable_variants())
@pytest.mark.parametrize("kv_dtype", [None, "int8"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_bits_do_not_depend_on_the_cut_of_steps(dtype, kv_dtype, variant, tmp_path):
    tiny_model(tmp_path, "qwen2_mixed")
    check_every_cut(Case(tmp_path, dtype, kv_dtype), variant, "none")


@pytest.mark.parametrize("variant", usable_variants())
@pytest.mark.parametrize("kind", BLOCK_FORMATS)
def test_bits_do_not_depend_on_the_cut_of_steps_in_blocks(kind, variant, tmp_path):
    if kind.endswith("_k"):
        pytest.skip("gguf writes no k-quants")
    model = tiny_model(tmp_path / "hf", "llama", **WIDE)
    tiny_gguf(tmp_path / "model.gguf", model, kind.upper())
    check_every_cut(Case(tmp_path / "model.gguf", "bfloat16"), variant, "auto")


@pytest.mark.parametrize("variant", usable_variants())
def test_bits_do_not_depend_on_the_cut_of_steps_in_int8(variant, tmp_path):
    tiny_int8(tmp_path / "int8", tiny_model(tmp_path / "hf", "qwen2_mixed"))
    check_every_cut(Case(tmp_path / "int8", "bfloat16"), variant, "auto")


def check_every_cut(case: Case, variant, quantization) -> None:
    """Logits and hidden states are the same bits alone, together, in chunks, in any order, in
    other pages, and by one thread or two."""
    layers = range(len(case.spec.layers))
    make = {n: case.native(variant, quantization, n, layers) for n in (1, 2)}

    def outcome(runner, shuffle, cut):
        steps, found = Steps(runner, case.layout, shuffle), {}
        for rows in cut:
            logits = steps.run(rows)
            hidden = [np.array(runner.hidden(n)) for n in layers]
            for i, (name, _) in enumerate(rows):
                found[name] = [logits[i].tobytes(), *(h[i].tobytes() for h in hidden)]
        return found

    whole = list(PROMPTS.items())
    expected = outcome(make[2], 0, [whole])
    assert outcome(make[1], 1, [[row] for row in whole]) == expected
    assert outcome(make[2], 2, [whole[::-1]]) == expected
    for length in (1, 5, 16):
        assert outcome(make[2], length, chunks(length)) == expected


def chunks(length: int):
    """Every prompt in pieces of `length`, all sequences side by side."""
    for start in range(0, max(map(len, PROMPTS.values())), length):
        yield [(n, p[start : start + length]) for n, p in PROMPTS.items() if len(p) > start]


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_block_formats_compute_what_the_file_says(kind, tmp_path):
    """Near the float32 model of the same values: int8 activations cost a few per cent here."""
    model = tiny_model(tmp_path / "hf", "llama", **WIDE)
    values = tiny_gguf(tmp_path / "model.gguf", model, kind)
    model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in values.items()})
    case = Case(tmp_path / "model.gguf", "bfloat16")
    rows = [("a", some_tokens(1, 40))]
    ours = Steps(case.native(quantization="auto"), case.layout).run(rows)[0]
    theirs = answers(model, rows[0][1])
    assert np.abs(ours - theirs).max() < 0.1 * np.abs(theirs).max()


def answers(model, tokens: list[int]) -> np.ndarray:
    """Logits of Transformers after `tokens`."""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0, -1].numpy()


@pytest.mark.parametrize("variant", usable_variants())
@pytest.mark.parametrize("family", DENSE)
def test_int8_multiplies_codes_of_weights_and_tokens(family, variant, tmp_path):
    check_int8(tmp_path, family, variant, floats=HEAD)


@pytest.mark.parametrize("variant", usable_variants())
def test_some_linears_may_not_be_int8(variant, tmp_path):
    floats = [*HEAD, "model.layers.0.self_attn.k_proj", "model.layers.1.mlp.up_proj"]
    check_int8(tmp_path, "qwen2", variant, floats)


def check_int8(folder, family, variant, floats) -> None:
    """Transformers computes the same with such weights and activations; `floats` names linears that
    are none of them. A rounding may fall to the other side: rarely."""
    model = tiny_model(folder / "hf", family)
    tiny_int8(folder / "int8", model, ignore=floats)
    case, tokens = Case(folder / "int8", "float32"), some_tokens(1, 40)
    [ours] = Steps(case.native(variant, "auto"), case.layout).run([("a", tokens)])
    in_floats = answers(model, tokens)
    quantise_activations(model, floats)
    theirs = answers(model, tokens)
    assert np.abs(ours - theirs).max() < 0.1 * np.abs(in_floats - theirs).max()


@pytest.mark.parametrize(
    ("activations", "quantization"), [(True, "none"), (False, "none"), (False, "auto")]
)
def test_int8_weights_in_floats_are_what_the_folder_says(activations, quantization, tmp_path):
    model = tiny_model(tmp_path / "hf", "qwen2")
    tiny_int8(tmp_path / "int8", model, activations=activations)
    case, tokens = Case(tmp_path / "int8", "float32"), some_tokens(1, 40)
    for runner in (case.native(quantization=quantization), case.torch()):
        [ours] = Steps(runner, case.layout).run([("a", tokens)])
        assert close(ours, answers(model, tokens))


def test_any_checkpoint_can_be_quantised_at_load(tmp_path):
    """To the very blocks that the gguf package writes."""
    model = tiny_model(tmp_path / "hf", "llama", **WIDE)
    values = tiny_gguf(tmp_path / "model.gguf", model, "Q8_0")
    model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in values.items()})
    model.save_pretrained(tmp_path / "values")
    rows = list(PROMPTS.items())
    stored = Case(tmp_path / "model.gguf", "bfloat16")
    converted = Case(tmp_path / "values", "bfloat16")
    ours = Steps(converted.native(quantization="q8_0"), converted.layout).run(rows)
    theirs = Steps(stored.native(quantization="auto"), stored.layout).run(rows)
    assert ours.tobytes() == theirs.tobytes()


def test_values_of_attention_are_floats_beside_blocks(tmp_path):
    tiny_model(tmp_path, "llama", **WIDE)
    case = Case(tmp_path, "bfloat16")
    formats = weight_formats(case.spec, case.checkpoint, "bfloat16", "q8_0")
    found = {name.split(".")[-2]: kept for name, kept in formats.items() if kept != "f32"}
    assert found.pop("v_proj") == "bf16"
    assert set(found.values()) == {"q8_0"}


def test_quantised_weights_are_kept_for_the_next_start(tmp_path, monkeypatch):
    tiny_model(tmp_path / "hf", "llama", **WIDE)
    case = Case(tmp_path / "hf", "bfloat16")
    rows = list(PROMPTS.items())
    first = Steps(case.native(quantization="q4_1"), case.layout).run(rows)
    [kept] = (tmp_path / "cache").iterdir()
    with monkeypatch.context() as patched:
        patched.setattr(gguf.quants, "quantize", None)  # nobody may ask for it
        again = Steps(case.native(quantization="q4_1"), case.layout).run(rows)
    assert again.tobytes() == first.tobytes()
    kept.write_bytes(kept.read_bytes()[:-1])  # cut short: made anew
    anew = Steps(case.native(quantization="q4_1"), case.layout).run(rows)
    assert anew.tobytes() == first.tobytes()
    case.native(quantization="q8_0")
    case.native(quantization="none")
    assert len(list((tmp_path / "cache").iterdir())) == 2

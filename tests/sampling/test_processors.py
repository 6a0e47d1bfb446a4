"""An operator's own code between logits and controls: loading it, and what it may do wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from sampling_rows import Tilt, make_row, random_logits

from octavo.base.errors import ConfigError
from octavo.native import sampling as native
from octavo.native.library import library
from octavo.sampling import sampler
from octavo.sampling.processors import load_processors
from octavo.sampling.rows import Drawn, SamplingRow


class Only:
    """Leaves what the request names."""

    def __call__(
        self, logits: np.ndarray, token_ids: np.ndarray, prompt_len: int, extra_args: Any
    ) -> None:
        keep = logits[extra_args["only"]].copy()
        logits[:] = extra_args.get("rest", -np.inf)
        logits[extra_args["only"]] = keep


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Writes:
    def __call__(self, logits: Any, token_ids: np.ndarray, *_: Any) -> None:
        token_ids[0] = 7


LOADED = {"only": Only(), "writes": Writes(), "tilt": Tilt()}


@pytest.fixture(params=["torch", "native"])
def sample(request: pytest.FixtureRequest) -> Any:
    if request.param == "torch":
        return lambda x, rows: sampler.sample(torch.from_numpy(x), rows, LOADED)
    pool = library().Pool(2)
    return lambda x, rows: native.sample(pool, x, rows, LOADED)


def named(*names: str, **options: Any) -> SamplingRow:
    extra = {key: options.pop(key) for key in ("only", "rest") if key in options}
    return make_row(logits_processors=names, extra_args=extra, **options)


@pytest.fixture
def logits() -> np.ndarray:
    return random_logits(np.random.default_rng(1), 3, 50).numpy()


def test_it_changes_what_is_drawn_and_not_the_models_logprobs(sample: Any, logits: Any) -> None:
    rows = [make_row(logprobs=2), named("only", only=[9], logprobs=2), make_row(temperature=0.0)]
    before = logits.copy()
    plain = sample(logits, [rows[0], make_row(logprobs=2), rows[2]])
    drawn = sample(logits, rows)
    assert drawn[0] == plain[0] and drawn[2] == plain[2]
    assert drawn[1].token_id == 9
    assert drawn[1].logprobs.top == plain[1].logprobs.top
    expected = torch.from_numpy(logits[1]).log_softmax(0)[9].item()
    assert drawn[1].logprobs.logprob == pytest.approx(expected, abs=1e-5)
    assert np.array_equal(logits, before)


def test_processed_logprobs_are_those_after_it(sample: Any, logits: Any) -> None:
    row = named("only", only=[9, 4], logprobs=5, logprobs_mode="processed", temperature=0.0)
    [drawn] = sample(logits[:1], [row])
    assert [token for token, _ in drawn.logprobs.top] == sorted([4, 9], key=lambda t: -logits[0, t])
    assert sum(np.exp([p for _, p in drawn.logprobs.top])) == pytest.approx(1)


def test_the_other_controls_act_on_what_it_left(sample: Any, logits: Any) -> None:
    row = named("tilt", "only", only=[9, 4], logit_bias={4: 100.0}, bad_word_ids=[[4]])
    assert sample(logits[:1], [row])[0].token_id == 9


@pytest.mark.parametrize(
    "names,options,said",
    [
        (["only"], {}, "'only' failed: KeyError: 'only'"),
        (["tilt", "only"], {"only": [9], "rest": np.nan}, "'only' left NaN"),
        (["only"], {"only": [9], "rest": np.inf}, "'only' left NaN or [+]inf"),
        (["only"], {"only": []}, "every logit is -inf"),
        (["gone"], {}, "'gone' is not loaded"),
        (["writes"], {}, "'writes' failed: ValueError: assignment destination is read-only"),
    ],
)
def test_what_it_does_wrong_fails_its_row_alone(
    sample: Any, logits: Any, names: list[str], options: dict[str, Any], said: str
) -> None:
    rows = [make_row(logprobs=2), named(*names, **options), make_row(top_k=3)]
    plain = sample(logits, [rows[0], make_row(), rows[2]])
    drawn = sample(logits, rows)
    assert drawn[0] == plain[0] and drawn[2] == plain[2]
    with pytest.raises(ValueError, match=said):
        raise ValueError(drawn[1].error)
    assert drawn[1].token_id == -1


def test_a_fault_of_the_model_is_not_the_processors(sample: Any, logits: Any) -> None:
    logits[0, 3] = np.nan
    [drawn] = sample(logits[:1], [named("only", only=[9])])
    assert drawn == Drawn(-1, error="the model's logits contain nan")


def test_given_tokens_have_no_processors(sample: Any, logits: Any) -> None:
    row = msgspec.structs.replace(named("only", logprobs=0), given=9)
    assert sample(logits[:1], [row])[0].token_id == 9


def test_loading() -> None:
    assert load_processors(None) == {}
    loaded = load_processors("tilt=sampling_rows:Tilt, mine=sampling_rows:Tilt ,")
    assert isinstance(loaded["tilt"], Tilt) and list(loaded) == ["tilt", "mine"]


@pytest.mark.parametrize(
    "places,said",
    [
        ("sampling_rows:Tilt", "not of the form name=module:Class"),
        ("tilt=sampling_rows", "not of the form name=module:Class"),
        ("a=sampling_rows:Tilt,a=sampling_rows:Tilt", "'a' is there twice"),
        ("a=no_such_module:Tilt", "cannot be made: ModuleNotFoundError"),
        ("a=sampling_rows:Tolt", "cannot be made: AttributeError"),
        (f"a={__name__}:Broken", "cannot be made: RuntimeError: no licence"),
        ("a=builtins:object", "makes what cannot be called"),
    ],
)
def test_what_cannot_be_loaded(places: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_processors(places)

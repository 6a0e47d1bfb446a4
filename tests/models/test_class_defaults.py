"""Fields that a config.json leaves out are what Transformers' config class would fill in."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import transformers
from tiny_models import FAMILIES as TINY
from tiny_models import HYBRIDS, tiny_config

from octavo.base.errors import ModelError
from octavo.models.catalogue import NATIVE
from octavo.models.config import class_defaults, text_config
from octavo.models.families import FAMILIES
from octavo.models.spec import AttentionSpec, ModelSpec

SCRIPT = Path(__file__).parents[2] / "scripts" / "class-defaults"
NOT_OF_A_FIELD = ("model_type", "layer_types", "rope_parameters")  # tiny models have their own


def spec_of(config: dict[str, Any]) -> ModelSpec:
    spec: ModelSpec = FAMILIES.load(config["model_type"])(text_config(config), "float32")
    return spec


@pytest.mark.skipif(
    transformers.__version__ != "5.24.0", reason="the table is of Transformers 5.24"
)
@pytest.mark.parametrize("model_type", sorted(NATIVE))
def test_the_table_is_that_of_the_classes(model_type: str) -> None:
    """Else: scripts/class-defaults."""
    wanted = runpy.run_path(str(SCRIPT))["defaults"](model_type)
    assert class_defaults()[model_type] == json.loads(json.dumps(wanted))


@pytest.mark.parametrize("family", [*TINY, *HYBRIDS])
def test_a_field_that_is_left_out_is_the_classes_or_missed(family: str) -> None:
    config = tiny_config(family).to_dict()
    whole, usual = spec_of(config), class_defaults()[config["model_type"]]
    same = [n for n in config if n not in NOT_OF_A_FIELD and usual.get(n, None) == config[n]]
    assert len(same) > 3
    for name in same:
        less = {key: found for key, found in config.items() if key != name}
        try:
            assert spec_of(less) == whole, name
        except ModelError:
            assert config[name] is None


@pytest.mark.parametrize("family", [*TINY, *HYBRIDS])
def test_norms_have_the_epsilon_of_the_class(family: str) -> None:
    """Other classes' names of it may stand beside it in files."""
    config = tiny_config(family).to_dict()
    names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps")
    others = {name: 0.5 for name in names if name not in config}
    assert len(others) == (4 if family == "olmo" else 3)
    assert spec_of(config | others) == spec_of(config)


def test_a_published_gemma3_with_few_fields() -> None:
    """What google/gemma-3-4b-it says of its text, and no more."""
    spec = spec_of(
        {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        }
    )
    assert (spec.vocab_size, spec.max_model_len, spec.tied) == (262208, 131072, True)
    windows = [spec.attends[n].window for n in range(12)]
    assert windows == 2 * [1024, 1024, 1024, 1024, 1024, None]
    for layer, second in ((0, 10_000 ** (-2 / 256)), (5, 1_000_000 ** (-2 / 256) / 8)):
        [rope] = [op.rope for op in spec.layers[layer].ops if isinstance(op, AttentionSpec)]
        assert rope is not None and rope.inv_freq[1] == pytest.approx(second, rel=1e-6)

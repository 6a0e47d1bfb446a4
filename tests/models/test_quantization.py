"""Which quantised checkpoints are understood; all others are refused by name."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from tiny_int8 import int8_config

from octavo.base.errors import ModelError
from octavo.models.quantization import Int8Scheme, int8_scheme


def with_change(place: str, value: Any) -> dict[str, Any]:
    """A config that is understood, but for `value` at `place`; {} stands for the one group."""
    said = deepcopy(int8_config())
    *path, last = place.split(".")
    at = said
    for name in path:
        at = at["config_groups"]["group_0"] if name == "{}" else at[name]
    at[last] = value
    return {"quantization_config": said}


@pytest.mark.parametrize("config", [{}, {"quantization_config": None}])
def test_weights_that_are_not_quantised(config: dict[str, Any]) -> None:
    assert int8_scheme(config) is None


@pytest.mark.parametrize("activations", [True, False])
def test_int8_weights(activations: bool) -> None:
    config = {"quantization_config": int8_config(activations)}
    assert int8_scheme(config) == Int8Scheme(activations)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("sparsity_config", None),
        ("sparsity_config", {"format": "dense", "global_sparsity": 0.1}),
        ("transform_config", None),
        ("{}.format", "int-quantized"),
        ("{}.weights.actorder", "static"),
        ("ignore", ["lm_head", "re:.*down_proj"]),
    ],
)
def test_what_changes_nothing_passes(place: str, value: Any) -> None:
    assert int8_scheme(with_change(place, value)) == Int8Scheme(True)


@pytest.mark.parametrize(
    ("place", "value", "word"),
    [
        ("quant_method", "gptq", "quantization_config.quant_method='gptq'"),
        ("format", "pack-quantized", "quantization_config.format='pack-quantized'"),
        ("kv_cache_scheme", {"num_bits": 8}, "kv_cache_scheme="),
        ("transform_config", {"config_groups": {}}, "transform_config="),
        ("sparsity_config", {"format": "sparse-24-bitmask"}, "sparsity_config.format="),
        ("sparsity_config", "dense", "sparsity_config must be an object"),
        ("config_groups", {}, "config_groups must be one group"),
        ("config_groups", {"a": {}, "b": {}}, "config_groups must be one group"),
        ("config_groups", {"a": None}, "config_groups.a must be an object"),
        ("{}.format", "float-quantized", "group_0.format='float-quantized'"),
        ("{}.targets", ["re:.*mlp.*"], "group_0.targets="),
        ("{}.output_activations", {"num_bits": 8}, "group_0.output_activations="),
        ("{}.weights", None, "group_0.weights must be an object"),
        ("{}.weights.num_bits", 4, "weights.num_bits=4"),
        ("{}.weights.type", "float", "weights.type='float'"),
        ("{}.weights.symmetric", False, "weights.symmetric=False"),
        ("{}.weights.strategy", "group", "weights.strategy='group'"),
        ("{}.weights.dynamic", True, "weights.dynamic=True"),
        ("{}.input_activations.dynamic", False, "input_activations.dynamic=False"),
        ("{}.input_activations.symmetric", False, "input_activations.symmetric=False"),
        ("{}.input_activations.strategy", "tensor", "input_activations.strategy='tensor'"),
        ("{}.input_activations.num_bits", 4, "input_activations.num_bits=4"),
    ],
)
def test_another_scheme_is_refused_by_name(place: str, value: Any, word: str) -> None:
    with pytest.raises(ModelError) as refused:
        int8_scheme(with_change(place, value))
    assert word in str(refused.value)

"""What a config says of quantised weights in its checkpoint. Two schemes are understood, that of
compressed-tensors for int8 products and gpt-oss's MXFP4; every other is refused by name.

Source: the `quantization_config` that llm-compressor writes, format "int-quantized".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.base.errors import ModelError

Known = Mapping[str, tuple[Any, ...]]  # name -> values that are understood

_INT8: Known = {"num_bits": (8,), "type": ("int",), "symmetric": (True,)}
_WEIGHTS: Known = {**_INT8, "strategy": ("channel",), "dynamic": (False,)}
_ACTIVATIONS: Known = {**_INT8, "strategy": ("token",), "dynamic": (True,)}
_GROUP: Known = {
    "targets": (["Linear"],),
    "format": (None, "int-quantized"),
    "output_activations": (None,),
}
_WHOLE: Known = {
    "quant_method": ("compressed-tensors",),
    "format": ("int-quantized",),
    "kv_cache_scheme": (None,),
    "transform_config": (None, {}),
}
_SPARSITY: Known = {"format": (None, "dense")}


@dataclass(frozen=True)
class Int8Scheme:
    """Weights of linears are int8 with one scale for each output; which linears, their tensors say.

    `activations`: the model was made for activations in int8 too, with one scale for each token.
    """

    activations: bool


def is_mxfp4(config: Mapping[str, Any]) -> bool:
    """Whether experts are kept in MXFP4, as gpt-oss's files do."""
    said = config.get("quantization_config")
    return isinstance(said, Mapping) and said.get("quant_method") == "mxfp4"


def int8_scheme(config: Mapping[str, Any]) -> Int8Scheme | None:
    """None where the weights are not quantised, or in MXFP4.

    Raises:
        ModelError: they are quantised in a way that is not supported.
    """
    said = config.get("quantization_config")
    if said is None or said is False or is_mxfp4(config):
        return None
    where = "quantization_config"
    _check(where, said, _WHOLE)
    _check(f"{where}.sparsity_config", said.get("sparsity_config") or {}, _SPARSITY)
    groups = said.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise ModelError(f"config: {where}.config_groups must be one group, got {groups!r}")
    [(name, group)] = groups.items()
    return _scheme(f"{where}.config_groups.{name}", group)


def _scheme(where: str, group: Any) -> Int8Scheme:
    _check(where, group, _GROUP)
    _check(f"{where}.weights", group.get("weights"), _WEIGHTS)
    activations = group.get("input_activations")
    if activations is not None:
        _check(f"{where}.input_activations", activations, _ACTIVATIONS)
    return Int8Scheme(activations is not None)


def _check(where: str, found: Any, known: Known) -> None:
    if not isinstance(found, Mapping):
        raise ModelError(f"config: {where} must be an object, got {found!r}")
    for name, values in known.items():
        if found.get(name) not in values:
            raise ModelError(f"config: {where}.{name}={found.get(name)!r} is not supported")

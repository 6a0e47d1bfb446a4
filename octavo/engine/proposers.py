"""Who guesses tokens, from settings: checked, and its memory known, before any weights are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from octavo.base.errors import ConfigError
from octavo.base.settings import EngineSettings
from octavo.engine.backends import Backend, FallbackBackend, NativeBackend, Watch
from octavo.engine.heads import open_head
from octavo.engine.resolved import Resolved, resolve
from octavo.files.locate import locate
from octavo.models.beside import NOTHING, Beside, drafting_layers, groups_together
from octavo.models.facts import ModelFacts
from octavo.models.spec import ModelSpec
from octavo.speculative.eagle import EagleProposer
from octavo.speculative.model import ModelProposer
from octavo.speculative.ngram import NgramProposer
from octavo.speculative.proposer import Proposer
from octavo.speculative.suffix import SuffixProposer
from octavo.worker.worker import Runner

Make = Callable[[Runner], Proposer | None]


@dataclass(frozen=True)
class Drafting:
    """What guesses, and what it takes.

    `make` gives a proposer for a runner that was loaded with `beside`, or updated since.
    """

    spec: ModelFacts  # the model's, whose KV groups have the layers that draft, too
    make: Make
    beside: Beside = NOTHING
    weight_bytes: int = 0
    described: str = ""  # its weights


def drafting(settings: EngineSettings, plan: Resolved, watch: Watch) -> Drafting:
    """What drafts for the model of `plan`.

    Raises:
        ConfigError: the draft model is not understood, or does not go with the model.
    """
    way, name = settings.speculation.speculation, settings.speculation.draft_model
    made: dict[str, Make] = {
        "off": lambda runner: None,
        "ngram": lambda runner: NgramProposer(),
        "suffix": lambda runner: SuffixProposer(),
    }
    if name is None:
        return Drafting(plan.spec, made[way])
    if isinstance(plan.backend, FallbackBackend):
        raise ConfigError(f"speculation {way} is not for models that Transformers computes")
    target = plan.spec
    assert isinstance(target, ModelSpec)
    try:
        return {"draft": _by_model, "eagle": _by_head}[way](settings, plan, target, name, watch)
    except ConfigError as error:
        raise ConfigError(f"draft_model {name}: {error}") from error


def _by_model(
    settings: EngineSettings, plan: Resolved, target: ModelSpec, name: str, watch: Watch
) -> Drafting:
    """A smaller model, computed in the same way and with KV in the same numbers."""
    way = "native" if isinstance(plan.backend, NativeBackend) else "torch"
    model = dataclasses.replace(settings.model, model=name, tokenizer=None, model_impl=way)
    cache = dataclasses.replace(settings.cache, kv_dtype=plan.kv_dtype)
    draft = resolve(dataclasses.replace(settings, model=model, cache=cache), locate(name))
    spec, backend = draft.spec, draft.backend
    assert isinstance(spec, ModelSpec)
    if spec.states:
        raise ConfigError("speculation draft is not for models with recurrent states")
    if spec.vocab_size < target.vocab_size:
        raise ConfigError(
            f"it must know all {target.vocab_size} tokens of the model, not {spec.vocab_size}"
        )

    def make(runner: Runner) -> Proposer:
        drafter = backend.drafter(runner, len(target.layers), target.vocab_size, watch)
        return ModelProposer(drafter, settings.cache.block_size)

    return _beside(target, spec, backend, make)


def _by_head(
    settings: EngineSettings, plan: Resolved, target: ModelSpec, name: str, watch: Watch
) -> Drafting:
    spec, backend, ids = open_head(settings, plan, target, locate(name))

    def make(runner: Runner) -> Proposer:
        head = backend.head(runner, len(target.layers), ids, watch)
        return EagleProposer(head, spec.fc.weight.shape[1], settings.cache.block_size)

    return _beside(target, spec, backend, make, spec.features)


def _beside(
    target: ModelSpec,
    spec: ModelSpec,
    backend: Backend,
    make: Make,
    features: tuple[int, ...] = (),
) -> Drafting:
    first = len(target.layers)
    groups = groups_together(target.kv_groups, spec.kv_groups, first)
    return Drafting(
        spec=dataclasses.replace(target, kv_groups=groups),
        make=make,
        beside=Beside(drafting_layers(spec, first), features),
        weight_bytes=backend.weight_bytes(),
        described=f"{spec.num_parameters:,} parameters, {backend.weight_format}",
    )

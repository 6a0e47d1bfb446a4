"""Who guesses tokens, from settings: checked, and its memory known, before any weights are read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from octavo.base.errors import ConfigError
from octavo.base.settings import EngineSettings
from octavo.engine.backends import FallbackBackend, NativeBackend, Watch
from octavo.engine.resolved import Resolved, resolve
from octavo.files.locate import locate
from octavo.models.beside import NOTHING, Beside, drafting_layers, groups_together
from octavo.models.facts import ModelFacts
from octavo.models.spec import ModelSpec
from octavo.speculative.model import ModelProposer
from octavo.speculative.ngram import NgramProposer
from octavo.speculative.proposer import Proposer
from octavo.speculative.suffix import SuffixProposer
from octavo.worker.worker import Runner


@dataclass(frozen=True)
class Drafting:
    """What guesses, and what it takes.

    `make` gives a proposer for a runner that was loaded with `beside`, or updated since.
    """

    spec: ModelFacts  # the model's, with KV groups of what drafts for it too
    make: Callable[[Runner], Proposer | None]
    beside: Beside = NOTHING
    weight_bytes: int = 0
    described: str = ""  # its weights


def drafting(settings: EngineSettings, plan: Resolved, watch: Watch) -> Drafting:
    """What drafts for the model of `plan`.

    Raises:
        ConfigError: the draft model is not understood, or does not go with the model.
    """
    way = settings.speculation.speculation
    if way == "draft":
        return _by_model(settings, plan, watch)
    made: dict[str, Callable[[Runner], Proposer | None]] = {
        "off": lambda runner: None,
        "ngram": lambda runner: NgramProposer(),
        "suffix": lambda runner: SuffixProposer(),
    }
    return Drafting(plan.spec, made[way])


def _by_model(settings: EngineSettings, plan: Resolved, watch: Watch) -> Drafting:
    target, layers = _computed_here(settings, plan)
    draft = _resolved(settings, plan)
    spec, block_size = draft.spec, settings.cache.block_size
    assert isinstance(spec, ModelSpec)
    _check_draft(spec, target)
    return Drafting(
        spec=dataclasses.replace(
            target, kv_groups=groups_together(target.kv_groups, spec.kv_groups, layers)
        ),
        make=lambda runner: ModelProposer(
            draft.backend.drafter(runner, layers, target.vocab_size, watch), block_size
        ),
        beside=Beside(drafting_layers(spec, layers)),
        weight_bytes=draft.backend.weight_bytes(),
        described=f"{spec.num_parameters:,} parameters, {draft.backend.weight_format}",
    )


def _computed_here(settings: EngineSettings, plan: Resolved) -> tuple[ModelSpec, int]:
    """The model's spec and its number of layers. Raises ConfigError where Octavo does not compute
    them itself."""
    if isinstance(plan.backend, FallbackBackend):
        way = settings.speculation.speculation
        raise ConfigError(f"speculation {way} is not for models that Transformers computes")
    assert isinstance(plan.spec, ModelSpec)
    return plan.spec, len(plan.spec.layers)


def _resolved(settings: EngineSettings, plan: Resolved) -> Resolved:
    """The draft model, to be computed in the same way and with KV in the same numbers."""
    name = settings.speculation.draft_model
    assert name is not None
    way = "native" if isinstance(plan.backend, NativeBackend) else "torch"
    model = dataclasses.replace(settings.model, model=name, tokenizer=None, model_impl=way)
    cache = dataclasses.replace(settings.cache, kv_dtype=plan.kv_dtype)
    try:
        files = locate(name)
        return resolve(dataclasses.replace(settings, model=model, cache=cache), files)
    except ConfigError as error:
        raise ConfigError(f"draft_model {name}: {error}") from error


def _check_draft(draft: ModelSpec, target: ModelSpec) -> None:
    if draft.states:
        raise ConfigError("draft_model must have no recurrent states")
    if draft.vocab_size < target.vocab_size:
        raise ConfigError(
            f"draft_model must know all {target.vocab_size} tokens of the model, it has "
            f"{draft.vocab_size}"
        )

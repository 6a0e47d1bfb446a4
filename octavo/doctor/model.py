"""`octavo doctor MODEL`: a report on a model on this machine, to act on or to send along."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from octavo.base.errors import CapacityError, ConfigError, ModelError
from octavo.base.log import configure
from octavo.base.settings import EngineSettings, ServerSettings
from octavo.doctor.finding import Finding, ok, summary, warning, wrong
from octavo.doctor.logits import logits_findings
from octavo.doctor.machine import machine
from octavo.doctor.place import place_findings
from octavo.doctor.text import TRICKY, text_findings
from octavo.engine.build import plan_engine
from octavo.engine.info import EngineInfo
from octavo.engine.proposers import drafting
from octavo.engine.resolved import resolve
from octavo.files.locate import locate
from octavo.files.model_files import ModelFiles
from octavo.files.short_names import cache_folder
from octavo.text.renderer import Renderer, load_renderer

UNAFFECTED = "answers do not depend on it"
PROMPT_TEXTS = ("plain", "accents", "code")
PROMPT_TOKENS = 24  # drawn, where there is no tokenizer


def examine_model(settings: EngineSettings, server: ServerSettings) -> int:
    """Print the report. The exit code: 1 where something is wrong.

    Raises:
        ConfigError: the model cannot be found.
    """
    configure(logging.ERROR)
    files = locate(settings.model.model, code=settings.model.trust_remote_code)
    facts, runs = machine()
    for name, fact in (_without_paths(facts) | {"model": f"{files.name}, {files.path}"}).items():
        print(f"{name:<12}{fact}")
    print()
    cannot = wrong("native", facts["native"], "install a build for this CPU")
    found = []
    for finding in _findings(settings, server, files) if runs else [cannot]:
        print(finding, flush=True)
        found.append(finding)
    print(f"\n{summary(found)}")
    return int(any(finding.level == "wrong" for finding in found))


def _findings(
    settings: EngineSettings, server: ServerSettings, files: ModelFiles
) -> Iterator[Finding]:
    yield from place_findings(files, server, cache_folder())
    info, memory = _memory(settings, files)
    yield memory
    if info is None:
        return
    renderer, prompts = None, _drawn(info.vocab_size)
    if not settings.model.skip_tokenizer_init:
        try:
            renderer = load_renderer(files, settings.model.tokenizer, settings.model.chat_template)
        except ModelError as error:
            yield wrong("tokenizer", str(error), "without one, start with --skip-tokenizer-init")
    if not _has_transformers():
        yield warning(
            "Transformers", "not installed: nothing was compared", "pip install 'octavo[torch]'"
        )
    if renderer is not None:
        yield from _text(settings, files, info, renderer)
        prompts = [renderer.tokenizer.encode(TRICKY[name]) for name in PROMPT_TEXTS]
    if _has_transformers():
        yield from logits_findings(settings, files, prompts)


def _without_paths(facts: dict[str, str]) -> dict[str, str]:
    """What may be shown to others."""
    python, _, _ = facts["Python"].partition(",")
    return {name: fact for name, fact in facts.items() if name != "cache"} | {"Python": python}


def _memory(settings: EngineSettings, files: ModelFiles) -> tuple[EngineInfo | None, Finding]:
    try:
        plan = resolve(settings, files)
        draft = drafting(settings, plan, lambda names: names)
        info = plan_engine(settings, plan, draft, files)
    except CapacityError as error:
        return None, wrong("memory", str(error), "do as it says, or take a smaller model")
    except ConfigError as error:
        return None, wrong("model", str(error), "`octavo models` lists what runs")
    table = "\n".join(f"{'':27}{line}" for line in info.table.splitlines())
    return info, ok("memory", f"it fits:\n{table}")


def _text(
    settings: EngineSettings, files: ModelFiles, info: EngineInfo, renderer: Renderer
) -> Iterator[Finding]:
    truth = None
    if _has_transformers():
        from octavo.fallback.truth import TrueText  # PyTorch takes a while to import

        override = settings.model.tokenizer
        source = files if override is None else ModelFiles(files.name, Path(override))
        try:
            truth = TrueText(source, settings.model.trust_remote_code)
        except ModelError as error:
            yield warning("token ids", f"not compared: {error}", UNAFFECTED)
    yield from text_findings(renderer, info.vocab_size, info.eos_token_ids, truth)


def _has_transformers() -> bool:
    return find_spec("torch") is not None and find_spec("transformers") is not None


def _drawn(vocab_size: int) -> Sequence[list[int]]:
    draw = random.Random(0)
    return [draw.choices(range(vocab_size), k=PROMPT_TOKENS) for _ in PROMPT_TEXTS]

"""A model as one cell of the matrix runs it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from octavo.base.settings import EngineSettings
from octavo.engine.build import build_engine
from octavo.engine.info import EngineInfo
from octavo.engine.local import LocalEngine
from octavo.files.model_files import ModelFiles
from octavo.worker.observer import Observer

ITSELF = "the model itself"  # as a draft model


class Subject:
    """Settings and files, and an engine that is made when it is first asked for."""

    def __init__(
        self,
        settings: EngineSettings,
        files: ModelFiles,
        changes: dict[str, Any],
        observer: Observer | None = None,
    ) -> None:
        """`changes`: flat options in place of those in `settings`."""
        options = settings.options() | changes
        if options["draft_model"] == ITSELF:
            options["draft_model"] = settings.model.model
        self.settings = EngineSettings.flat(model=settings.model.model, **options)
        self.files = files
        self.changes = changes
        self._observer = observer

    @cached_property
    def engine(self) -> LocalEngine:
        return LocalEngine(build_engine(self.settings, self.files, self._observer))

    @property
    def info(self) -> EngineInfo:
        return self.engine.engine.info

    @property
    def hit_tokens(self) -> int:
        """Found in the prefix cache so far."""
        return self.engine.engine.stats.prefix_hit_tokens_total

    @property
    def drafted_tokens(self) -> int:
        """Verified so far."""
        return self.engine.engine.stats.draft_tokens_total

    def forget(self) -> None:
        """Have nothing in the prefix cache."""
        forgotten = self.engine.call(lambda engine: engine.reset_prefix_cache())
        assert forgotten, "a request of the cell before still holds KV"

    def close(self) -> None:
        """Free its memory. May be called when it is closed already."""
        if "engine" in self.__dict__:
            self.engine.call(lambda engine: engine.close())
            del self.engine

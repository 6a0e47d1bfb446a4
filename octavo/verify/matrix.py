"""Runs the matrix for one format of weights and KV, and looks into what fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.base.errors import ConfigError, EngineError
from octavo.base.progress import Bar
from octavo.base.request import Request
from octavo.base.settings import EngineSettings
from octavo.engine.info import EngineInfo
from octavo.engine.resolved import resolve
from octavo.files.model_files import ModelFiles
from octavo.verify.asked import Scale, requests
from octavo.verify.cells import REFERENCE, Cell
from octavo.verify.streams import Difference, Streams, differences, extent
from octavo.verify.subject import Subject
from octavo.verify.trace import Trace
from octavo.verify.ways import NotHere, Way, alone, in_process, together


@dataclass(frozen=True)
class Outcome:
    """Of one cell. `why_not`: it could not be run. `failure`: where it first went wrong."""

    cell: str
    why_not: str | None = None
    failure: str | None = None
    requests: int = 0
    answers: int = 0
    tokens: int = 0
    logprobs: int = 0

    @property
    def held(self) -> bool:
        return self.failure is None and self.why_not is None


@dataclass(frozen=True)
class Column:
    """All cells in one format of weights and KV, and who computed them."""

    name: str
    info: EngineInfo
    kernels: str
    outcomes: list[Outcome]


class Matrix:
    """One format: `settings` name it. Nothing large is read before it runs."""

    def __init__(
        self,
        settings: EngineSettings,
        files: ModelFiles,
        scale: Scale,
        texts: Sequence[Sequence[int]],
        quick: bool,
    ) -> None:
        """Raises ConfigError where the model cannot be had in this format."""
        self._files, self._quick = files, quick
        self._scale, self._texts = scale, texts
        found = resolve(settings, files)
        self.name = f"{found.backend.weight_format}, KV {found.kv_dtype}"
        self.runner = found.backend.name
        self._kernels = found.backend.kernels()
        longest = min(found.spec.max_model_len, scale.longest + 1)
        options = dict(REFERENCE) | {"max_model_len": longest}
        self._settings = EngineSettings.flat(
            model=settings.model.model, **(settings.options() | options)
        )
        self._subject = Subject(self._settings, files, {})

    def run(self, cells: Sequence[Cell], bar: Bar) -> Column:
        """Raises:
        CapacityError: the model does not fit.
        EngineError: a request fails even alone.
        """
        info = self._subject.info
        self._requests = requests(info, self._scale, self._texts)
        self._expected = alone(self._subject, self._requests)
        outcomes = []
        for cell in cells:
            outcomes.append(self._outcome(cell))
            bar.update()
        self._subject.close()
        return Column(self.name, info, self._kernels, outcomes)

    def _outcome(self, cell: Cell) -> Outcome:
        asked = self._requests[:: cell.quick] if self._quick else self._requests
        try:
            found = cell.way(self._subject_of(cell), asked)
        except (NotHere, ConfigError) as error:
            return Outcome(cell.name, why_not=str(error))
        except EngineError as error:
            return Outcome(cell.name, failure=str(error))
        if not found:
            return Outcome(cell.name, why_not="no request is of this kind")
        parted = differences(found, self._expected, self._requests)
        failure = self._explain(cell, asked, parted, found) if parted else None
        return Outcome(
            cell.name,
            failure=failure,
            requests=len(asked),
            answers=len(found),
            tokens=sum(len(stream.positions) for stream in found.values()),
            logprobs=sum(stream.num_logprobs for stream in found.values()),
        )

    def _subject_of(self, cell: Cell) -> Subject:
        """The one of the cell before, if it has the same settings."""
        changes = dict(cell.settings)
        if self._subject.changes != changes:
            self._subject.close()
            self._subject = Subject(self._settings, self._files, changes)
        return self._subject

    def _explain(
        self, cell: Cell, asked: Sequence[Request], parted: Sequence[Difference], found: Streams
    ) -> str:
        where = self._where(cell, asked, parted[0])
        how_many = f"{len(parted)} of {len(found)} answers differ: {extent(found, self._expected)}"
        return f"{parted[0]}; {where}; {how_many}"

    def _where(self, cell: Cell, asked: Sequence[Request], first: Difference) -> str:
        """Both ways again, with somebody who watches every op."""
        self._subject.close()
        request = self._requests[first.key[0]]
        stream = [*request.prompt_token_ids, *self._expected[first.key].tokens]
        try:
            reference = Trace(stream)
            self._traced({}, reference, alone, [request])
            trace = Trace(stream, reference.digests)
            way = together if cell.way is in_process else cell.way
            again = self._traced(dict(cell.settings), trace, way, asked)
        except ConfigError as error:
            return str(error)
        if trace.first is not None:
            (position, _), op = trace.first
            return f"first seen at position {position}, {op}"
        if differences(again, self._expected, self._requests):
            return "all ops wrote the same: it is the sampling"
        return "not seen again when ops were watched one by one"

    def _traced(
        self, changes: dict[str, object], trace: Trace, way: Way, asked: Sequence[Request]
    ) -> Streams:
        subject = Subject(self._settings, self._files, changes, trace)
        try:
            return way(subject, asked)
        finally:
            subject.close()

"""Prometheus metrics of one server: the engine's own numbers, and times seen by clients.

Every metric appears twice, as `octavo:NAME` and as `vllm:NAME`, so that existing dashboards and
routers work. Label sets are fixed: nothing a client sends becomes a label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from octavo.base.output import EngineStats, FinishReason

PREFIXES = ("octavo:", "vllm:")
_LABELS = ("model_name", "engine")
_ENGINE = "0"  # one engine process
_MILLISECONDS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4, 3e5)
_REASONS = get_args(FinishReason)

Read = Callable[[EngineStats], float]


def _share(used: int, usable: int) -> float:
    return used / usable if usable else 0.0


_GAUGES: tuple[tuple[str, str, Read], ...] = (
    ("num_requests_running", "Requests running", lambda s: s.running),
    ("num_requests_waiting", "Requests waiting", lambda s: s.waiting),
    (
        "kv_cache_usage_perc",
        "Share of KV blocks in use, 0 to 1; free but cached blocks are not in use",
        lambda s: _share(s.kv_blocks_used, s.kv_blocks),
    ),
    (
        "state_usage_perc",
        "Share of recurrent states in use, 0 to 1; those kept to be found again are not in use",
        lambda s: _share(s.states_used, s.states),
    ),
)
_COUNTERS: tuple[tuple[str, str, Read], ...] = (
    ("num_preemptions", "Preemptions", lambda s: s.preemptions_total),
    ("kv_copies", "KV blocks copied before they were written", lambda s: s.kv_copies_total),
    ("prefix_cache_queries", "Prompt tokens looked up", lambda s: s.prefix_query_tokens_total),
    ("prefix_cache_hits", "Prompt tokens found", lambda s: s.prefix_hit_tokens_total),
    ("computed_tokens", "Tokens computed", lambda s: s.computed_tokens_total),
    ("engine_steps", "Steps of the engine", lambda s: s.steps_total),
    ("spec_decode_num_drafts", "Rows that verified drafts", lambda s: s.drafts_total),
    ("spec_decode_num_draft_tokens", "Drafts verified", lambda s: s.draft_tokens_total),
    ("spec_decode_num_accepted_tokens", "Drafts accepted", lambda s: s.accepted_tokens_total),
)


class HasStats(Protocol):
    @property
    def stats(self) -> EngineStats: ...


class Metrics:
    """One server's metrics, in a registry of their own."""

    def __init__(self, engine: HasStats, model_name: str) -> None:
        labels = (model_name, _ENGINE)
        success = Counter(
            "request_success", "Requests ended", (*_LABELS, "finished_reason"), registry=None
        )
        prompt = _counter("prompt_tokens", "Prompt tokens of requests that got an answer")
        generation = _counter("generation_tokens", "Tokens generated")
        first = _histogram("time_to_first_token_seconds", "From tokenized prompt to first token")
        between = _histogram("inter_token_latency_seconds", "Between tokens of one sequence")
        whole = _histogram("e2e_request_latency_seconds", "From tokenized prompt to last token")
        self._success = {r: success.labels(*labels, r) for r in _REASONS}
        self._prompt_tokens = prompt.labels(*labels)
        self._generation_tokens = generation.labels(*labels)
        self._first = first.labels(*labels)
        self._between = between.labels(*labels)
        self._whole = whole.labels(*labels)
        self._registry = CollectorRegistry()
        self._registry.register(
            _Collector(engine, labels, (success, prompt, generation, first, between, whole))
        )

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def watch(self, prompt_tokens: int) -> Watch:
        return Watch(self, prompt_tokens)

    def prompt(self, tokens: int) -> None:
        self._prompt_tokens.inc(tokens)

    def first_token(self, seconds: float) -> None:
        self._first.observe(seconds)

    def more_tokens(self, seconds: float, count: int) -> None:
        """`count` tokens came at once, `seconds` after the ones before them."""
        for _ in range(count):
            self._between.observe(seconds / count)

    def generated(self, count: int) -> None:
        self._generation_tokens.inc(count)

    def ended(self, seconds: float, reason: str) -> None:
        self._whole.observe(seconds)
        self._success[reason].inc()


class Watch:
    """Times one request; made when it goes to the engine."""

    def __init__(self, metrics: Metrics, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._prompt_tokens = prompt_tokens
        self._begin = time.perf_counter()
        self._last: dict[int, float] = {}  # by sequence
        self.tokens = 0

    def came(self, sequence: int, count: int) -> None:
        """`count` tokens of one of the request's sequences."""
        if not count:
            return
        now = time.perf_counter()
        if not self.tokens:
            self._metrics.first_token(now - self._begin)
            self._metrics.prompt(self._prompt_tokens)
        elif sequence in self._last:
            self._metrics.more_tokens(now - self._last[sequence], count)
        self._metrics.generated(count)
        self.tokens += count
        self._last[sequence] = now

    def ended(self, reason: str) -> float:
        """Seconds since it was made."""
        if not self.tokens and reason not in ("abort", "error"):  # the prompt was all it was about
            self._metrics.prompt(self._prompt_tokens)
        seconds = time.perf_counter() - self._begin
        self._metrics.ended(seconds, reason)
        return seconds


class _Collector(Collector):
    """Collects every family once and gives it out under each prefix."""

    def __init__(
        self, engine: HasStats, labels: tuple[str, str], kept: tuple[Counter | Histogram, ...]
    ) -> None:
        self._engine = engine
        self._labels = labels
        self._kept = kept

    def collect(self) -> Iterable[Metric]:
        families = [*self._of_engine(), *(f for metric in self._kept for f in metric.collect())]
        for prefix in PREFIXES:
            for family in families:
                yield _prefixed(family, prefix)

    def _of_engine(self) -> Iterator[Metric]:
        stats = self._engine.stats
        for name, text, read in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=_LABELS)
            gauge.add_metric(self._labels, read(stats))
            yield gauge
        for name, text, read in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            counter.add_metric(self._labels, read(stats))
            yield counter
        yield self._accepted(stats.accepted_per_position_total)

    def _accepted(self, by_position: list[int]) -> Metric:
        """Positions count from 0, the first draft of a row."""
        name, text = "spec_decode_num_accepted_tokens_per_pos", "Drafts accepted, by position"
        counter = CounterMetricFamily(name, text, labels=(*_LABELS, "position"))
        for position, count in enumerate(by_position):
            counter.add_metric((*self._labels, str(position)), count)
        return counter


def _prefixed(family: Metric, prefix: str) -> Metric:
    """A copy of `family` under its prefixed name, without the `_created` times of counters."""
    copy = Metric(prefix + family.name, family.documentation, family.type, family.unit)
    copy.samples = [
        sample._replace(name=prefix + sample.name)
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    return copy


def _counter(name: str, text: str) -> Counter:
    return Counter(name, text, _LABELS, registry=None)


def _histogram(name: str, text: str) -> Histogram:
    return Histogram(
        name, text, _LABELS, buckets=[ms / 1000 for ms in _MILLISECONDS], registry=None
    )

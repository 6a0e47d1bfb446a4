"""The table at start: where the memory goes and what fits in it."""

from __future__ import annotations

from collections.abc import Iterator

from octavo.base.kv import KVLayout, Pool
from octavo.base.units import show_bytes
from octavo.models.facts import ModelFacts
from octavo.models.kv_groups import kv_bytes_per_token
from octavo.models.memory import longest_sequence

_Row = tuple[str, str, str]  # what, how much, of which kind


def memory_table(
    spec: ModelFacts,
    layout: KVLayout,
    *,
    weight_bytes: int,
    weight_format: str,
    kv_dtype: str,
    max_model_len: int,
    runner: str,
    draft: tuple[int, str] = (0, ""),
) -> str:
    """Drawn text, several lines; `runner` is what computes. `draft`: bytes of the weights of a
    model that drafts, and which they are."""
    longest = longest_sequence(layout)
    rows = [
        (
            "weights",
            show_bytes(weight_bytes),
            f"{spec.num_parameters:,} parameters, {weight_format}",
        ),
        *([("draft weights", show_bytes(draft[0]), draft[1])] if draft[0] else []),
        ("KV per token", show_bytes(kv_bytes_per_token(layout.groups)), kv_dtype),
        *_group_rows(layout),
        *(
            ("KV blocks", f"{pool.num_blocks - 1:,}", _users(layout, pool))
            for pool in layout.pools
            if pool not in layout.state_pools
        ),
        *_state_rows(layout),
        ("KV tokens", "any" if longest is None else f"{longest:,}", "of one sequence"),
        ("KV total", show_bytes(layout.total_bytes), "null blocks included"),
        (
            "requests",
            f"{layout.sequences(max_model_len):,}",
            f"fit at once with {max_model_len:,} tokens each",
        ),
        ("computed by", "", runner),
    ]
    return _draw(rows)


def _group_rows(layout: KVLayout) -> Iterator[_Row]:
    """A row for each kind of attention, which may have been cut into several groups."""
    for name in dict.fromkeys(group.name for group in layout.groups if not group.is_state):
        numbers = [g for g, group in enumerate(layout.groups) if group.name == name]
        page = layout.pools[layout.pool_of(numbers[0])].page_bytes
        layers = sum(len(layout.groups[g].layers) for g in numbers)
        cut = f" in {len(numbers)} groups" if len(numbers) > 1 else ""
        what = f"{layout.block_size} tokens, {layers} layers{cut}, {name}"
        yield "KV block", show_bytes(page), what


def _state_rows(layout: KVLayout) -> Iterator[_Row]:
    """How large a state is, and what the states are for."""
    running = layout.most_sequences
    for pool in layout.state_pools:
        [group] = (layout.groups[g] for g in pool.groups)
        yield "state", show_bytes(pool.page_bytes), f"{len(group.layers)} layers, float32"
        others = f"{pool.num_blocks - 1 - 2 * running:,} to be found again"
        what = f"usable: 2 for each of {running:,} sequences, {others}"
        yield "states", f"{pool.num_blocks - 1:,}", what


def _users(layout: KVLayout, pool: Pool) -> str:
    if len(layout.pools) == 1 + len(layout.state_pools):
        return "usable"
    return f"usable by {', '.join(layout.groups[g].name for g in pool.groups)}"


def _draw(rows: list[_Row]) -> str:
    """A box around three columns; amounts stand flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    edge = "─" * (sum(widths) + 6)
    lines = [
        f"│ {what:<{widths[0]}}  {amount:>{widths[1]}}  {note:<{widths[2]}} │"
        for what, amount, note in rows
    ]
    return "\n".join([f"┌{edge}┐", *lines, f"└{edge}┘"])

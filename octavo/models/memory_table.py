"""The table at start: where the memory goes and what fits in it."""

from __future__ import annotations

from octavo.base.kv import KVGroup, KVLayout
from octavo.base.units import show_bytes
from octavo.models.kv_groups import kv_bytes_per_token
from octavo.models.memory import full_length_requests, num_parameters
from octavo.models.spec import ModelSpec

_Row = tuple[str, str, str]  # what, how much, of which kind


def memory_table(
    spec: ModelSpec,
    layout: KVLayout,
    *,
    weight_bytes: int,
    weight_format: str,
    kv_dtype: str,
    max_model_len: int,
    runner: str,
) -> str:
    """Drawn text, several lines; `runner` is what computes."""
    tokens = layout.max_tokens
    rows = [
        (
            "weights",
            show_bytes(weight_bytes),
            f"{num_parameters(spec):,} parameters, {weight_format}",
        ),
        ("KV per token", show_bytes(kv_bytes_per_token(layout.groups)), kv_dtype),
        *(_group_row(group, layout.block_size) for group in layout.groups),
        ("KV blocks", f"{tokens // layout.block_size:,}", "usable, of each group"),
        ("KV tokens", f"{tokens:,}", ""),
        ("KV total", show_bytes(layout.total_bytes), "null blocks included"),
        (
            "requests",
            f"{full_length_requests(layout, max_model_len):,}",
            f"fit at once with {max_model_len:,} tokens each",
        ),
        ("computed by", "", runner),
    ]
    return _draw(rows)


def _group_row(group: KVGroup, block_size: int) -> _Row:
    what = f"{block_size} tokens, {len(group.layers)} layers, {group.name}"
    return "KV block", show_bytes(group.page_bytes(block_size)), what


def _draw(rows: list[_Row]) -> str:
    """A box around three columns; amounts stand flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    edge = "─" * (sum(widths) + 6)
    lines = [
        f"│ {what:<{widths[0]}}  {amount:>{widths[1]}}  {note:<{widths[2]}} │"
        for what, amount, note in rows
    ]
    return "\n".join([f"┌{edge}┐", *lines, f"└{edge}┘"])

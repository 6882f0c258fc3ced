"""A plan by layer, as a table for a terminal."""

from __future__ import annotations

from tofu.tables import table

from ..layers import DIRECTIONS, Layer, layers_of
from ..plan import Plan, format_bytes
from .grouping import Repeated, repeated
from .text import summary

__all__ = ["render_layers"]


def render_layers(plan: Plan) -> str:
    """Bytes by layer and direction; layers that are alike share a line."""
    groups = repeated(
        layers_of(plan),
        name=lambda layer: layer.name,
        alike=lambda layer: (
            layer.parameter_bytes,
            layer.worker_bytes,
            tuple(layer.fetched_bytes.items()),
        ),
        size=lambda layer: layer.total_bytes,
    )
    lines = [
        *summary(plan),
        "",
        "Layers, those that fetch most first (of one layer; x N: N layers whose names differ only",
        "in a number)",
        "",
    ]
    header = ("layer", "x N", "parameters", "tiles on a worker", *DIRECTIONS, "fetched by all")
    lines += table(header, map(_row, groups), right=range(2, len(header)))
    return "\n".join(lines) + "\n"


def _row(group: Repeated[Layer]) -> tuple[str, ...]:
    layer = group.first
    return (
        group.name,
        f"x {len(group)}" if len(group) > 1 else "",
        format_bytes(layer.parameter_bytes),
        format_bytes(layer.worker_bytes),
        *(format_bytes(layer.fetched_bytes[direction]) for direction in DIRECTIONS),
        format_bytes(group.bytes),
    )

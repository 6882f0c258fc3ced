"""A frontier as a picture: time, or bytes, over memory, with the rivals as single points."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Optional

from tofu.plans.plan import format_bytes, format_seconds

from .frontier import Point

__all__ = ["draw"]

_WIDTH, _HEIGHT = 720, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 110, 150, 40, 60
_TICKS = 5
_LINE = 14  # height of a label, in pixels


def draw(
    title: str, kept: Sequence[Point], rivals: Sequence[Point], turning: Optional[Point]
) -> str:
    """The picture as SVG, without links to anything else."""
    scale = _Scale([*kept, *rivals])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<text x="{_LEFT}" y="22" font-size="15">{html.escape(title)}</text>',
        *_axes(scale),
        _line(scale, kept),
        *(_dot(scale, point, "#1b6ca8") for point in kept),
        *(_dot(scale, point, "#c0392b") for point in rivals),
        *_labels(scale, kept, rivals, turning),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    """Maps points to places in the picture; axes begin a little below the least value."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.is_timed = points[0].step_seconds is not None
        self.memory = _range([point.held_bytes for point in points])
        self.cost = _range([point.cost for point in points])

    def x(self, held: float) -> float:
        low, high = self.memory
        return _LEFT + (held - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, cost: float) -> float:
        low, high = self.cost
        return _HEIGHT - _BOTTOM - (cost - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def cost_text(self, cost: float) -> str:
        return format_seconds(cost) if self.is_timed else format_bytes(cost)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1
    return max(low - margin, 0), high + margin


def _axes(scale: _Scale) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#888"/>'
    for tick in range(_TICKS):
        held = scale.memory[0] + (scale.memory[1] - scale.memory[0]) * tick / (_TICKS - 1)
        cost = scale.cost[0] + (scale.cost[1] - scale.cost[0]) * tick / (_TICKS - 1)
        yield _text(scale.x(held), bottom + 18, format_bytes(held), "middle")
        yield _text(_LEFT - 8, scale.y(cost) + 4, scale.cost_text(cost), "end")
    middle = (_LEFT + right) / 2
    yield _text(middle, bottom + 42, "memory of a worker", "middle")
    what = "predicted time of a step" if scale.is_timed else "bytes communicated in a step"
    x, y = 16, (_TOP + bottom) / 2
    yield f'<text transform="translate({x} {y}) rotate(-90)" text-anchor="middle">{what}</text>'


def _line(scale: _Scale, kept: Sequence[Point]) -> str:
    """Draw steps: between two points, only the one with less memory can be had."""
    path = ""
    for point in kept:
        x, y = scale.x(point.held_bytes), scale.y(point.cost)
        path += f"M{x:.1f} {y:.1f}" if not path else f"H{x:.1f}V{y:.1f}"
    return f'<path d="{path}" fill="none" stroke="#1b6ca8" stroke-width="1.5"/>'


def _dot(scale: _Scale, point: Point, colour: str) -> str:
    x, y = scale.x(point.held_bytes), scale.y(point.cost)
    told = f"{point.name}: {format_bytes(point.held_bytes)}, {scale.cost_text(point.cost)}"
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">'
        f"<title>{html.escape(told)}</title></circle>"
    )


def _labels(
    scale: _Scale, kept: Sequence[Point], rivals: Sequence[Point], turning: Optional[Point]
) -> Iterator[str]:
    """The names of rivals and of the turning point, moved down where they would overlap."""
    named = [(point, point.name) for point in rivals]
    if turning is not None:
        named.append((turning, "turning point"))
    taken: list[tuple[float, float]] = []
    for point, name in sorted(named, key=lambda each: scale.y(each[0].cost)):
        x, y = scale.x(point.held_bytes) + 8, scale.y(point.cost) + 4
        while any(abs(y - other) < _LINE and abs(x - at) < 120 for at, other in taken):
            y += 1
        taken.append((x, y))
        yield _text(x, y, name, "start")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'

"""A frontier as a picture: time, or bytes, over memory, with the rivals as single points."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Optional

from tofu.plans.plan import format_bytes, format_seconds
from tofu.tables import PALETTE

from .frontier import Point

__all__ = ["draw"]

_WIDTH, _HEIGHT = 860, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 110, 170, 44, 64
_TICKS = 6
_LINE = 16  # height of a label, in pixels
_LETTER = 7.2  # width of one
_NEAR = 2  # times what the frontier's plans take: rivals up to here are drawn
_FAR = 8  # above this ratio of largest to least, an axis is logarithmic
_STYLE = """svg { font: 12px system-ui, sans-serif; } text { fill: var(--text); }
.back { fill: var(--back); } .axis { fill: none; stroke: var(--faint); }
.grid { stroke: var(--line); }
.tick { fill: var(--faint); } .line { fill: none; stroke: var(--accent); stroke-width: 2; }
.kept { fill: var(--accent); } .rival { fill: var(--other); } text.rival { fill: var(--other); }
.lead { stroke: var(--faint); }"""


def draw(
    title: str, kept: Sequence[Point], rivals: Sequence[Point], turning: Optional[Point]
) -> str:
    """The picture as SVG, without links to anything else."""
    near = [point for point in rivals if _is_near(point, kept)]
    chart = _Chart([*kept, *near])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}">',
        f"<style>{PALETTE}{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{html.escape(title)}</text>',
        *_axes(chart),
        _line(chart, kept),
        *(_dot(chart, point, "kept") for point in kept),
        *(_dot(chart, point, "rival") for point in near),
        *_labels(chart, near, turning, _far_away(chart, [p for p in rivals if p not in near])),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _is_near(point: Point, kept: Sequence[Point]) -> bool:
    """Whether a rival can be seen beside the frontier without making that a dot."""
    most = max(each.held_bytes for each in kept), max(each.cost for each in kept)
    return point.held_bytes <= _NEAR * most[0] and point.cost <= _NEAR * most[1]


class _Axis:
    """Maps values to pixels, and chooses round ticks.

    Args:
        values: all that must be seen.
        begin, end: the pixels of its ends.
        binary: whether round means powers of 1024, as for bytes.
    """

    def __init__(self, values: Sequence[float], begin: float, end: float, *, binary: bool) -> None:
        low, high = min(values), max(values)
        self._is_log = low > 0 and high / low > _FAR
        if self._is_log:
            low, high = low / 1.15, high * 1.15
        else:
            margin = 0.06 * (high - low) or 0.06 * abs(high) or 1
            low, high = max(low - margin, 0), high + margin
        self._low, self._high, self._begin, self._end = low, high, begin, end
        self._binary = binary

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        if self._is_log:
            share = math.log(value / self._low) / math.log(self._high / self._low)
        else:
            share = (value - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """Round values between the ends, a handful."""
        found = list(self._log_ticks() if self._is_log else self._even_ticks())
        return found[:: math.ceil(len(found) / _TICKS)]

    def _unit(self, value: float) -> float:
        """The unit in which a value is written."""
        base = 1024 if self._binary else 1000
        return float(base ** math.floor(math.log(value, base))) if value > 0 else 1.0

    def _even_ticks(self) -> Iterator[float]:
        unit = self._unit(self._high)
        rough = (self._high - self._low) / unit / (_TICKS - 1)
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
        first = math.ceil(self._low / unit / step)
        for number in range(first, math.floor(self._high / unit / step) + 1):
            yield number * step * unit

    def _log_ticks(self) -> Iterator[float]:
        value = self._unit(self._low)
        while value <= self._high:
            for each in (1, 2, 5, 10, 20, 50, 100, 200, 500):
                if self._low <= value * each <= self._high:
                    yield value * each
            value *= 1024 if self._binary else 1000


class _Chart:
    """The two axes of the picture."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.is_timed = points[0].step_seconds is not None
        self.x = _Axis([point.held_bytes for point in points], _LEFT, _WIDTH - _RIGHT, binary=True)
        self.y = _Axis(
            [point.cost for point in points], _HEIGHT - _BOTTOM, _TOP, binary=not self.is_timed
        )

    def place(self, point: Point) -> tuple[float, float]:
        """The pixel of a plan."""
        return self.x(point.held_bytes), self.y(point.cost)

    def cost_text(self, cost: float) -> str:
        """What a plan costs, with its unit."""
        return format_seconds(cost) if self.is_timed else format_bytes(cost)


def _axes(chart: _Chart) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for held in chart.x.ticks():
        x = chart.x(held)
        yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
        yield _text(x, bottom + 18, _round(format_bytes(held)), "middle", "tick")
    for cost in chart.y.ticks():
        y = chart.y(cost)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
        yield _text(_LEFT - 8, y + 4, _round(chart.cost_text(cost)), "end", "tick")
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
    yield _text((_LEFT + right) / 2, bottom + 44, "memory of a worker", "middle")
    what = "predicted time of a step" if chart.is_timed else "bytes communicated in a step"
    x, y = 18, (_TOP + bottom) / 2
    yield f'<text transform="translate({x} {y}) rotate(-90)" text-anchor="middle">{what}</text>'


def _round(text: str) -> str:
    """A number that is round, without its zeros: "2 GiB" for "2.0 GiB"."""
    number, space, unit = text.partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number}{space}{unit}"


def _line(chart: _Chart, kept: Sequence[Point]) -> str:
    """Join the plans of the frontier."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(chart.place, kept))
    return f'<polyline class="line" points="{places}"/>'


def _dot(chart: _Chart, point: Point, kind: str) -> str:
    x, y = chart.place(point)
    told = f"{point.name}: {format_bytes(point.held_bytes)}, {chart.cost_text(point.cost)}"
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">'
        f"<title>{html.escape(told)}</title></circle>"
    )


def _far_away(chart: _Chart, points: Sequence[Point]) -> list[tuple[float, str, str]]:
    """Lines about the rivals beyond the picture, for its right margin: y, text and kind."""
    texts = [("beyond the picture", "tick")] if points else []
    for point in points:
        told = f"{format_bytes(point.held_bytes)}, {chart.cost_text(point.cost)}"
        texts += [(point.name, "rival"), (told, "rival")]
    return [(_TOP + _LINE * number, *text) for number, text in enumerate(texts)]


def _labels(
    chart: _Chart,
    rivals: Sequence[Point],
    turning: Optional[Point],
    margin: Sequence[tuple[float, str, str]],
) -> Iterator[str]:
    """The names of rivals and of the turning point, moved up or down where they would overlap.

    margin: lines that stand in the right margin.
    """
    named = [(point, point.name, "rival") for point in rivals]
    if turning is not None:
        named.append((turning, "turning point", "kept"))
    begin = _WIDTH - _RIGHT + 8
    taken: list[tuple[float, float, float]] = [(begin, y, _RIGHT) for y, _, _ in margin]
    yield from (_text(begin, y, text, "start", kind) for y, text, kind in margin)
    for point, name, kind in sorted(named, key=lambda each: chart.y(each[0].cost)):
        at, down = chart.place(point)
        wide = len(name) * _LETTER
        x = at + 9 if kind == "rival" else at - 9 - wide  # the line goes on to the right
        y = next(y for y in _around(down + 4) if _is_free(x, y, wide, taken))
        taken.append((x, y, wide))
        if kind == "rival" and abs(y - down - 4) > _LINE / 2:
            yield f'<path class="lead" d="M{at:.1f} {down:.1f}L{x - 2:.1f} {y - 4:.1f}"/>'
        yield _text(x, y, name, "start", kind)


def _around(y: float) -> Iterator[float]:
    """Places for a label, the nearest first; within the axes, or below the last of them."""
    for distance in range(_HEIGHT):
        for place in (y + distance, y - distance):
            if _TOP <= place <= _HEIGHT - _BOTTOM - 6:
                yield place
    yield from itertools.count(_HEIGHT)


def _is_free(x: float, y: float, wide: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    return not any(
        abs(y - other) < _LINE and x < begin + width and begin < x + wide
        for begin, other, width in taken
    )


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'

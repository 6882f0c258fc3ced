"""A frontier as a picture: time, or bytes, over memory, with the rivals as single points."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Optional

from tofu.plans.plan import format_bytes, format_seconds
from tofu.tables import PALETTE

from .frontier import Point

__all__ = ["draw"]

_WIDTH, _HEIGHT = 860, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 110, 170, 44, 64
_TICKS = 6
_LINE = 16  # height of a label, in pixels
_LETTER = 7.2  # width of one
_LETTERS_UP, _LETTERS_DOWN = 11, 4  # of a label's base line
_DOT, _GAP = 5, 9  # a dot's radius, and the distance of its label from its centre
_RING = 8  # the radius of a rival behind the frontier's own dot
# The distances between places that are tried for a label, and to the side.
_STEP, _AWAY = 4, (0, 40, 80, 120)
_NEAR = 2  # rivals are drawn up to this multiple of the frontier's figures
_FAR = 8  # above this ratio of largest to least, an axis is logarithmic
_STYLE = """svg { font: 12px system-ui, sans-serif; } text { fill: var(--text); }
.back { fill: var(--back); } .axis { fill: none; stroke: var(--faint); }
.grid { stroke: var(--line); }
.tick { fill: var(--faint); } .line { fill: none; stroke: var(--accent); stroke-width: 2; }
.kept { fill: var(--accent); } .rival { fill: var(--other); } text.rival { fill: var(--other); }
.lead { stroke: var(--faint); }"""


def draw(
    title: str, front: Sequence[Point], rivals: Sequence[Point], turning: Optional[Point]
) -> str:
    """The picture as SVG, without links to anything else."""
    near = [point for point in rivals if _is_near(point, front)]
    chart = _Chart([*front, *near])
    own = {chart.place(point) for point in front}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}">',
        f"<style>{PALETTE}{_STYLE}</style>",
        f'<rect class="back" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{html.escape(title)}</text>',
        *_axes(chart),
        _line(chart, front),
        *(
            _dot(chart, point, "rival", _RING if chart.place(point) in own else _DOT)
            for point in near
        ),
        *(_dot(chart, point, "kept", _DOT) for point in front),
        *_labels(
            chart, front, near, turning, _far_away(chart, [p for p in rivals if p not in near])
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _is_near(point: Point, front: Sequence[Point]) -> bool:
    """Whether a rival can be seen beside the frontier without making that a dot."""
    most = max(each.held_bytes for each in front), max(each.cost for each in front)
    return point.held_bytes <= _NEAR * most[0] and point.cost <= _NEAR * most[1]


_Place = tuple[float, float]


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
        values = list(self._log_ticks() if self._is_log else self._even_ticks())
        return values[:: math.ceil(len(values) / _TICKS)]

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
            for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500):
                if self._low <= value * factor <= self._high:
                    yield value * factor
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
        """A plan's cost with its unit."""
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


def _line(chart: _Chart, front: Sequence[Point]) -> str:
    """Join the plans of the frontier."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(chart.place, front))
    return f'<polyline class="line" points="{places}"/>'


def _dot(chart: _Chart, point: Point, kind: str, radius: float) -> str:
    x, y = chart.place(point)
    label = f"{point.name}: {format_bytes(point.held_bytes)}, {chart.cost_text(point.cost)}"
    dot = (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
        f"<title>{html.escape(label)}</title></circle>"
    )
    return f'<a href="{html.escape(point.page)}">{dot}</a>' if point.page else dot


def _far_away(chart: _Chart, points: Sequence[Point]) -> list[tuple[float, str, str]]:
    """Lines about the rivals beyond the picture, for its right margin: y, text and kind."""
    texts = [("beyond the picture", "tick")] if points else []
    for point in points:
        label = f"{format_bytes(point.held_bytes)}, {chart.cost_text(point.cost)}"
        texts += [(point.name, "rival"), (label, "rival")]
    return [(_TOP + _LINE * number, *text) for number, text in enumerate(texts)]


def _labels(
    chart: _Chart,
    front: Sequence[Point],
    rivals: Sequence[Point],
    turning: Optional[Point],
    margin: Sequence[tuple[float, str, str]],
) -> Iterator[str]:
    """The names of rivals and of the turning point, beside their dots where there is room.

    margin: lines that stand in the right margin.
    """
    named = [(dot, ", ".join(names), "rival") for dot, names in _together(chart, rivals)]
    if turning is not None:
        named.append((chart.place(turning), "turning point", "kept"))
    begin = _WIDTH - _RIGHT + 8
    boxes = [_Box(begin, y, _RIGHT) for y, _, _ in margin]
    yield from (_text(begin, y, text, "start", kind) for y, text, kind in margin)
    line = list(map(chart.place, front))
    boxes += [_Box(x - _DOT, y + _DOT, 2 * _DOT) for x, y in [*line, *map(chart.place, rivals)]]
    lines = list(zip(line, line[1:]))
    for dot, name, kind in sorted(named, key=lambda each: each[0][1]):
        box, lead = _room(dot, len(name) * _LETTER, boxes, lines)
        boxes.append(box)
        if lead is not None:
            lines.append((dot, lead))
            yield f'<path class="lead" d="M{dot[0]:.1f} {dot[1]:.1f}L{lead[0]:.1f} {lead[1]:.1f}"/>'
        yield _text(box.x, box.y, name, "start", kind)


def _together(chart: _Chart, points: Sequence[Point]) -> list[tuple[_Place, list[str]]]:
    """The dots that can be told apart, each with the names of the plans at this place."""
    dots: list[tuple[_Place, list[str]]] = []
    for point in points:
        x, y = chart.place(point)
        near = [names for (a, b), names in dots if abs(a - x) < _DOT and abs(b - y) < _DOT]
        if near:
            near[0].append(point.name)
        else:
            dots.append(((x, y), [point.name]))
    return dots


class _Box(NamedTuple):
    """A label's place: the left end of its text, its base line, its width."""

    x: float
    y: float
    width: float

    def meets(self, other: _Box) -> bool:
        """Whether two labels overlap."""
        return (
            abs(self.y - other.y) < _LINE
            and self.x < other.x + other.width
            and other.x < self.x + self.width
        )

    def is_crossed(self, begin: _Place, end: _Place) -> bool:
        """Whether a line runs through the label."""
        low, high = 0.0, 1.0
        sides = ((self.x, self.x + self.width), (self.y - _LETTERS_UP, self.y + _LETTERS_DOWN))
        for start, stop, (least, most) in zip(begin, end, sides):
            if start == stop:
                if not least <= start <= most:
                    return False
                continue
            ends = sorted(((least - start) / (stop - start), (most - start) / (stop - start)))
            low, high = max(low, ends[0]), min(high, ends[1])
        return low <= high


def _room(
    dot: _Place, width: float, boxes: Sequence[_Box], lines: Sequence[tuple[_Place, _Place]]
) -> tuple[_Box, Optional[_Place]]:
    """The nearest free place for the label of a dot, and where its line ends, if any."""
    ways = itertools.product(range(-_HEIGHT, _HEIGHT, _STEP), _AWAY, (1, -1))
    for down, away, side in sorted(ways, key=lambda way: (abs(way[0]) + way[1], -way[2])):
        begin = dot[0] + side * (_GAP + away)
        box = _Box(begin if side > 0 else begin - width, dot[1] + 4 + down, width)
        is_far = away > 0 or abs(down) > _LINE / 2
        lead = (begin - 2 * side, box.y - 4) if is_far else None
        if _is_free(box, boxes, lines) and (lead is None or _is_clear(dot, lead, boxes)):
            return box, lead
    return _Box(dot[0] + _GAP, dot[1] + 4, width), None


def _is_free(box: _Box, boxes: Sequence[_Box], lines: Sequence[tuple[_Place, _Place]]) -> bool:
    is_inside = box.x >= _LEFT + 3 and _TOP + _LETTERS_UP <= box.y <= _HEIGHT - _BOTTOM - 6
    return (
        is_inside
        and not any(map(box.meets, boxes))
        and not any(box.is_crossed(begin, end) for begin, end in lines)
    )


def _is_clear(dot: _Place, lead: _Place, boxes: Sequence[_Box]) -> bool:
    """Whether a line from a dot to its label runs through no label; it may pass dots."""
    return not any(box.is_crossed(dot, lead) for box in boxes if box.width > 2 * _DOT)


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'

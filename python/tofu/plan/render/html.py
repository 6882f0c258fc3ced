"""A plan as one self-contained web page with pictures of tiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ..plan import OperatorPlan, Plan, TensorPlan, format_bytes
from .explain import Section
from .grouping import repeated_operators, repeated_tensors
from .picture import Picture, draw
from .text import cuts_text, summary, tiles_text

__all__ = ["render_html", "worker_colour"]

_TEMPLATE = "plan.html"
# With more pieces a drawing would be a grey square.
_MOST_CELLS = 256
_WIDTH, _HEIGHT = 96, 48


@dataclasses.dataclass(frozen=True)
class _Rect:
    """A piece to draw, in pixels; `colours` are those of its owners, one stripe each."""

    x: float
    y: float
    width: float
    height: float
    owners: str
    colours: tuple[str, ...]


def render_html(plan: Plan, sections: Sequence[Section] = ()) -> str:
    """The plan as a self-contained HTML document.

    Args:
        plan: the plan.
        sections: explanations of the cuts of tensors and operators.
    """
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters["size"] = format_bytes
    pictures: dict[tuple[Any, ...], Optional[list[_Rect]]] = {}

    def tiles(tensor: TensorPlan) -> Optional[list[_Rect]]:
        key = (len(tensor.shape), tensor.cuts)
        if key not in pictures:
            pictures[key] = _rects(draw(tensor, plan.parts), plan.workers)
        return pictures[key]

    return environment.get_template(_TEMPLATE).render(
        plan=plan,
        summary=summary(plan),
        tensors=repeated_tensors(plan),
        operators=repeated_operators(plan),
        sections=sections,
        tiles=tiles,
        tiles_text=lambda tensor: tiles_text(tensor, plan.parts),
        cuts_text=cuts_text,
        split_text=_split_text,
        width=_WIDTH,
        height=_HEIGHT,
        colours=[worker_colour(w, plan.workers) for w in range(plan.workers)],
    )


def worker_colour(worker: int, workers: int) -> str:
    """A different colour for every worker, as "#rrggbb".

    >>> worker_colour(0, 8)
    '#da7a7a'
    """
    import colorsys

    red, green, blue = colorsys.hls_to_rgb(worker / workers, 0.7 if worker % 2 else 0.665, 0.565)
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))


def _rects(picture: Picture, workers: int) -> Optional[list[_Rect]]:
    """The pieces as rectangles, with a gap between planes; None if there are too many."""
    if len(picture.cells) > _MOST_CELLS:
        return None
    gap = 4
    across = (_WIDTH - gap * (picture.planes - 1)) / (picture.planes * picture.columns)
    down = _HEIGHT / picture.rows
    return [
        _Rect(
            x=round(cell.column * across + gap * (cell.column // picture.columns), 2),
            y=round(cell.row * down, 2),
            width=round(across, 2),
            height=round(down, 2),
            owners=", ".join(map(str, cell.workers)),
            colours=tuple(worker_colour(worker, workers) for worker in cell.workers[:8]),
        )
        for cell in picture.cells
    ]


def _split_text(operator: OperatorPlan) -> str:
    return " ".join(cut or "-" for cut in operator.cuts)

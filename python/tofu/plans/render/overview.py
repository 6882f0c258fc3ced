"""The head of a plan's page: what people ask first.

Does it fit, how are the largest weights cut, what does a step cost, and what to do next.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ..layers import updated_variables
from ..plan import Plan, TensorPlan, format_bytes, format_seconds
from .grouping import Repeated, repeated
from .picture import draw
from .text import cuts_text, tiles_text

__all__ = ["Bar", "Overview", "Share", "Weight", "overview"]

_MOST_WEIGHTS = 6
_MOST_CELLS = 256  # more would be a grey square
_STRIPES = 8  # of a piece, one for each owner, as in page/tiles.js
_LARGER = 1.05  # scale of the bars, so that a limit is not at their very end


class Share(NamedTuple):
    """A part of a bar: its label, and where it lies, in percent of the bar."""

    label: str
    width: float


class Bar(NamedTuple):
    """A bar: who holds the bytes, how many, and its parts."""

    name: str
    total: str
    shares: tuple[Share, ...]


class Weight(NamedTuple):
    """Weights that are alike.

    Attributes:
        name: their name, with "*" for numbers that differ.
        text: number, shape, tiles, and the dimension that each step cuts.
        columns, rows: the size of the grid; 0 if there are too many pieces to see.
        cells: the stripes of each piece, one for each of its first owners: where it begins, its
            height in rows, the owner's colour, and all owners in words.
    """

    name: str
    text: str
    columns: int
    rows: int
    cells: tuple[tuple[float, float, float, str, str], ...]


@dataclasses.dataclass(frozen=True)
class Overview:
    """What the head shows.

    Attributes:
        verdict: whether it fits, in a sentence.
        bars: the memory of a worker, and of one device alone; empty if unknown.
        limit: where the limit lies, in percent of a bar; None without a limit.
        weights: the largest weights.
        cost: the time of a step.
        advice: command lines, each with its purpose.
    """

    verdict: str
    bars: tuple[Bar, ...]
    limit: Optional[float]
    weights: tuple[Weight, ...]
    cost: str
    advice: tuple[tuple[str, str], ...]


def overview(
    plan: Plan,
    colours: Sequence[str],
    command: tuple[str, str],
    *,
    limit_bytes: Optional[int] = None,
    serial_bytes: int = 0,
) -> Overview:
    """The head of a plan's page.

    Args:
        plan: the plan.
        colours: the colour of each worker.
        command: the command line that plans it, before and after further options.
        limit_bytes: what a worker may hold; None: no limit is known.
        serial_bytes: what one device alone would hold, an estimate; 0: unknown.
    """
    held = sum(plan.bytes_per_worker.values())
    scale = _LARGER * max(held, serial_bytes, limit_bytes or 0, 1)
    kinds = tuple(
        Share(f"{kind.replace('_', ' ')} {format_bytes(size)}", 100 * size / scale)
        for kind, size in plan.bytes_per_worker.items()
    )
    bars = [Bar("a worker", format_bytes(held), kinds)]
    if serial_bytes:
        alone = Share("one device alone", 100 * serial_bytes / scale)
        bars.append(Bar("one device", f"about {format_bytes(serial_bytes)}", (alone,)))
    return Overview(
        _verdict(held, limit_bytes, serial_bytes),
        tuple(bars) if held else (),
        None if limit_bytes is None else 100 * limit_bytes / scale,
        tuple(_weight(group, plan.parts, colours) for group in _largest(plan)),
        _cost(plan),
        _advice(*command),
    )


def _verdict(held: int, limit: Optional[int], serial: int) -> str:
    if not held:
        return "Memory is unknown."
    if limit is not None:
        fits = "fits" if held <= limit else "does not fit"
        return f"It {fits}: a worker holds {format_bytes(held)} of {format_bytes(limit)}."
    alone = f"; one device alone would hold about {format_bytes(serial)}" if serial else ""
    return f"A worker holds {format_bytes(held)}{alone}."


def _largest(plan: Plan) -> list[Repeated[TensorPlan]]:
    updated = updated_variables({operator.node for operator in plan.operators})
    groups = repeated(
        [tensor for tensor in plan.tensors if tensor.node in updated],
        name=lambda tensor: tensor.label,
        alike=lambda tensor: (tensor.shape, tensor.cuts),
        size=lambda tensor: tensor.bytes,
    )
    return groups[:_MOST_WEIGHTS]


def _weight(group: Repeated[TensorPlan], parts: Sequence[int], colours: Sequence[str]) -> Weight:
    tensor, drawn = group.first, draw(group.first, parts)
    times = f"{len(group)} x " if len(group) > 1 else ""
    shape = "x".join(map(str, tensor.shape))
    text = f"{times}{shape}, {format_bytes(tensor.bytes)}; "
    if math.prod(tensor.tiles(parts)) == 1:
        text += "whole on every worker"
    else:
        copies = "copies of " * tensor.replicated
        text += (
            f"{copies}tiles {tiles_text(tensor, parts).replace('=', '')}; cut {cuts_text(tensor)}"
        )
    if len(drawn.cells) > _MOST_CELLS:
        return Weight(group.name, text, 0, 0, ())
    cells = tuple(
        (cell.column, cell.row + number * height, height, colours[worker], _owners(cell.workers))
        for cell in drawn.cells
        for height in [1 / min(len(cell.workers), _STRIPES)]
        for number, worker in enumerate(cell.workers[:_STRIPES])
    )
    columns = drawn.columns * drawn.planes
    return Weight(group.name, text, columns, drawn.rows, cells)


def _owners(workers: Sequence[int]) -> str:
    return f"worker{'s' * (len(workers) > 1)} {', '.join(map(str, workers))}"


def _cost(plan: Plan) -> str:
    if plan.predicted is None:
        return "--machine NAME predicts the time of a step."
    seconds = {name: ns / 1e9 for name, ns in plan.predicted.items() if name.endswith("_ns")}
    return (
        f"A step takes {format_seconds(seconds['step_ns'])} on {plan.predicted['machine']} "
        f"(predicted); fetches take {format_seconds(seconds['fetch_ns'])}, of which "
        f"{format_seconds(seconds['hidden_ns'])} pass during operators."
    )


def _advice(before: str, after: str) -> tuple[tuple[str, str], ...]:
    options = {
        "--save net.plan": "saves the plan for training",
        "--memory 12GiB": "says whether it fits, and sends less where there is memory to spare",
        "--prices --format html": "adds to this page what other cuts of the largest weights cost",
        "--machine p3.16xlarge": "predicts the time of a step",
    }
    given = before.split()
    return tuple(
        (f"{before} {option} {after}", purpose)
        for option, purpose in options.items()
        if option.split()[0] not in given
    )

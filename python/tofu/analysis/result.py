"""The result of an analysis, and its text with one row per strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from tofu.lang.interval import Form, Interval
from tofu.lang.tracing import Trace
from tofu.tables import table

__all__ = ["Analysis", "Extent", "InputRegion", "OutputPart", "Strategy"]


@dataclass(frozen=True)
class Extent:
    """A variable's extent: a dimension of an input or output, or a number."""

    kind: str  # "input", "output", "constant"
    slot: int
    dim: int
    constant: int = 0


@dataclass(frozen=True)
class InputRegion:
    """The region that the operator reads of an input, in terms of the variables' bounds.

    Attributes:
        name: the tensor.
        dims: an interval per dimension, None for the whole dimension.
        fill: the value outside the tensor; None if nothing is read there.
        pad_variables: variables that move an index that may leave the tensor.
    """

    name: str
    dims: tuple[Optional[Interval], ...]
    fill: Optional[str]
    pad_variables: tuple[str, ...]


@dataclass(frozen=True)
class OutputPart:
    """Rule by which the parts of a split produce one output.

    Attributes:
        reducer: sum, max, min, prod, logsumexp or weighted; None for a concatenation or an
            output that every part computes whole.
        concatenated: whether the parts are disjoint regions.
        weights: of weighted parts, the number of the output whose exponentials are the weights.
    """

    reducer: Optional[str]
    concatenated: bool
    weights: Optional[int] = None


@dataclass(frozen=True)
class Strategy:
    """A way to split the operator.

    Attributes:
        variable: the variable whose range is split.
        outputs: how the parts combine to each output.
        only_first: inputs that are zeros in every part except the first.
    """

    variable: str
    outputs: tuple[OutputPart, ...]
    only_first: frozenset[int]


@dataclass(frozen=True)
class Analysis:
    """The result for one description; ``str()`` prints it as a table.

    Attributes:
        trace: the executed description.
        extents: every variable with its extent, output variables first.
        inputs: regions by input; None for an input that is never read.
        outputs: regions by output.
        strategies: the ways to split it, in the order of ``extents``.
        pointwise: whether every input is read exactly at the output's index.
    """

    trace: Trace
    extents: Mapping[str, Extent]
    inputs: tuple[Optional[InputRegion], ...]
    outputs: tuple[tuple[Interval, ...], ...]
    strategies: tuple[Strategy, ...]
    pointwise: bool

    def __str__(self) -> str:
        return _text(self)


def _text(analysis: Analysis) -> str:
    """A table with a row per strategy: how outputs combine, and the regions a part reads.

    ``b.lo..b.hi`` is a part's own range of ``b``, both ends inclusive; a name in capitals
    is the last index of a variable that is not split; ``:`` is a whole dimension.
    """
    trace = analysis.trace
    head = ["variable"]
    head += [f"output {k}" for k in range(len(trace.outputs))]
    head += [tensor.name for tensor in trace.inputs]
    lines = table(head, (_row(analysis, strategy) for strategy in analysis.strategies))
    if not analysis.strategies:
        lines = ["(no strategy: every worker computes the whole)"]
    indented = (f"  {line}" for line in lines)
    return "\n".join([f"{trace.source.name} ({trace.source.location})", *indented])


def _row(analysis: Analysis, strategy: Strategy) -> list[str]:
    cells = [strategy.variable]
    cells += [_outcome(part) for part in strategy.outputs]
    for slot, region in enumerate(analysis.inputs):
        zeros = " (zeros after the first part)" if slot in strategy.only_first else ""
        cells.append(_region(region, strategy.variable) + zeros)
    return cells


def _outcome(part: OutputPart) -> str:
    if part.concatenated:
        return "concatenate"
    return "whole" if part.reducer is None else f"reduce {part.reducer}"


def _region(region: Optional[InputRegion], variable: str) -> str:
    if region is None:
        return "[...]"
    dims = (":" if d is None else _interval(d, variable) for d in region.dims)
    return f"[{', '.join(dims)}]"


def _interval(interval: Interval, variable: str) -> str:
    if variable not in interval.variables:
        return ":"
    return f"{_form(interval.lo, variable)}..{_form(interval.hi, variable)}"


def _form(form: Form, variable: str) -> str:
    """Writes a form; the bounds of unsplit variables are 0 and the name in capitals."""
    text = ""
    for name, bound, coef in form.terms:
        if name != variable and bound == 0:
            continue
        shown = f"{name}.{'hi' if bound else 'lo'}" if name == variable else name.upper()
        sign = "-" if coef < 0 else "+" if text else ""
        text += f"{sign}{'' if abs(coef) == 1 else f'{abs(coef)}*'}{shown}"
    if form.const or not text:
        text += f"{form.const:+d}" if text else str(form.const)
    return text if form.divisor == 1 else f"({text})//{form.divisor}"

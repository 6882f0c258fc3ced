"""Strategies as text."""

from __future__ import annotations

from typing import Optional

from tofu.analysis.strategies import Analysis, InputRegion, OutputPart, Strategy
from tofu.lang.interval import Form, Interval

__all__ = ["table"]


def table(analysis: Analysis) -> str:
    """A row per strategy: how the outputs combine, and what each part reads.

    ``b.lo..b.hi`` is a part's own range of ``b``, both ends inclusive; a name in capitals
    is the last index of a variable that is not split; ``:`` is a whole dimension.
    """
    trace = analysis.trace
    head = ["variable"]
    head += [f"output {k}" for k in range(len(trace.outputs))]
    head += [tensor.name for tensor in trace.inputs]
    rows = [head] + [_row(analysis, strategy) for strategy in analysis.strategies]
    widths = [max(len(row[c]) for row in rows) for c in range(len(head))]
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        for row in rows
    ]
    if not analysis.strategies:
        lines = ["  (no strategy: every worker computes the whole)"]
    return "\n".join([f"{trace.source.name} ({trace.source.location})", *lines])


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
    """The form with 0 and the name in capitals as bounds of variables that are not split."""
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

"""Finds splits that work for an operator but are missing from its description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from tofu.analysis.apply_row import Part, parts_of
from tofu.boxes import Box
from tofu.lang.example_calls import Case
from tofu.verify.find.splits import Outcome, Way, find_ways, refusing
from tofu.verify.run.by_parts import Run
from tofu.verify.run.node import Array, Tensor

__all__ = ["missing_ways"]


def missing_ways(case: Case, seed: int) -> Iterator[Way]:
    """The splits found by running a case that match no strategy of its row."""
    runs = [Run(case, seed + k) for k in range(2)]
    run = runs[0]
    compared = [k for k, a in enumerate(run.outputs) if a is not None and k not in case.skip]
    if run.random or not compared or not run.inputs:
        return

    def call(inputs: Sequence[Array], attrs: Mapping[str, str]) -> list[Array]:
        results = run.run(inputs, attrs, _donor(run, inputs))
        return [results[k] for k in compared]

    strategies = list(_strategies(run, compared))
    samples = [r.inputs for r in runs]
    backward = case.forward is not None
    for way in find_ways(refusing(call), samples, case.attrs, together=backward):
        if not any(_covers(strategy, way, run) for strategy in strategies):
            yield way


def _donor(run: Run, inputs: Sequence[Array]) -> list[Tensor]:
    """The forward operator's inputs for a part, with sizes changed as in the tensors it reads."""
    renamed = {
        old: new
        for before, now in zip(run.inputs, inputs)
        for old, new in zip(before.shape, now.shape)
        if old != new
    }
    donor = [
        Tensor(tuple(renamed.get(size, size) for size in t.shape), t.dtype)
        for t in run.forward_inputs
    ]
    for k, read in enumerate(run.case.reads):
        if read[0] == "i":
            donor[int(read[1:])] = Tensor(inputs[k].shape, str(inputs[k].dtype))
    return donor


def _strategies(run: Run, compared: Sequence[int]) -> Iterator[Way]:
    """The description's strategies, as ways."""
    for var in run.row["splittable"]:
        extent = run.extent(var)
        halves = (var, (extent - extent // 2, extent // 2))
        parts = parts_of(run.row, run.case.attrs, run.in_shapes, run.out_shapes, [halves])
        first, second = parts
        cuts = tuple(map(_moved, first.inputs, second.inputs))
        yield Way(cuts, tuple(_outcome(run, var, first, second, k) for k in compared))


def _moved(first: Box, second: Box) -> Optional[int]:
    """The first dimension in which the regions of two parts differ."""
    return next((d for d, (a, b) in enumerate(zip(first, second)) if a != b), None)


def _outcome(run: Run, var: int, first: Part, second: Part, number: int) -> Outcome:
    reduced = run.row["outputs"][number]["reduce"].get(str(var))
    if reduced is not None:
        return Outcome(reduced)
    dim = _moved(first.outputs[number], second.outputs[number])
    return Outcome("whole") if dim is None else Outcome("concatenate", dim)


def _covers(strategy: Way, way: Way, run: Run) -> bool:
    """Whether a strategy does the same as a way, regardless of inputs that are never read."""
    if strategy.outcomes != way.outcomes:
        return False
    read = [any(d is not None for d in access["dims"]) for access in run.row["inputs"]]
    read += [False] * (len(way.cuts) - len(read))
    return all(
        way_cut is None or strategy_cut == way_cut or not is_read
        for way_cut, strategy_cut, is_read in zip(way.cuts, strategy.cuts, read)
    )

"""Orders the operators of a profile by worker, and adds up how a worker spends its time.

At every moment of a step a worker computes, fetches or waits; the three add up to the step::

    timeline = Timeline.of(operators, steps=[(0.0, 1500.0)], workers=["cpu/0", "cpu/1"])
    timeline.shares[0].computation      # microseconds
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["COMPUTATION", "FETCH", "WAITING", "Operator", "Share", "Slice", "Timeline"]

COMPUTATION, FETCH, WAITING = "computation", "fetch", "waiting"
Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator that ran.

    Attributes:
        worker: the number of the worker.
        begin, end: when, in microseconds.
        name: its name for readers.
        kind: COMPUTATION or FETCH.
        layer: the layer that it belongs to.
        details: further properties to show, such as its direction and its operator.
    """

    worker: int
    begin: float
    end: float
    name: str
    kind: str
    layer: str
    details: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Slice:
    """A period in which a worker runs an operator, or waits (`operator` is None).

    Attributes:
        others: while it waits, the microseconds for which another worker works.
    """

    begin: float
    end: float
    kind: str
    operator: Operator | None = None
    others: float = 0.0


@dataclasses.dataclass(frozen=True)
class Share:
    """A worker's time, in microseconds.

    Attributes:
        computation, fetch: in operators that compute, and in those that move data.
        waiting: the remaining time.
        others: the part of the waiting in which another worker works; in the rest, all workers
            wait for the script.
    """

    computation: float
    fetch: float
    waiting: float
    others: float

    @property
    def busy(self) -> float:
        """Time spent in operators."""
        return self.computation + self.fetch


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The steps of a profile.

    Attributes:
        workers: the device of each worker.
        steps: begin and end of each step, without gaps.
        slices: for each worker, its operators and waits, without gaps or overlaps.
        shares: for each worker, the sums of its slices.
    """

    workers: tuple[str, ...]
    steps: tuple[Interval, ...]
    slices: tuple[tuple[Slice, ...], ...]
    shares: tuple[Share, ...]

    @classmethod
    def of(
        cls, operators: Iterable[Operator], steps: Sequence[Interval], workers: Sequence[str]
    ) -> Timeline:
        """Order operators; parts outside of the steps are left out."""
        window = steps[0][0], steps[-1][1]
        busy = [
            _apart([each for each in operators if each.worker == worker], window)
            for worker in range(len(workers))
        ]
        # A worker that waits is not among those that work.
        working = _union((each.begin, each.end) for slices in busy for each in slices)
        slices = [tuple(_with_waiting(own, window, working)) for own in busy]
        return cls(tuple(workers), tuple(steps), tuple(slices), tuple(map(_share, slices)))

    @property
    def duration(self) -> float:
        """Duration of all steps, in microseconds."""
        return self.steps[-1][1] - self.steps[0][0]

    @property
    def busiest(self) -> int:
        """The worker that works most."""
        return max(range(len(self.shares)), key=lambda worker: self.shares[worker].busy)

    def longest(self, worker: int) -> list[tuple[str, float]]:
        """Times of a worker's operators by layer, direction and kind, longest first."""
        sums: dict[str, float] = {}
        for span in self.slices[worker]:
            operator = span.operator
            if operator is not None:
                words = (
                    operator.layer,
                    operator.details.get("direction"),
                    "fetches" if operator.kind == FETCH else None,
                )
                key = " ".join(filter(None, words))
                sums[key] = sums.get(key, 0.0) + span.end - span.begin
        return sorted(sums.items(), key=lambda item: (-item[1], item[0]))

    def to_document(self, title: str) -> dict[str, Any]:
        """The trace-event document that Perfetto and Chrome read: a track for each worker."""
        start = self.steps[0][0]
        events: list[dict[str, Any]] = [_named("process_name", title)]
        tracks = ["steps", *(f"worker {w} ({device})" for w, device in enumerate(self.workers))]
        for track, name in enumerate(tracks):
            events.append(_named("thread_name", name, track))
            events.append(
                {**_named("thread_sort_index", name, track), "args": {"sort_index": track}}
            )
        for number, (begin, end) in enumerate(self.steps, 1):
            events.append(_event(f"step {number}", "step", 0, begin - start, end - begin))
        for worker, slices in enumerate(self.slices):
            for span in slices:
                event = _event(
                    _name(span), span.kind, worker + 1, span.begin - start, span.end - span.begin
                )
                if span.operator is not None:
                    event["args"] = {"layer": span.operator.layer, **span.operator.details}
                events.append(event)
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(kind: str, name: str, track: int = 0) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": track, "name": kind, "args": {"name": name}}


def _event(name: str, kind: str, track: int, begin: float, duration: float) -> dict[str, Any]:
    times = {"ts": round(begin, 3), "dur": round(duration, 3)}
    return {"ph": "X", "pid": 1, "tid": track, "name": name, "cat": kind, **times}


def _name(span: Slice) -> str:
    if span.operator is not None:
        return span.operator.name
    for_others = span.others > (span.end - span.begin) / 2
    return "waiting for other workers" if for_others else "waiting for the script"


def _apart(operators: Sequence[Operator], window: Interval) -> list[Slice]:
    """Put slices one after another; an overlap belongs to the first operator."""
    slices = []
    until = window[0]
    for operator in sorted(operators, key=lambda operator: (operator.begin, operator.end)):
        begin, end = max(operator.begin, until), min(operator.end, window[1])
        if end > begin:
            slices.append(Slice(begin, end, operator.kind, operator))
            until = end
    return slices


def _with_waiting(
    slices: Sequence[Slice], window: Interval, others: Sequence[Interval]
) -> Iterable[Slice]:
    until = window[0]
    for span in slices:
        if span.begin > until:
            yield Slice(until, span.begin, WAITING, None, _covered((until, span.begin), others))
        yield span
        until = span.end
    if window[1] > until:
        yield Slice(until, window[1], WAITING, None, _covered((until, window[1]), others))


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    union: list[Interval] = []
    for begin, end in sorted(intervals):
        if union and begin <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((begin, end))
    return union


def _covered(interval: Interval, union: Sequence[Interval]) -> float:
    """The length of the part of an interval that a union covers."""
    begin, end = interval
    total = 0.0
    first = max(bisect.bisect_left(union, (begin, begin)) - 1, 0)
    for low, high in union[first:]:
        if low >= end:
            break
        total += max(0.0, min(high, end) - max(low, begin))
    return total


def _share(slices: Sequence[Slice]) -> Share:
    sums = dict.fromkeys((COMPUTATION, FETCH, WAITING), 0.0)
    for span in slices:
        sums[span.kind] += span.end - span.begin
    return Share(sums[COMPUTATION], sums[FETCH], sums[WAITING], sum(each.others for each in slices))

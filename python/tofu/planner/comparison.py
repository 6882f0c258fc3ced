"""Compares searches of one graph: modes, replication, objectives, numbers of workers.

for found in compare(problem_for, devices=(Devices(2), Devices(4)), modes=("tofu", "spartan")):
print(found.workers, found.mode, found.plan and found.plan.total_bytes)
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Callable, Optional

from tofu.config import MODES, OBJECTIVES
from tofu.errors import PlanError
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.plan import IfWhole, format_bytes, format_seconds

from .limits import held_bytes
from .model import Devices
from .search import plan_graph
from .sweep import Measure, Trial, sweep

__all__ = ["Alternative", "advice", "compare", "with_whole"]

_PAYS = 0.9  # of the bytes or the time: less is worth a line of advice
_LEAST_SAVED = 0.01  # of the bytes, to be named
_LEAST_SECONDS = 1.0  # for the search of a cheaper plan
_MOSTLY_WHOLE = 0.5  # of the bytes of all tensors


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A search and its result.

    Attributes:
        workers: the number of workers.
        mode: the search mode.
        replication: whether tensors could stay whole.
        plan: the plan, or None if there is none.
        reason: why there is none.
        step_seconds: the predicted time of a step; None without a machine.
        objective: what the search minimised, one of config.OBJECTIVES.
        mesh: the sizes of the mesh's dimensions; empty but for modules of PyTorch.
    """

    workers: int
    mode: str
    replication: bool
    plan: Optional[Plan]
    reason: str = ""
    step_seconds: Optional[float] = None
    objective: str = OBJECTIVES[0]
    mesh: tuple[int, ...] = ()

    @property
    def devices(self) -> str:
        """The number of workers, or the mesh, for readers."""
        return " x ".join(map(str, self.mesh or (self.workers,)))

    @property
    def memory_bytes(self) -> int:
        """Bytes that the fullest worker holds; 0 without a plan."""
        return sum(self.plan.bytes_per_worker.values()) if self.plan else 0

    @property
    def whole_share(self) -> float:
        """The share of all bytes that stay whole because no dimension can be cut."""
        if self.plan is None or not self.plan.tensor_bytes:
            return 0.0
        return sum(self.plan.whole_bytes().values()) / self.plan.tensor_bytes


def compare(
    problem_for: Callable[[Devices], Problem],
    *,
    devices: Sequence[Devices],
    modes: Sequence[str] = MODES,
    replication: Sequence[bool] = (False, True),
    objectives: Sequence[str] = OBJECTIVES[:1],
    options: Optional[SearchOptions] = None,
    measure: Optional[Measure] = None,
) -> Iterator[Alternative]:
    """Yield every combination as soon as it is planned.

    Args:
        problem_for: the graph for some devices.
        devices: numbers of workers, or meshes.
        modes: search modes.
        replication: whether tensors may stay whole.
        objectives: what to minimise, some of config.OBJECTIVES.
        options: other options of every search; None: the defaults.
        measure: how to count memory and predict times; None: a quick estimate of memory alone.
    """
    total = len(devices) * len(modes) * len(replication) * len(objectives)

    meshes: deque[tuple[int, ...]] = deque()

    def trials() -> Iterator[Trial]:
        number = 0
        for each in devices:
            problem = problem_for(each)
            for mode, whole, objective in itertools.product(modes, replication, objectives):
                number += 1
                meshes.append(each.mesh)
                chosen = dataclasses.replace(
                    options or SearchOptions(), mode=mode, allow_replication=whole,
                    objective=objective,
                )  # fmt: skip
                yield Trial(f"plan {number} of {total}", problem, chosen)

    for outcome in sweep(trials(), measure or Measure()):
        chosen = outcome.trial.options
        yield Alternative(
            outcome.trial.problem.workers, chosen.mode, chosen.allow_replication, outcome.plan,
            outcome.reason, outcome.step_seconds, chosen.objective, meshes.popleft(),
        )  # fmt: skip


def with_whole(problem: Problem, plan: Plan, options: SearchOptions) -> Plan:
    """A plan that names the cheaper one with whole tensors, if a search about as long finds it.

    Args:
        problem: the graph of the plan.
        plan: the plan.
        options: how it was searched. Only for the mode tofu and for bytes is there another one.
    """
    is_usual = (options.mode, options.objective) == (MODES[0], OBJECTIVES[0])
    if options.allow_replication or not is_usual or plan.searched is None or not plan.total_bytes:
        return plan
    seconds = min(options.limit_s, max(_LEAST_SECONDS, plan.search_seconds))
    free = dataclasses.replace(options, allow_replication=True, time_limit_s=seconds)
    try:
        found = plan_graph(problem, free)
    except PlanError:
        return plan
    saved = 1 - found.total_bytes / plan.total_bytes
    if saved < _LEAST_SAVED:
        return plan
    held = held_bytes(found) / max(sum(plan.searched.estimate_memory().values()), 1)
    return dataclasses.replace(plan, if_whole=IfWhole(found.total_bytes, saved, held))


def advice(alternatives: Sequence[Alternative]) -> list[str]:
    """Draw conclusions on replication and the number of workers, one line each."""
    lines = []
    first = [
        alternative
        for alternative in alternatives
        if alternative.mode == MODES[0]
        and alternative.plan is not None
        and alternative.objective == OBJECTIVES[0]
    ]
    if len({each.mesh for each in first}) > len({each.workers for each in first}):
        return []  # later lines compare numbers of workers, not meshes
    best = {(each.workers, each.replication): each for each in first}
    for (count, whole), alternative in best.items():
        replicated = best.get((count, True))
        if whole or replicated is None or alternative.plan is None or replicated.plan is None:
            continue
        before, after = alternative.plan.total_bytes, replicated.plan.total_bytes
        if after < _PAYS * before:
            lines.append(
                f"{count} workers: --allow-replication cuts {format_bytes(before)} to "
                f"{format_bytes(after)}; a worker {_then_holds(alternative, replicated)}"
            )
    return (
        lines + _workers_advice(best) + _objective_advice(alternatives) + _time_advice(alternatives)
    )


def _objective_advice(alternatives: Sequence[Alternative]) -> list[str]:
    """Lines on plans for time that are predicted to be clearly faster than those for bytes."""
    by_bytes = {
        (alternative.workers, alternative.mode, alternative.replication): alternative
        for alternative in alternatives
        if alternative.objective == "bytes"
    }
    pairs = []
    for timed in alternatives:
        for_bytes = by_bytes.get((timed.workers, timed.mode, timed.replication))
        if timed.objective == "time" and for_bytes is not None:
            pairs.append((for_bytes, timed))
    lines = [line for for_bytes, timed in pairs if (line := _saved(for_bytes, timed))]
    if pairs and not lines:
        lines = ["--objective time: no plan is predicted to be more than a tenth faster"]
    return lines


def _saved(for_bytes: Alternative, timed: Alternative) -> str:
    """A line on the savings of a plan for time over the one for bytes; "" if too small."""
    if timed.step_seconds is None or for_bytes.step_seconds is None:
        return ""
    if timed.plan is None or for_bytes.plan is None:
        return ""
    if timed.step_seconds >= _PAYS * for_bytes.step_seconds:
        return ""
    whole = " with --allow-replication" if timed.replication else ""
    return (
        f"{timed.workers} workers, {timed.mode}{whole}: --objective time cuts a step from "
        f"{format_seconds(for_bytes.step_seconds)} to {format_seconds(timed.step_seconds)}, and "
        f"communicates {format_bytes(timed.plan.total_bytes)} instead of "
        f"{format_bytes(for_bytes.plan.total_bytes)}"
    )


def _time_advice(alternatives: Sequence[Alternative]) -> list[str]:
    """A line on the plan that is predicted to be fastest."""
    timed = [(each.step_seconds, each) for each in alternatives if each.step_seconds is not None]
    if len(timed) < 2:
        return []
    seconds, best = min(timed, key=lambda pair: pair[0])
    options = [
        *(["--allow-replication"] if best.replication else []),
        *(["--objective time"] if best.objective == "time" else []),
    ]
    return [
        f"fastest step predicted: {format_seconds(seconds)}, {best.mode} over {best.workers} "
        f"workers{' with ' if options else ''}{' and '.join(options)}"
    ]


def _then_holds(before: Alternative, after: Alternative) -> str:
    was, now = format_bytes(before.memory_bytes), format_bytes(after.memory_bytes)
    return f"holds {now} either way" if was == now else f"then holds {now} instead of {was}"


def _workers_advice(best: dict[tuple[int, bool], Alternative]) -> list[str]:
    """Lines on numbers of workers that divide next to nothing, and on better ones."""
    whole = [each for (_, free), each in best.items() if not free]
    bad = [each.workers for each in whole if each.whole_share >= _MOSTLY_WHOLE]
    good = [each.workers for each in whole if each.whole_share < _MOSTLY_WHOLE]
    lines = []
    if bad:
        shown = " and ".join(map(str, bad))
        lines.append(
            f"{shown} workers: most bytes stay whole on every worker, as most tensors have no "
            "dimension for so many parts"
            + (f"; {' or '.join(map(str, good))} workers divide them" if good else "")
        )
    for fewer in whole:
        larger = [
            more
            for more in whole
            if more.workers > fewer.workers
            and more.plan is not None
            and fewer.plan is not None
            and more.plan.total_bytes <= fewer.plan.total_bytes
            and more.memory_bytes < fewer.memory_bytes
            and more.whole_share < _MOSTLY_WHOLE
        ]
        if larger and fewer.workers not in bad:
            most = max(larger, key=lambda more: more.workers)
            lines.append(
                f"{most.workers} workers communicate no more than {fewer.workers}, and each holds "
                f"{format_bytes(most.memory_bytes)} instead of {format_bytes(fewer.memory_bytes)}"
            )
    return lines

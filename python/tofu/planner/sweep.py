"""A sweep: plans many problems or options one after the other, and measures the plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Callable, Optional

from tofu.errors import PlanError
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.progress import stage

from .limits import held_bytes
from .memory import with_memory
from .recomputation import Recomputation
from .search import Searched, search

__all__ = ["Measure", "Outcome", "Trial", "sweep"]

StepSeconds = Callable[[Problem, Plan], float]
Count = Callable[[Problem, Plan], Plan]


@dataclasses.dataclass(frozen=True)
class Trial:
    """A search of a sweep and its result.

    Attributes:
        name: its name for progress and readers.
        problem: what to plan.
        options: how to search.
        recomputation: the recomputation that made the problem's graph, or None.
    """

    name: str
    problem: Problem
    options: SearchOptions = dataclasses.field(default_factory=SearchOptions)
    recomputation: Optional[Recomputation] = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A trial and its plan.

    Attributes:
        trial: the trial.
        problem: the graph that the plan is for.
        plan: the plan; None if there is none.
        reason: why there is none.
        step_seconds: the predicted time of a step; None if it is not predicted.
    """

    trial: Trial
    problem: Problem
    plan: Optional[Plan]
    reason: str = ""
    step_seconds: Optional[float] = None

    @property
    def held_bytes(self) -> int:
        """Bytes that the fullest worker holds; 0 without a plan."""
        return held_bytes(self.plan) if self.plan else 0


@dataclasses.dataclass(frozen=True)
class Measure:
    """The measurements of plans that a sweep makes.

    Attributes:
        count: counts the memory of a plan, such as ``with_memory``; None: a quick estimate.
        step_seconds: predicts the time of a step; None: it is not predicted.
        fetch: the way to fetch that times are predicted for, one of config.FETCHES; None: the
            default of the machine's devices.
    """

    count: Optional[Count] = None
    step_seconds: Optional[StepSeconds] = None
    fetch: Optional[str] = None

    @classmethod
    def of(
        cls,
        *,
        exact: bool,
        step_seconds: Optional[StepSeconds] = None,
        fetch: Optional[str] = None,
    ) -> Measure:
        """Count the memory that MXNet will allocate if `exact`."""
        return cls(with_memory if exact else None, step_seconds, fetch)

    def outcome(self, trial: Trial, searched: Searched) -> Outcome:
        """The plan that a trial has found, with its memory and its time."""
        problem, plan = searched.problem, searched.read()
        if self.count is not None:
            plan = self.count(problem, plan)
        seconds = None if self.step_seconds is None else self.step_seconds(problem, plan)
        if trial.recomputation is not None:
            plan = trial.recomputation.note(plan)
        return Outcome(trial, problem, plan, step_seconds=seconds)


def sweep(trials: Iterable[Trial], measure: Measure) -> Iterator[Outcome]:
    """Plan every trial, and yield its outcome as soon as it is known."""
    for trial in trials:
        with stage(trial.name):
            try:
                searched = search(trial.problem, trial.options, simulated=False)
            except PlanError as error:
                outcome = Outcome(trial, trial.problem, None, str(error))
            else:
                outcome = measure.outcome(trial, searched)
        yield outcome

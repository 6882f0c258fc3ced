"""A sweep: plans many problems or options one after the other, and measures the plans."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Callable, Optional, Protocol, Union

from tofu.errors import PlanError
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.progress import stage

from .limits import held_bytes
from .memory import begin_memory
from .recomputation import Recomputation
from .search import Searched, search
from .side_threads import Start, in_turn, most_at_once, side_threads

__all__ = ["Found", "Measure", "Outcome", "Trial", "begun", "measured", "searched_trial", "sweep"]

StepSeconds = Callable[[Problem, Plan], float]


class Count(Protocol):
    """Begins to count a plan's memory; returns a function that waits for the plan with it."""

    def __call__(self, problem: Problem, plan: Plan, *, start: Start) -> Callable[[], Plan]: ...


@dataclasses.dataclass(frozen=True)
class Trial:
    """A search of a sweep and its result.

    Attributes:
        name: its name for readers.
        problem: what to plan.
        options: how to search.
        recomputation: the recomputation that made the problem's graph, or None.
        place: its place in the sweep, for progress; "": the name tells.
    """

    name: str
    problem: Problem
    options: SearchOptions = dataclasses.field(default_factory=SearchOptions)
    recomputation: Optional[Recomputation] = None
    place: str = ""

    @property
    def doing(self) -> str:
        """Its name for progress."""
        return self.place or self.name


# A trial, and the plan that was searched or the reason why there is none.
Found = tuple[Trial, Union[Searched, PlanError]]


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
        count: counts the memory of a plan, such as ``begin_memory``; None: a quick estimate.
        step_seconds: predicts the time of a step; None: it is not predicted.
        fetch: the way to fetch that times are predicted for, one of config.FETCHES; None: the
            default of the machine's devices.
        simulates: whether `step_seconds` simulates a step as MXNet runs it.
    """

    count: Optional[Count] = None
    step_seconds: Optional[StepSeconds] = None
    fetch: Optional[str] = None
    simulates: bool = False

    @classmethod
    def of(
        cls,
        *,
        exact: bool,
        step_seconds: Optional[StepSeconds] = None,
        fetch: Optional[str] = None,
    ) -> Measure:
        """Count the memory that MXNet will allocate if `exact`."""
        simulates = step_seconds is not None
        return cls(begin_memory if exact else None, step_seconds, fetch, simulates)

    @property
    def runs_beside(self) -> bool:
        """Whether most of the count can run during the searches of other plans."""
        return self.count is begin_memory

    def begin(
        self, trial: Trial, searched: Searched, start: Start = in_turn
    ) -> Callable[[], Outcome]:
        """Begin to measure a trial's plan; return a function that waits for its outcome."""
        problem, found = searched.problem, searched.read()

        def plain() -> Plan:
            return found

        wait = plain if self.count is None else self.count(problem, found, start=start)

        def finish() -> Outcome:
            with stage(trial.doing):
                plan = wait()
                seconds = None if self.step_seconds is None else self.step_seconds(problem, plan)
            if trial.recomputation is not None:
                plan = trial.recomputation.note(plan)
            return Outcome(trial, problem, plan, step_seconds=seconds)

        return finish


def sweep(trials: Iterable[Trial], measure: Measure) -> Iterator[Outcome]:
    """Plan every trial, and yield its outcome as soon as it is known."""
    return measured(map(searched_trial, trials), measure)


def searched_trial(trial: Trial) -> Found:
    """Search the plan of a trial."""
    with stage(trial.doing):
        try:
            return trial, search(trial.problem, trial.options, simulated=False)
        except PlanError as error:
            return trial, error


def measured(found: Iterable[Found], measure: Measure) -> Iterator[Outcome]:
    """Measure the plans of trials, and yield their outcomes in order.

    While plans are measured the next ones are searched, if that is faster; an outcome then waits
    for a search at most.
    """
    if not measure.runs_beside:
        yield from (begun(*each, measure, in_turn)() for each in found)
        return
    waiting: deque[Callable[[], Outcome]] = deque()
    with side_threads() as start:
        for each in found:
            waiting.append(begun(*each, measure, start))
            if len(waiting) > most_at_once():
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()


def begun(
    trial: Trial, searched: Union[Searched, PlanError], measure: Measure, start: Start
) -> Callable[[], Outcome]:
    """Begin to measure a trial's result; return a function that waits for its outcome."""
    if isinstance(searched, PlanError):
        outcome = Outcome(trial, trial.problem, None, str(searched))
        return lambda: outcome
    return measure.begin(trial, searched, start)

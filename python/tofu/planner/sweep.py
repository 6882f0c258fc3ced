"""A sweep: plans many problems or options, and measures the plans."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Callable, Optional, Union

from tofu.errors import PlanError
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.problem import Counting, Start, in_turn
from tofu.plans.progress import stage

from .limits import held_bytes
from .recomputation import Recomputation
from .search import Searched, begin_search
from .side_threads import most_at_once, side_threads

__all__ = ["Found", "Measure", "Outcome", "Trial", "begin_trial", "begun", "sweep"]

# Trials that are begun beside one that takes long.
_MOST_AHEAD = 16

StepSeconds = Callable[[Problem, Plan], float]


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
        exact: whether to count the memory that the problem's framework will allocate; else a
            quick estimate.
        step_seconds: predicts the time of a step; None: it is not predicted.
        fetch: the way to fetch that times are predicted for, one of config.FETCHES; None: the
            default of the machine's devices.
    """

    exact: bool = False
    step_seconds: Optional[StepSeconds] = None
    fetch: Optional[str] = None

    @property
    def runs_beside(self) -> bool:
        """Whether the count can run during the searches of other plans."""
        return self.exact

    def begin(
        self, trial: Trial, searched: Searched, start: Start = in_turn
    ) -> Callable[[], Outcome]:
        """Begin to measure a trial's plan; return a function that waits for its outcome."""
        problem, unmeasured = searched.problem, searched.read()

        def plain() -> Plan:
            return unmeasured

        wait = plain
        if self.exact:
            wait = problem.front_end.begin_memory(problem, unmeasured, Counting(start=start))

        def finish() -> Outcome:
            with stage(trial.doing):
                plan = wait()
                seconds = None if self.step_seconds is None else self.step_seconds(problem, plan)
            if trial.recomputation is not None:
                plan = trial.recomputation.note(plan)
            return Outcome(trial, problem, plan, step_seconds=seconds)

        return finish


def sweep(trials: Iterable[Union[Trial, Found]], measure: Measure) -> Iterator[Outcome]:
    """Plan the trials that are not planned yet, and yield the outcome of each, in order.

    The next trials are searched, and memory is counted, on side threads. The first outcome is
    yielded as soon as it is known, a later one after the searches beside it at most.
    """
    waiting: deque[Callable[[], Outcome]] = deque()
    kept_back = 0  # outcomes that are still measured while the next trials are searched
    with side_threads() as start:
        for planned in _searched(trials, start):
            waiting.append(begun(*planned, measure, start if measure.runs_beside else in_turn))
            if len(waiting) > kept_back:
                yield waiting.popleft()()
                kept_back = most_at_once() if measure.runs_beside else 0
        while waiting:
            yield waiting.popleft()()


def _searched(trials: Iterable[Union[Trial, Found]], start: Start) -> Iterator[Found]:
    """Search trials in order, the next ones beside the one that is waited for."""
    ahead: deque[Callable[[], Found]] = deque()
    most = most_at_once()  # few at first: the first outcome is to be known soon
    for each in trials:
        ahead.append(begin_trial(each, start))
        if len(ahead) > most:
            yield ahead.popleft()()
            most = _MOST_AHEAD
    while ahead:
        yield ahead.popleft()()


def begin_trial(trial: Union[Trial, Found], start: Start) -> Callable[[], Found]:
    """Begin to search a trial's plan, unless it has one; return a function that waits for it."""
    if not isinstance(trial, Trial):
        return lambda: trial
    wait = begin_search(trial.problem, trial.options, start=start)

    def finish() -> Found:
        with stage(trial.doing):
            try:
                return trial, wait()
            except PlanError as error:
                return trial, error

    return finish


def begun(
    trial: Trial, searched: Union[Searched, PlanError], measure: Measure, start: Start
) -> Callable[[], Outcome]:
    """Begin to measure a trial's result; return a function that waits for its outcome."""
    if isinstance(searched, PlanError):
        outcome = Outcome(trial, trial.problem, None, str(searched))
        return lambda: outcome
    return measure.begin(trial, searched, start)

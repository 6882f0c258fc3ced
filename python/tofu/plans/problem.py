"""A problem: a training graph, the conditions that its plan must meet, and who will run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Protocol, TypeVar

from tofu import _core
from tofu.errors import InternalError

from .options import SearchOptions
from .plan import Plan
from .simulated_step import Simulation

__all__ = ["Counting", "Cuts", "FrontEnd", "Problem", "Refine", "Start", "in_turn"]

T = TypeVar("T")

# The dimension of each tensor, by name, that each step cuts; -1 leaves it whole.
Cuts = Mapping[str, Sequence[int]]
# Looks at the plan that was found, or at None if there is none, and returns the table of another
# graph that computes the same, or None.
Refine = Callable[[Optional[_core.Plan]], Optional[_core.StrategyTable]]


class Start(Protocol):
    """Starts a computation; returns a function that waits for its result."""

    def __call__(self, run: Callable[[], T]) -> Callable[[], T]:
        """Start `run`, or keep it for later."""


def in_turn(run: Callable[[], T]) -> Callable[[], T]:
    """Start nothing: the computation runs when its result is wanted."""
    return run


class Counting(NamedTuple):
    """How a plan's memory is counted.

    Attributes:
        fetch: one of config.FETCHES; None: the default of a run.
        keep_fetched_bytes: as in SearchOptions.
        start: starts the work that can be done beside other work.
    """

    fetch: Optional[str] = None
    keep_fetched_bytes: int = 0
    start: Start = in_turn


class FrontEnd:
    """The framework that will run a problem's plans, as the planner needs it.

    This one runs nothing: memory is the search's estimate, and a step's time is the search's
    prediction.

    Attributes:
        simulates: whether ``simulate`` chooses among plans for time; else the search's prediction.
        state_kind: the kind of a plan's memory that is as large as one tensor of state for each
            parameter, if the graph is planned with sgd_mom.
    """

    simulates = False
    state_kind = "gradients"

    def adapted(self, options: SearchOptions) -> SearchOptions:
        """The options of a search of plans that the framework can run."""
        return options

    def begin_memory(self, problem: Problem, plan: Plan, counting: Counting) -> Callable[[], Plan]:
        """Begin to count the memory that the framework will allocate.

        Returns:
            A function that waits for the plan with its memory in bytes.
        """
        return lambda: plan

    def warned(self, problem: Problem) -> Mapping[str, str]:
        """Operators to warn of, as no description splits them, each with the reason."""
        return {}

    def notes(self, problem: Problem, plan: Plan, *, everything: bool) -> str:
        """Lines that the framework adds to a plan's tables."""
        return ""

    def document(self, problem: Problem, plan: Plan) -> dict[str, Any]:
        """The plan as JSON."""
        return plan.document()

    def code(self, problem: Problem, plan: Plan, form: str) -> str:
        """The plan as code to paste, in one of ``Model.formats``."""
        raise InternalError(f"{type(self).__name__} has no {form} for plans")

    def save(self, path: Path, problem: Problem, plan: Plan) -> None:
        """Save a plan for runs. Raises ConfigError if the file cannot be written."""
        raise InternalError(f"{type(self).__name__} saves no plans")

    def simulate(
        self,
        plan: _core.Plan,
        machine: _core.Machine,
        *,
        fetch: str,
        with_timeline: bool = False,
    ) -> Simulation:
        """Simulate a step of a plan on a machine.

        Args:
            plan: the plan.
            machine: with at least one device per worker.
            fetch: one of config.FETCHES.
            with_timeline: whether to keep the time of every operation.

        Raises:
            ConfigError: the machine has too few devices.
        """
        raise InternalError(f"{type(self).__name__} does not simulate")


@dataclasses.dataclass(frozen=True)
class Problem:
    """A graph to plan.

    Attributes:
        name: its name for readers.
        table: the strategy table of its training graph, which it contains.
        workers: number of workers.
        refine: the graph that a run would take after a look at the plan; None: this one.
        must_gain: whether a run takes that graph only if its plan is cheaper, not as cheap.
        origin: the graph that a run makes first, if this one replaces it; else None.
        fixed: cuts that tensors have already, which every plan keeps.
        wishes: more cuts, which a plan keeps if it can: the first of these that some plan has.
        saved: the plan to use instead of a search, or None.
        front_end: the framework that will run the plan.
    """

    name: str
    table: _core.StrategyTable
    workers: int
    refine: Optional[Refine] = dataclasses.field(default=None, repr=False, compare=False)
    must_gain: bool = False
    origin: Optional[_core.Graph] = dataclasses.field(default=None, repr=False, compare=False)
    fixed: Cuts = dataclasses.field(default_factory=dict)
    wishes: tuple[Cuts, ...] = ()
    saved: Optional[_core.Plan] = dataclasses.field(default=None, repr=False, compare=False)
    front_end: FrontEnd = dataclasses.field(default=FrontEnd(), repr=False, compare=False)

    @property
    def graph(self) -> _core.Graph:
        """The training graph."""
        return self.table.graph

    def replaced(self, table: _core.StrategyTable) -> Problem:
        """The same with a final graph, which computes what this one does."""
        origin = self.origin or (self.graph if table is not self.table else None)
        return dataclasses.replace(self, table=table, refine=None, origin=origin)

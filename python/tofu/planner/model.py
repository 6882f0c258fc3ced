"""A command's target, as the commands know it: the only door to a front end.

model.problem(Devices(4))            # the graph to plan over 4 workers
model.problem(Devices(8, (2, 4)))    # over a mesh of 2 x 4
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple, Optional

from tofu.plans import Problem
from tofu.plans.runs import Runs

__all__ = ["Devices", "Model"]


class Devices(NamedTuple):
    """Devices to plan for.

    Attributes:
        workers: their number.
        mesh: the sizes of a mesh's dimensions, outermost first; (): the search takes its own steps.
    """

    workers: int
    mesh: tuple[int, ...] = ()

    def __str__(self) -> str:
        return " x ".join(map(str, self.mesh or (self.workers,)))

    @property
    def option(self) -> str:
        """The option of a command that asks for them."""
        if self.mesh:
            return f"--mesh {','.join(map(str, self.mesh))}"
        return f"--workers {self.workers}"


class Model(abc.ABC):
    """A script, a symbol, a named model or a module, with the options that it was given.

    Attributes:
        name: the target of the command.
        formats: formats of plans that it has besides tables, JSON and a page.
        scales: whether the graph can be made for other batch sizes.
        usual_optimizer: the one whose state counts if neither the user nor the target names one.
    """

    scales = False
    usual_optimizer = "sgd"
    formats: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    @abc.abstractmethod
    def refusals(target: str) -> Mapping[str, str]:
        """The options that such a target does not have, by parameter, each with the reason."""

    @abc.abstractmethod
    def problem(self, devices: Devices, batch: Optional[int] = None) -> Problem:
        """The graph to plan, for its own batch size or another.

        Raises:
            ConfigError: there is no such target.
            GraphError: it cannot be traced.
        """

    def problems(self, devices: Devices) -> Sequence[Problem]:
        """All graphs that a training step runs."""
        return [self.problem(devices)]

    @abc.abstractmethod
    def batch_size(self, problem: Problem) -> int:
        """The number of examples in a step; 0 if unknown."""

    @abc.abstractmethod
    def default_workers(self) -> int:
        """The number of workers of a run. Raises ConfigError if it must be given."""

    def usual(self, counts: Sequence[int]) -> Sequence[int]:
        """Those of some numbers of workers that are tried if the user gives none."""
        return counts

    def states(self) -> Optional[int]:
        """Tensors that its own optimizer keeps for a parameter; None: unknown."""
        return None

    def devices(self, workers: int) -> list[Devices]:
        """The ways to arrange so many workers."""
        return [Devices(workers)]

    def arranged(self, counts: Sequence[int]) -> list[Devices]:
        """The ways to arrange each of some numbers of workers."""
        return [each for count in counts for each in self.devices(count)]

    def planned(self, given: Sequence[Devices]) -> Optional[Devices]:
        """The devices of the plan that it was given to use instead of a search; None: no plan.

        Args:
            given: the devices that the user gives, which must include them; empty: any.

        Raises:
            ConfigError: the plan is for others.
        """
        return None

    @abc.abstractmethod
    def trained(self, given: Sequence[Devices], *, steps: int, plan: Optional[str]) -> Runs:
        """Train it whole and partitioned, from the same values.

        Args:
            given: the devices that the user gives; empty: those of a run.
            steps: the least number of training steps.
            plan: the file of a plan for float32; None: plans are searched.

        Raises:
            ConfigError: it cannot be trained, or does not run.
        """

    def guarded(self, run: Callable[[], None]) -> None:
        """Do the work of a command, also if the framework may crash on the target."""
        run()

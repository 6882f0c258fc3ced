"""A command's target, as the commands know it: the only door to a front end.

model.problem(Devices(4))            # the graph to plan over 4 workers
model.problem(Devices(8, (2, 4)))    # over a mesh of 2 x 4
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Optional

from tofu.plans import Problem

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


class Model(abc.ABC):
    """A script, a symbol, a named model or a module, with the options that it was given.

    Attributes:
        name: the target of the command.
        refused: the options that it does not have, by parameter, each with the reason.
    """

    refused: Mapping[str, str] = MappingProxyType({})

    def __init__(self, name: str) -> None:
        self.name = name

    @abc.abstractmethod
    def problem(self, devices: Devices, batch: Optional[int] = None) -> Problem:
        """The graph to plan, for its own batch size or another.

        Raises:
            ConfigError: there is no such target.
            GraphError: it cannot be traced.
        """

    @abc.abstractmethod
    def batch_size(self, problem: Problem) -> int:
        """The number of examples in a step; 0 if unknown."""

    @abc.abstractmethod
    def default_workers(self) -> int:
        """The number of workers of a run. Raises ConfigError if it must be given."""

    def devices(self, workers: int) -> list[Devices]:
        """The ways to arrange so many workers."""
        return [Devices(workers)]

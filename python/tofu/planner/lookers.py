"""Lookers-in: callbacks that see each problem and compiled plan, such as a dry run's."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Callable

from tofu.plans import Problem

from .compile_plan import Compiled

__all__ = ["Lookers"]


def _nothing(_: object) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class _Looker:
    problem: Callable[[Problem], None]
    compiled: Callable[[Compiled], None]


class Lookers:
    """The callbacks of one owner, such as a session."""

    def __init__(self) -> None:
        self._lookers: list[_Looker] = []

    @contextlib.contextmanager
    def looking(
        self,
        *,
        problem: Callable[[Problem], None] = _nothing,
        compiled: Callable[[Compiled], None] = _nothing,
    ) -> Iterator[None]:
        """Look in for the time of this context.

        Args:
            problem: called before a graph is planned; an exception from it ends the planning.
            compiled: called with every graph that was partitioned.
        """
        looker = _Looker(problem, compiled)
        self._lookers.append(looker)
        try:
            yield
        finally:
            self._lookers.remove(looker)

    def see_problem(self, problem: Problem) -> None:
        """Show a graph that is to be planned."""
        for looker in self._lookers:
            looker.problem(problem)

    def see_compiled(self, compiled: Compiled) -> None:
        """Show a graph that was partitioned."""
        for looker in self._lookers:
            looker.compiled(compiled)

"""A problem: a training graph and the conditions that its plan must meet."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from tofu import _core

__all__ = ["Cuts", "Problem", "Refine"]

# The dimension of each tensor, by name, that each step cuts; -1 leaves it whole.
Cuts = Mapping[str, Sequence[int]]
# Looks at the plan that was found, and returns the table of a graph that computes the same
# faster if it is planned alike, or None.
Refine = Callable[[_core.Plan], Optional[_core.StrategyTable]]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A graph to plan.

    Attributes:
        name: its name for readers.
        table: the strategy table of its training graph, which it contains.
        workers: number of workers.
        refine: the graph that a run would take after a look at the plan; None: this one.
        origin: the graph that a run makes first, if this one replaces it; else None.
        fixed: cuts that tensors have already, which every plan keeps.
        wishes: more cuts, which a plan keeps if it can: the first of these that some plan has.
        saved: the plan to use instead of a search, or None.
    """

    name: str
    table: _core.StrategyTable
    workers: int
    refine: Optional[Refine] = dataclasses.field(default=None, repr=False, compare=False)
    origin: Optional[_core.Graph] = dataclasses.field(default=None, repr=False, compare=False)
    fixed: Cuts = dataclasses.field(default_factory=dict)
    wishes: tuple[Cuts, ...] = ()
    saved: Optional[_core.Plan] = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def graph(self) -> _core.Graph:
        """The training graph."""
        return self.table.graph

    def replaced(self, table: _core.StrategyTable) -> Problem:
        """The same with a final graph, which computes what this one does."""
        origin = self.origin or (self.graph if table is not self.table else None)
        return dataclasses.replace(self, table=table, refine=None, origin=origin)

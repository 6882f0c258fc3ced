"""Recomputation: parts of the forward pass run again in the backward pass, to hold less.

    found = recomputed(table)           # as few activations as possible
    found.table                         # of the graph that computes them again
    found.cost / found.graph_cost       # additional computation

The pass is src/passes/recompute; this module gives it the costs of operators, and those that must
not run again, and looks for as little recomputation as a memory limit needs.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Generic, Optional, TypeVar

from tofu import _core
from tofu.analysis.table import keeps_state
from tofu.analysis.work import node_work
from tofu.plans import Plan, Problem

from .limits import Fit
from .search import refined

__all__ = ["Recomputation", "Recomputed", "fit_with_recomputation", "recomputed", "recomputing"]

Found = TypeVar("Found")

# Operations that a device does while it moves a byte: 15 TFLOPS and 0.9 TB/s, as a V100.
_FLOPS_PER_BYTE = 16
_TRIES = 3


@dataclasses.dataclass(frozen=True)
class Recomputation:
    """A training graph that runs parts of its forward pass again.

    Attributes:
        table: its strategy table; without recomputation, the one given.
        limit_bytes: the limit of activations that it was made for; 0: as few as possible.
        segments: the number of parts that run again.
        operators: the number of operators that run again.
        saved_bytes: whole activations that the backward pass reads without recomputation.
        bytes: the most bytes of activations that stay, or are computed again, at a time.
        cost: the cost of the operators that run again: their operations, plus as many as take the
            time of their memory traffic.
        graph_cost: the cost of the whole graph, without recomputation.
    """

    table: _core.StrategyTable
    limit_bytes: int
    segments: int
    operators: int
    saved_bytes: int
    bytes: int
    cost: int
    graph_cost: int

    @property
    def computation(self) -> float:
        """The computation of a step, as a multiple of that without recomputation."""
        return 1 + self.cost / max(self.graph_cost, 1)

    def note(self, plan: Plan) -> Plan:
        """Note the recomputation in the document of a plan of this graph."""
        fields = ("limit_bytes", "segments", "operators", "saved_bytes", "bytes")
        record: dict[str, Any] = {name: getattr(self, name) for name in fields}
        record["computation"] = self.computation
        return plan.noted(recompute=record)


def recomputed(table: _core.StrategyTable, limit_bytes: int = 0) -> Recomputation:
    """Find the least recomputation that keeps activations within a limit.

    Args:
        table: strategy table of a training graph.
        limit_bytes: bytes of whole activations; 0: as few as possible.
    """
    costs = _costs(table.graph)
    result = _core.recompute(table, costs=costs, limit_bytes=limit_bytes)
    return Recomputation(
        table=result["table"] if result["segments"] else table,
        limit_bytes=limit_bytes,
        segments=result["segments"],
        operators=result["repeated"],
        saved_bytes=result["saved_bytes"],
        bytes=result["bytes"],
        cost=result["cost"],
        graph_cost=sum(map(abs, costs)),
    )


def recomputing(problem: Problem) -> Problem:
    """The problem with as few activations as possible."""
    most = recomputed(refined(problem).table)
    return problem.replaced(most.table) if most.segments else problem


def _costs(graph: _core.Graph) -> list[int]:
    """The cost of each node; negative if it must not run again."""
    costs = []
    for node in graph.nodes:
        cost = 0
        if node.op:
            _, flops, moved = node_work(node)
            cost = 1 + int(flops + _FLOPS_PER_BYTE * moved)
        costs.append(-cost if keeps_state(node.op, node.attrs) else cost)
    return costs


@dataclasses.dataclass(frozen=True)
class Recomputed(Generic[Found]):
    """The result for a graph with, or without, recomputation.

    Attributes:
        fit: the plan found.
        recomputation: the graph that the plan is for; None: the one given.
    """

    fit: Fit[Found]
    recomputation: Optional[Recomputation] = None


def fit_with_recomputation(
    table: _core.StrategyTable,
    fit_graph: Callable[[_core.StrategyTable, bool], Fit[Found]],
    mode: str,
    limit_bytes: Optional[int],
    refine: Callable[[], _core.StrategyTable],
) -> Recomputed[Found]:
    """Fit a graph into a limit with as little recomputation as necessary.

    Args:
        table: strategy table of the graph.
        fit_graph: finds a plan of a graph, in the limit if possible; its second argument says
            whether parts of the graph run again.
        mode: one of config.RECOMPUTES.
        limit_bytes: bytes that a worker can hold; None: any number.
        refine: makes the table of the graph whose parts run again; it may keep norms whole.
    """
    if mode == "all":
        return _most(table, fit_graph, refine())
    plain = fit_graph(table, False)
    if plain.fits or mode == "none" or limit_bytes is None:
        return Recomputed(plain)
    table = refine()
    most = recomputed(table)
    if not most.segments:
        return Recomputed(plain)
    best = Recomputed(fit_graph(most.table, True), most)
    if not best.fit.fits:
        return min(Recomputed(plain), best, key=lambda either: either.fit.held_bytes)
    # Between all and nothing: guess linearly, since only activations differ.
    low, low_held = most.bytes, best.fit.held_bytes
    high, high_held = most.saved_bytes, plain.held_bytes
    for _ in range(_TRIES):
        share = (limit_bytes - low_held) / max(high_held - low_held, 1)
        guess = low + int(share * (high - low))
        if not low < guess < high:
            break
        tried = recomputed(table, guess)
        if tried.cost >= (best.recomputation or tried).cost:
            break
        fit = fit_graph(tried.table, tried.segments > 0)
        if fit.fits:
            best = Recomputed(fit, tried)
            low, low_held = guess, fit.held_bytes
        else:  # a guess above what this one has would find it again
            high, high_held = tried.bytes, fit.held_bytes
    return best


def _most(
    table: _core.StrategyTable,
    fit_graph: Callable[[_core.StrategyTable, bool], Fit[Found]],
    refined_table: _core.StrategyTable,
) -> Recomputed[Found]:
    """As much recomputation as there can be, unless it is known to hold more than none."""
    most = recomputed(refined_table)
    if not most.segments:
        return Recomputed(fit_graph(table, False))
    best = Recomputed(fit_graph(most.table, True), most)
    if not best.fit.held_bytes:  # nobody counted
        return best
    plain = Recomputed(fit_graph(table, False))
    return min(best, plain, key=lambda either: either.fit.held_bytes)

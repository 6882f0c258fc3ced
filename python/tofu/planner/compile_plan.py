"""Compiles a plan to the graphs that MXNet binds: partitions and schedules."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from tofu import _core
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.fetch import Fetch
from tofu.plans.layout import Variable, variables_of
from tofu.plans.problem import Cuts, Refine

from .dumps import dumper
from .search import search

__all__ = ["Compiled", "compile_graph", "compile_plan"]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A partitioned training graph and its cost.

    Attributes:
        searched: its plan.
        step: its forward and backward graphs, to be bound.
        variables: how each variable of the training graph is divided, by name.
        fetch: how tiles are fetched, one of config.FETCHES.
        bytes_per_worker: bytes of all tensors on each worker, including fetched regions.
        fetched_bytes: bytes that workers fetch from each other per step.
        shared_bytes: further bytes that they would fetch if operators did not share fetches.
        relayed_bytes: the part of the fetched bytes that is added by passing small regions on
            through one worker.
    """

    searched: _core.Plan
    step: _core.TrainingStep
    variables: Mapping[str, Variable]
    fetch: str
    bytes_per_worker: tuple[int, ...]
    fetched_bytes: int
    shared_bytes: int
    relayed_bytes: int

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan for people, made on first use."""
        return Plan.of(self.searched, bytes_per_worker=self.searched.estimate_memory())

    @property
    def has_backward(self) -> bool:
        """Whether the graph has a backward half."""
        return bool(self.step.backward_heads)

    @property
    def serial_bytes(self) -> int:
        """Bytes of all tensors of the training graph."""
        return self.searched.table.graph.tensor_bytes

    def summary(self) -> dict[str, Any]:
        """The numbers that a run reports, as JSON values."""
        return {
            "workers": self.searched.workers,
            "parts": list(self.searched.parts),
            "bytes_per_step": self.fetched_bytes,
            "shared_bytes": self.shared_bytes,
            "relayed_bytes": self.relayed_bytes,
            "bytes_per_worker": list(self.bytes_per_worker),
            "serial_bytes": self.serial_bytes,
            "search_seconds": self.searched.search_seconds,
            "status": self.searched.status,
        }


def compile_plan(
    plan: _core.Plan,
    *,
    fetch: Fetch = Fetch(),  # noqa: B008 - a tuple of constants
    joint: bool = False,
    keep_fetched_bytes: int = 0,
    dump_dir: Optional[Path] = None,
) -> Compiled:
    """Partition and schedule the graph of a plan.

    Args:
        plan: the plan.
        fetch: how workers read each other's tiles.
        joint: whether one executor may run both halves, which takes less memory. The step is
            still split if its forward half could not run again for a second backward pass:
            if an operator is unknown, or draws random numbers that depend on its inputs.
        keep_fetched_bytes: bytes by which a worker's peak may grow for regions that it keeps.
        dump_dir: where every pass writes a readable file, or None.

    Raises:
        GraphError: the table leaves out some of an operator's output.
    """
    on_pass = dumper(dump_dir)
    partitioned = _core.partition(
        plan,
        fetch=fetch.kind,
        crossing=fetch.crossing,
        spare_bytes=keep_fetched_bytes,
        on_pass=on_pass,
    )
    bytes_per_worker = tuple(partitioned.bytes_per_worker)
    step = _core.schedule(partitioned, take=True, joint=joint, on_pass=on_pass)
    return Compiled(
        searched=plan,
        step=step,
        variables=variables_of(step),
        fetch=fetch.kind,
        bytes_per_worker=bytes_per_worker,
        fetched_bytes=partitioned.fetched_bytes + plan.update_bytes,
        shared_bytes=partitioned.shared_bytes,
        relayed_bytes=partitioned.relayed_bytes,
    )


def compile_graph(
    table: _core.StrategyTable,
    *,
    workers: int,
    fixed: Optional[Cuts] = None,
    options: Optional[SearchOptions] = None,
    refine: Optional[Refine] = None,
    saved: Optional[_core.Plan] = None,
    dump_dir: Optional[Path] = None,
    **choices: Any,
) -> Compiled:
    """Plan a training graph, then partition and schedule it.

    Args:
        table: strategy table of the graph.
        workers: number of workers, at least 1.
        fixed: cuts that tensors have already.
        options: how to search; None: the defaults.
        refine: may replace the graph after a look at its plan, as in Problem.
        saved: the plan to use instead of a search, or None.
        dump_dir: where every pass writes a readable file, or None.
        **choices: of ``compile_plan``.

    Raises:
        GraphError: the table leaves out some of an operator's output.
        PlanError: a pin does not fit the graph.
    """
    problem = Problem("", table, workers, refine, fixed=fixed or {}, saved=saved)
    searched = search(problem, options, simulated=False, dump_dir=dump_dir)
    kept_bytes = searched.options.keep_fetched_bytes or 0
    return compile_plan(searched.plan, keep_fetched_bytes=kept_bytes, dump_dir=dump_dir, **choices)

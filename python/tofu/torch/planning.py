"""``tofu.torch.plan`` places a module's parameters, inputs, outputs and activations on a mesh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import torch

from tofu import _core
from tofu.config import RECOMPUTES, parse_bytes, parse_recompute
from tofu.errors import ConfigError
from tofu.planner.decide import Programs, decide
from tofu.planner.limits import check_fits
from tofu.planner.search import Searched, search
from tofu.planner.wish import Wish
from tofu.plans import Plan, Problem, SearchOptions
from tofu.torch.aten_strategies import aten_table
from tofu.torch.module_graph import OPTIMIZERS, training_graph
from tofu.torch.module_trace import trace
from tofu.torch.rank_memory import held_by_rank, with_memory
from tofu.torch.repeats import repeated_as
from tofu.torch.torch_plan import TorchPlan
from tofu.torch.traced import Traced

__all__ = [
    "Planning",
    "check_mesh",
    "own_options",
    "plan",
    "plan_traced",
    "planned_as",
    "planning_of",
    "wish_of",
]


def check_mesh(mesh: Any, where: str) -> tuple[int, ...]:
    """Returns the sizes of a mesh's dimensions. Raises ConfigError if `mesh` is not a mesh."""
    try:
        sizes = tuple(int(size) for size in mesh)
    except (TypeError, ValueError):
        sizes = ()
    if not sizes or any(size < 1 for size in sizes):
        raise ConfigError(f"{where}: {mesh!r}: expected sizes of at least 1, such as (2, 4)")
    return sizes


def plan(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    mesh: Sequence[int],
    device: str = "cpu",
    optimizer: Optional[str] = "adam",
    options: Optional[SearchOptions] = None,
    memory: Union[int, str, None] = None,
    recompute: str = RECOMPUTES[0],
    name: str = "",
) -> TorchPlan:
    """Plan a module for a mesh; nothing is run.

    Args:
        model: the module. Its parameters may be on the device ``meta``.
        args: example inputs of the whole batch.
        kwargs: example inputs by name.
        mesh: the size of every dimension of the mesh, outermost first.
        device: the type of the mesh's devices.
        optimizer: the optimizer whose state counts as memory: "sgd", "sgd_mom", "adam" or None.
        options: options of the search.
        memory: what a rank may hold, in bytes or as "12GiB".
        recompute: which activations the backward pass computes again: "auto" (as few as the
            memory needs), "none", or "all" (that save memory).
        name: the module's name in output; "": the name of its class.

    Raises:
        GraphError: the module cannot be traced.
        ConfigError: an argument has a value that cannot be used.
        MemoryLimitError: no plan was found that fits in the memory.
        PlanError: a pin does not fit the module.
    """
    sizes = check_mesh(mesh, "tofu.torch.plan: mesh")
    wish = wish_of("tofu.torch.plan", options, memory, recompute)
    if optimizer is not None and optimizer not in OPTIMIZERS:
        raise ConfigError(
            f"tofu.torch.plan: optimizer={optimizer!r}: expected 'sgd', 'sgd_mom', 'adam' or None"
        )
    traced = trace(model, args, kwargs, device=device)
    planned = plan_traced(
        traced, sizes, optimizer=optimizer, wish=wish, name=name or type(model).__name__
    )
    return planned if planned.memory else with_memory(planned)


def wish_of(
    where: str, options: Optional[SearchOptions], memory: Union[int, str, None], recompute: str
) -> Wish:
    """A wish for a module's plan. Raises ConfigError for a value that cannot be used."""
    limit = None
    if memory is not None:
        text = memory if isinstance(memory, str) else f"{memory}B"
        limit = parse_bytes(text, f"{where}: memory")
    chosen = parse_recompute(recompute, f"{where}: recompute")
    return Wish(options or SearchOptions(), limit, chosen, exact=False)


def plan_traced(
    traced: Traced,
    mesh: tuple[int, ...],
    *,
    optimizer: Optional[str] = "adam",
    wish: Optional[Wish] = None,
    name: str = "",
) -> TorchPlan:
    """Plan a traced module, with a search step for each mesh dimension of 2 or more devices.

    Counts a rank's memory only for a limit; `with_memory` does.

    Raises:
        MemoryLimitError: no plan was found that fits in the limit.
    """
    wish = wish or Wish(exact=False)  # nothing is kept in the memory that is left
    planning = planning_of(traced, mesh, optimizer=optimizer, options=wish.options, name=name)
    wish = dataclasses.replace(wish, options=planning.options)
    limit = wish.limit_bytes
    decision = decide(planning.problem, wish, ModulePlans(planning), room_bytes=limit)
    best = decision.made if limit is None else with_memory(decision.made)
    if limit is not None:
        check_fits(name or "the module", best.details, limit, recompute=wish.recompute)
    if decision.recomputation is None:
        return best
    return best.replaced(decision.recomputation.note(best.details))


@dataclasses.dataclass(frozen=True)
class Planning:
    """A module, a mesh and the options to plan it with.

    Attributes:
        traced: the module.
        mesh: the size of every dimension of the mesh.
        optimizer: the optimizer whose state counts as memory.
        problem: the module's graph and its strategies.
        options: options of the search, with a step for each mesh dimension of 2 or more devices.
        undescribed: operators that every device computes whole, each with the reason.
    """

    traced: Traced
    mesh: tuple[int, ...]
    optimizer: Optional[str]
    problem: Problem
    options: SearchOptions
    undescribed: Mapping[str, str]


def planning_of(
    traced: Traced,
    mesh: tuple[int, ...],
    *,
    optimizer: Optional[str] = "adam",
    options: Optional[SearchOptions] = None,
    name: str = "",
) -> Planning:
    """Prepares a traced module for the search."""
    table, undescribed = aten_table(training_graph(traced, optimizer))
    parts = tuple(size for size in mesh if size > 1)
    chosen = own_options(options or SearchOptions(), parts)
    problem = Problem(name, table, math.prod(mesh))
    return Planning(traced, mesh, optimizer, problem, chosen, undescribed)


def own_options(options: SearchOptions, parts: tuple[int, ...]) -> SearchOptions:
    """Adapts options to these steps and to PyTorch.

    Its optimizers update parameters where they are kept.
    """
    return dataclasses.replace(options, parts=parts, tie_updates=True)


def planned_as(planning: Planning, found: Plan, graph: Optional[_core.Graph] = None) -> TorchPlan:
    """Converts a search's plan to a module's plan, with the bytes that ranks receive.

    Args:
        planning: the module.
        found: the plan.
        graph: the graph that it is for, if that runs parts of the module's again.
    """
    traced = planning.traced
    if graph is not None and graph.hash != planning.problem.graph.hash:
        traced = repeated_as(traced, graph)
    module_plan = TorchPlan(
        traced,
        graph or planning.problem.graph,
        planning.mesh,
        found,
        planning.undescribed,
        planning.optimizer,
    )
    return module_plan.replaced(found.noted(fetched_bytes=module_plan.program(0).fetched_bytes))


class ModulePlans(Programs[TorchPlan]):
    """Makes a module's plans; counts a rank's memory when a limit needs it."""

    def __init__(self, planning: Planning) -> None:
        self._planning = planning

    def search(self, problem: Problem, options: SearchOptions) -> Searched:
        """Search by the search's own prediction: the simulator asks MXNet about its operators."""
        return search(problem, options, simulated=False)

    def make(self, searched: Searched, keep_fetched_bytes: int) -> TorchPlan:
        """Make the module's plan; ranks keep no fetched regions."""
        return planned_as(self._planning, searched.read(), searched.problem.graph)

    def held_bytes(self, made: TorchPlan) -> int:
        """The bytes that a rank holds."""
        return sum(held_by_rank(made).bytes_per_worker.values())

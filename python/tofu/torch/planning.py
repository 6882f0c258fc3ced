"""``tofu.torch.plan`` places a module's parameters, inputs, outputs and activations on a mesh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, Union

import torch

from tofu import _core
from tofu.config import Config
from tofu.errors import ConfigError
from tofu.planner.decide import plan_problem
from tofu.planner.wish import Wish
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.file import save_module
from tofu.plans.problem import Counting, FrontEnd
from tofu.plans.simulated_step import Simulation
from tofu.torch.graphs.aten_strategies import aten_table
from tofu.torch.graphs.module_graph import OPTIMIZERS, training_graph
from tofu.torch.graphs.repeats import repeated_as
from tofu.torch.graphs.torch_plan import TorchPlan
from tofu.torch.graphs.traced import Traced
from tofu.torch.programs.module_simulation import simulate_module
from tofu.torch.programs.rank_memory import held_by_rank, with_memory
from tofu.torch.tracing.example_inputs import Inputs
from tofu.torch.tracing.module_trace import trace
from tofu.torch.tracing.recurrent_layers import may_gain_apart

__all__ = ["Ranks", "check_mesh", "plan", "plan_traced", "wish_of"]


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
    args: Inputs,
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    mesh: Sequence[int],
    device: str = "cpu",
    optimizer: Optional[str] = "adam",
    options: Optional[SearchOptions] = None,
    memory: Union[int, str, None] = None,
    recompute: Optional[str] = None,
    name: str = "",
) -> TorchPlan:
    """Plan a module for a mesh; nothing is run.

    Args:
        model: the module. Its parameters may be on the device ``meta``.
        args: example inputs of the whole batch, or a dict of them by name.
        kwargs: example inputs by name.
        mesh: the size of every dimension of the mesh, outermost first.
        device: the type of the mesh's devices.
        optimizer: the optimizer whose state counts as memory: "sgd", "sgd_mom", "adam" or None.
        options: options of the search; None: those of the TOFU_* variables.
        memory: what a rank may hold, in bytes or as "12GiB"; None: TOFU_MEMORY, if it is set.
        recompute: which activations the backward pass computes again: "auto" (as few as the
            memory needs), "none", or "all" (that save memory); None: TOFU_RECOMPUTE, else "auto".
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
    where: str,
    options: Optional[SearchOptions],
    memory: Union[int, str, None],
    recompute: Optional[str],
) -> Wish:
    """A wish for a module's plan, as ``plan`` has it. Raises ConfigError for a wrong value."""
    size = memory if memory is None or isinstance(memory, str) else f"{memory}B"
    texts = {"memory": size, "recompute": recompute}
    wish = Wish.of(Config.from_arguments(where, texts, None, {}))
    return wish if options is None else dataclasses.replace(wish, options=options)


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
    wish = wish or Wish()
    ranks = Ranks(traced, mesh, optimizer)
    problem, found = plan_problem(ranks.problem(name), wish)
    planned = ranks.planned(found, problem.graph)
    return planned if wish.limit_bytes is None else with_memory(planned)


class Ranks(FrontEnd):
    """The ranks of a mesh: their programs of a module's plans, and the memory of these.

    Attributes:
        traced: the module.
        mesh: the size of every dimension of the mesh.
        optimizer: the optimizer whose state counts as memory, or None.
        undescribed: operators that every device computes whole, each with the reason.
    """

    simulates = True
    state_kind = "optimizer_state"  # gradients need not be there at the worst moment

    def __init__(self, traced: Traced, mesh: tuple[int, ...], optimizer: Optional[str]) -> None:
        self.traced = traced
        self.mesh = mesh
        self.optimizer = optimizer
        self._table, self.undescribed = aten_table(training_graph(traced, optimizer))
        self._in_timesteps: dict[str, Traced] = {}  # by the hash of the graph
        self._held: dict[_core.Plan, Plan] = {}  # by the search's plan

    def problem(self, name: str) -> Problem:
        """The module's graph and its strategies."""
        refine = None if self.traced.timesteps is None else self._with_timesteps
        workers = math.prod(self.mesh)
        return Problem(name, self._table, workers, refine, must_gain=True, front_end=self)

    def _with_timesteps(self, plan: Optional[_core.Plan]) -> Optional[_core.StrategyTable]:
        """The strategies with recurrent layers taken apart, if that may be cheaper than a plan."""
        assert self.traced.timesteps is not None
        if plan is not None and not may_gain_apart(self.traced, math.prod(self.mesh)):
            return None
        traced = self.traced.timesteps()
        table, undescribed = aten_table(training_graph(traced, self.optimizer))
        self._in_timesteps[table.graph.hash] = traced
        self.undescribed = {**undescribed, **self.undescribed}
        return table

    def adapted(self, options: SearchOptions) -> SearchOptions:
        """A step for each mesh dimension of 2 or more devices.

        PyTorch's optimizers update parameters where they are kept, and ranks keep no regions.
        """
        parts = tuple(size for size in self.mesh if size > 1)
        return dataclasses.replace(options, parts=parts, tie_updates=True, keep_fetched_bytes=0)

    def begin_memory(self, problem: Problem, plan: Plan, counting: Counting) -> Callable[[], Plan]:
        """Run a rank's program without data when the memory is wanted."""
        return lambda: self._with_memory(self.planned(plan, problem.graph))

    def _with_memory(self, plan: TorchPlan) -> Plan:
        """A plan's details with the memory of a rank, which is counted once."""
        searched = plan.details.searched
        if searched is None:
            return held_by_rank(plan)
        if searched not in self._held:
            self._held[searched] = held_by_rank(plan)
        return self._held[searched]

    def simulate(
        self,
        plan: _core.Plan,
        machine: _core.Machine,
        *,
        fetch: str,
        with_timeline: bool = False,
    ) -> Simulation:
        """Simulate a step; ranks fetch with messages, whatever `fetch` says."""
        found = Plan.of(plan, bytes_per_worker=plan.estimate_memory())
        made = self.planned(found, plan.table.graph)
        made = made.replaced(found, self._with_memory(made).bytes_per_worker)
        return simulate_module(made, machine, with_timeline=with_timeline)

    def notes(self, problem: Problem, plan: Plan, *, everything: bool) -> str:
        """The memory of a rank and of one device, and the placements."""
        return with_memory(self.planned(plan, problem.graph)).notes(everything=everything)

    def document(self, problem: Problem, plan: Plan) -> dict[str, Any]:
        """The document that ``parallelize`` reads."""
        return with_memory(self.planned(plan, problem.graph)).document()

    def code(self, problem: Problem, plan: Plan, form: str) -> str:
        """The placements as Python to paste, of DTensors or of JAX."""
        planned = self.planned(plan, problem.graph)
        return planned.to_jax() if form == "jax" else planned.to_python()

    def save(self, path: Path, problem: Problem, plan: Plan) -> None:
        """Write the document that ``parallelize`` reads."""
        save_module(path, self.document(problem, plan))

    def planned(self, found: Plan, graph: _core.Graph) -> TorchPlan:
        """Converts a search's plan to a module's plan, with the bytes that ranks receive.

        Args:
            found: the plan.
            graph: the graph that it is for, which may run parts of the module's again.
        """
        is_own = graph.hash == self._table.graph.hash
        traced = self.traced if is_own else self._in_timesteps.get(graph.hash)
        traced = traced or repeated_as(self.traced, graph)
        plan = TorchPlan(traced, graph, self.mesh, found, self.undescribed, self.optimizer)
        if found.fetched_bytes is not None:
            return plan
        return plan.replaced(found.noted(fetched_bytes=plan.program(0).fetched_bytes))

"""A module of PyTorch as the target of a command."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Optional

from tofu.errors import ConfigError
from tofu.planner.model import Devices, Model
from tofu.plans import Problem
from tofu.plans.progress import stage
from tofu.plans.runs import Runs
from tofu.torch.commands.config_file import INPUT
from tofu.torch.commands.loading import load
from tofu.torch.commands.module_check import trained
from tofu.torch.commands.without_gpus import without_gpus
from tofu.torch.graphs.torch_plan import TorchPlan, plan_file_text, read_plan
from tofu.torch.graphs.traced import Traced
from tofu.torch.planning import Ranks
from tofu.torch.tracing.module_trace import trace

__all__ = ["ModuleModel", "meshes_of"]

_OWN_INPUTS = "a module comes with its inputs, so its function decides"
_REFUSALS = {
    "args": "a module takes no arguments",
    "batch_size": _OWN_INPUTS,
    "describe": "descriptions of your own are for MXNet's operators",
    "device": "ranks run on the device of the mesh that parallelize is given",
    "dtypes": _OWN_INPUTS,
    "fetch": "ranks send messages",
    "inputs": _OWN_INPUTS,
    "keep_fetched": "ranks keep up to 4 MiB of what they received, whatever is set",
    "lora": "its function decides which parameters train (requires_grad)",
    "measured": "tofu trace measures MXNet's scripts only",
    "predict": "whether a module trains follows from its parameters",
    "shapes": _OWN_INPUTS,
}


class ModuleModel(Model):
    """A module with its inputs.

    Args:
        target: as for ``loading.load``.
        shapes: the text of --shape, for a configuration.
        batch_size: of a configuration; None: its own.
        lora: as for ``load_config_file``.
        optimizer: the optimizer whose state counts as memory, or None.
        plan: the file of a plan to use instead of a search, or None.

    Raises:
        ConfigError: there is no such module, or no such file.
    """

    formats = ("python", "jax")
    usual_optimizer = "adam"  # as for tofu.torch.plan

    def __init__(
        self,
        target: str,
        optimizer: Optional[str],
        plan: Optional[str] = None,
        *,
        shapes: Sequence[str] = (),
        batch_size: Optional[int] = None,
        lora: Optional[str] = None,
    ) -> None:
        super().__init__(target)
        self._optimizer = optimizer
        self._plan = plan
        self._module = load(target, _shape(shapes, batch_size), lora)
        self._problem = functools.cache(self._made)

    @staticmethod
    def refusals(target: str) -> Mapping[str, str]:
        """The options that modules do not have, by parameter, each with the reason."""
        own = ("batch_size", "lora", "shapes") if target.endswith(".json") else ()
        return {name: reason for name, reason in _REFUSALS.items() if name not in own}

    def problem(self, devices: Devices, batch: Optional[int] = None) -> Problem:
        """The module's graph for a mesh."""
        return self._problem(devices.mesh)

    def _made(self, mesh: tuple[int, ...]) -> Problem:
        saved = self._saved
        optimizer = self._optimizer if saved is None else saved.optimizer
        is_other = saved is not None and saved.traced.in_timesteps
        traced = saved.traced if saved is not None and is_other else self._traced
        problem = Ranks(traced, mesh, optimizer).problem(self.name)
        if saved is None:
            return problem
        return dataclasses.replace(problem, saved=saved.details.in_graph(saved.problem.table))

    def planned(self, given: Sequence[Devices]) -> Optional[Devices]:
        """The mesh of the plan, if there is one. Raises ConfigError if the user gives others."""
        if self._saved is None:
            return None
        mesh = self._saved.mesh
        found = Devices(math.prod(mesh), mesh)
        if given and found not in given:
            raise ConfigError(f"{self._plan}: made for {found.option}; leave out {given[0].option}")
        return found

    @functools.cached_property
    def _saved(self) -> Optional[TorchPlan]:
        if self._plan is None:
            return None
        return read_plan(plan_file_text(self._plan), self._traced, None, self._plan)

    def batch_size(self, problem: Problem) -> int:
        """The first dimension of the first input that has one."""
        shapes = (v.meta.shape for v in self._traced.variables if v.kind == "input")
        return next((int(shape[0]) for shape in shapes if len(shape)), 0)

    def default_workers(self) -> int:
        """There is none: torchrun decides."""
        raise ConfigError(
            f"{self.name}: give the devices, such as --workers 8, or --mesh 2,4 for one mesh"
        )

    def usual(self, counts: Sequence[int]) -> Sequence[int]:
        """Powers of two alone, as each number has several meshes."""
        return [count for count in counts if count & (count - 1) == 0]

    def devices(self, workers: int) -> list[Devices]:
        """All meshes of so many ranks."""
        return [Devices(workers, mesh) for mesh in meshes_of(workers)]

    def trained(self, given: Sequence[Devices], *, steps: int, plan: Optional[str]) -> Runs:
        """Train the module on gloo processes, on CPUs. Raises ConfigError for several meshes."""
        if len(given) != 1:
            meshes = " or ".join(each.option for each in given) or "--mesh 2,2"
            raise ConfigError(f"{self.name}: give the one mesh to check, such as {meshes}")
        if self.name.endswith(".json"):
            raise ConfigError(f"{self.name}: a configuration has no values to train with")
        with stage(f"training on a mesh of {given[0]} processes"):
            return trained(self.name, given[0].mesh, steps, plan)

    @functools.cached_property
    def _traced(self) -> Traced:
        return self._staged(lambda: trace(*self._module))

    def _staged(self, make: Callable[[], Traced]) -> Traced:
        """Make a trace, of which one in timesteps may follow."""
        with stage(f"tracing {self.name}"), without_gpus():
            traced = make()
        again = traced.timesteps
        timesteps = again and (lambda: self._staged(again))
        return dataclasses.replace(traced, timesteps=timesteps)


def _shape(texts: Sequence[str], batch_size: Optional[int]) -> tuple[int, ...]:
    """The shape of a configuration's words. Raises ConfigError."""
    found: list[tuple[int, ...]] = [] if batch_size is None else [(batch_size,)]
    for text in texts:
        name, _, numbers = text.partition("=")
        sizes = tuple(int(each) for each in numbers.split(",") if each.isdecimal())
        if name != INPUT or len(sizes) != 2 or min(sizes) < 1:
            raise ConfigError(f"--shape {text}: expected {INPUT}=N,WORDS, such as {INPUT}=8,2048")
        found.append(sizes)
    if len(found) > 1:
        raise ConfigError("--shape and --batch-size: give one, once")
    return found[0] if found else ()


def meshes_of(workers: int) -> list[tuple[int, ...]]:
    """The meshes of so many devices, whose dimensions grow: (8,), (2, 4) and (2, 2, 2) for 8."""

    def factored(rest: int, least: int) -> Iterator[tuple[int, ...]]:
        yield (rest,)
        for size in range(least, rest // least + 1):
            if rest % size == 0 and rest // size >= size:
                yield from ((size, *others) for others in factored(rest // size, size))

    return list(factored(workers, 2))

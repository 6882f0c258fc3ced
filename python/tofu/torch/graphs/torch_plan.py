"""A plan of a module for a mesh, and its document."""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, Union

from tofu import _core
from tofu.analysis.work import node_work
from tofu.errors import PlanError
from tofu.planner.recomputation import recomputed
from tofu.plans import Plan, Problem
from tofu.plans.file import MODULE_FORMAT
from tofu.plans.plan import format_bytes
from tofu.plans.render.text import render_text
from tofu.tables import table
from tofu.torch.graphs.aten_strategies import aten_table
from tofu.torch.graphs.module_graph import training_graph
from tofu.torch.graphs.repeats import repeated_as
from tofu.torch.graphs.traced import Entry, Traced

__all__ = ["TorchPlan", "placements_text", "plan_file_text", "read_plan", "spec_text"]

# A rank may hold regions longer that it needs again, up to so many bytes and one part in so many of
# its memory. With a GPT of 4 layers on 4 ranks, each receives 6 % less.
_KEPT_BYTES, _KEPT_SHARE = 4 << 20, 16

_WHOLE_SHOWN = 5  # of the operators that every rank computes whole
_VERSION = 1


class TorchPlan:
    """A plan of a module for a mesh.

    Attributes:
        traced: the module's joint graph.
        graph: the joint graph as a training graph.
        mesh: the size of every dimension of the mesh.
        details: the plan in tofu's own format; its steps are the mesh's dimensions.
        undescribed: operators that every device computes whole, each with the reason.
        optimizer: the optimizer whose state counts as memory, or None.
        memory, serial_memory: bytes by kind at the worst moment of a step, on a rank and on one
            device without a mesh; empty until `rank_memory.with_memory` counts them.
    """

    def __init__(
        self,
        traced: Traced,
        graph: _core.Graph,
        mesh: tuple[int, ...],
        details: Plan,
        undescribed: Mapping[str, str],
        optimizer: Optional[str],
        memory: Optional[Mapping[str, int]] = None,
        serial_memory: Optional[Mapping[str, int]] = None,
    ) -> None:
        self.traced = traced
        self.graph = graph
        self.mesh = mesh
        self.details = details
        self.undescribed = undescribed
        self.optimizer = optimizer
        self.memory = dict(memory or {})
        self.serial_memory = dict(serial_memory or {})

    def replaced(
        self,
        details: Plan,
        memory: Optional[Mapping[str, int]] = None,
        serial_memory: Optional[Mapping[str, int]] = None,
    ) -> TorchPlan:
        """The plan with other details and, if given, memory."""
        memories = memory or self.memory, serial_memory or self.serial_memory
        return TorchPlan(
            self.traced, self.graph, self.mesh, details, self.undescribed, self.optimizer, *memories
        )

    @property
    def bytes(self) -> int:
        """Bytes that all devices together receive in a step, as the search counts them.

        A region counts once per operator that reads it; `details.fetched_bytes` counts shared
        regions once.
        """
        return self.details.total_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes that all devices together receive, with shared regions once where that is known."""
        shared = self.details.fetched_bytes
        return self.bytes if shared is None else shared

    @functools.cached_property
    def problem(self) -> Problem:
        """The graph and the strategies of the search."""
        searched = self.details.searched
        table = aten_table(self.graph)[0] if searched is None else searched.table
        return Problem(self.details.model, table, self.details.workers)

    def program(self, worker: int) -> _core.WorkerProgram:
        """The program of one rank, by its number among the mesh's devices."""
        plan = self.details.in_graph(self.problem.table)
        spare = min(_KEPT_BYTES, plan.memory_bytes // _KEPT_SHARE)
        return _core.worker_program(plan, worker, spare_bytes=spare)

    @functools.cached_property
    def partitioned(self) -> _core.Partitioned:
        """The graph divided over all ranks, for the simulator."""
        plan = self.details.in_graph(self.problem.table)
        return _core.partition(
            plan,
            fetch="multifetch",
            crossing="tiles",
            bundle=False,
            spare_bytes=min(_KEPT_BYTES, plan.memory_bytes // _KEPT_SHARE),
        )

    @functools.cached_property
    def cuts(self) -> dict[Entry, tuple[int, ...]]:
        """Returns tensor -> the dimension that each mesh dimension cuts, -1 for none."""
        return {Entry(t.node, t.output): t.cuts for t in self.details.tensors}

    @functools.cached_property
    def splits(self) -> dict[str, tuple[Optional[str], ...]]:
        """Returns operator -> the variable that each mesh dimension splits, None for none."""
        return {o.node: o.cuts for o in self.details.operators}

    @functools.cached_property
    def placements(self) -> dict[str, dict[str, str]]:
        """Placements of parameters, buffers, inputs and outputs, as DTensor writes them."""
        return self._written(lambda entry: placements_text(self.cuts[entry]))

    def _written(self, write: Callable[[Entry], str]) -> dict[str, dict[str, str]]:
        """The texts of parameters, buffers, inputs and outputs, by kind and name."""
        by_kind: dict[str, dict[str, str]] = {k: {} for k in _KINDS.values()}
        for variable in self.traced.variables:
            if variable.kind in _KINDS:
                by_kind[_KINDS[variable.kind]][variable.name] = write(Entry(variable.name))
        for k, entry in enumerate(self.traced.outputs):
            if entry is not None:
                by_kind["outputs"][f"output{k}"] = write(entry)
        return by_kind

    def serial(self) -> TorchPlan:
        """The same step on one device."""
        alone = Plan.from_json(_core.plan(self.problem.table, workers=1).to_json())
        return TorchPlan(self.traced, self.graph, (1,), alone, self.undescribed, self.optimizer)

    def document(self) -> dict[str, Any]:
        """The document that ``parallelize`` reads, with the plan of tofu's own format in it."""
        return {
            "format": MODULE_FORMAT,
            "version": _VERSION,
            "mesh": list(self.mesh),
            "optimizer": self.optimizer,
            "placements": self.placements,
            "memory": {"rank": self.memory, "serial": self.serial_memory},
            "undescribed": dict(self.undescribed),
            "plan": self.details.document(),
        }

    def to_json(self) -> str:
        """The document as text."""
        return json.dumps(self.document())

    def to_python(self) -> str:
        """The placements as Python to paste."""
        head = ["from torch.distributed.tensor import Replicate, Shard"]
        return _code([*head, "", "placements = {"], self.placements)

    def to_jax(self) -> str:
        """JAX's PartitionSpecs as Python to paste, for a mesh with an axis of each dimension."""
        axes = [f"d{k}" for k, size in enumerate(self.mesh) if size > 1]
        shape = {Entry(t.node, t.output): t.shape for t in self.details.tensors}
        specs = self._written(lambda entry: spec_text(self.cuts[entry], axes, len(shape[entry])))
        names = tuple(f"d{k}" for k in range(len(self.mesh)))
        head = ["from jax.sharding import PartitionSpec as P", ""]
        mesh = f"# For jax.make_mesh({self.mesh}, {names})."
        return _code([*head, mesh, "specs = {"], specs)

    def to_text(self, *, everything: bool = False) -> str:
        """The tables of ``tofu plan``, then the notes."""
        tables = render_text(self.details, everything=everything)
        return f"{tables}\n{self.notes(everything=everything)}"

    def notes(self, *, everything: bool = False) -> str:
        """The memory of a rank, if it is counted, the placements, and whole operators."""
        lines = [*self._memory_lines(), "Placements", ""]
        names = [name for tensors in self.placements.values() for name in tensors]
        width = max(map(len, names), default=0)
        for kind, tensors in self.placements.items():
            if tensors:
                lines.append(f"  {kind}")
                lines += [f"    {name:<{width}}  {text}" for name, text in tensors.items()]
        lines += self._whole_lines(everything)
        for name, reason in self.undescribed.items():
            lines.append(f"{name}: every device computes it whole" + (reason and f" ({reason})"))
        return "\n".join(lines) + "\n"

    def _whole_lines(self, everything: bool) -> list[str]:
        """Lines about whole tensors on every rank, whose bytes more ranks do not lower."""
        nodes = [node for node in self.graph.nodes if node.name in self.splits]
        works = {node.name: node_work(node) for node in nodes}
        cut = {name for name, cuts in self.splits.items() if any(each is not None for each in cuts)}
        whole = [node for node in nodes if node.name not in cut and works[node.name][2]]
        if not whole or math.prod(self.mesh) == 1:
            return []
        whole.sort(key=lambda node: -works[node.name][2])
        flops = [sum(works[node.name][1] for node in some) for some in (whole, nodes)]
        size = format_bytes(int(sum(works[node.name][2] for node in whole)))
        share = 100 * flops[0] / max(flops[1], 1)
        lines = [
            f"Whole on every rank: {len(whole)} of {len(nodes)} operators, {share:.2g}% of the "
            f"operations that descriptions tell; they read and write {size}",
            "",
        ]
        shown = whole if everything else whole[:_WHOLE_SHOWN]
        rows = [(node.name, node.op, format_bytes(int(works[node.name][2]))) for node in shown]
        cells = table(("", "operator", "bytes"), rows, right=(2,))
        return ["", *lines, *(f"  {line}" for line in cells), ""]

    def _memory_lines(self) -> list[str]:
        """Lines on the memory of a rank and of one device, by kind."""
        if not self.memory:
            return []
        rows = [
            (kind.replace("_", " "), format_bytes(size), format_bytes(self.serial_memory[kind]))
            for kind, size in self.memory.items()
        ]
        totals = [format_bytes(sum(kinds.values())) for kinds in (self.memory, self.serial_memory)]
        header = ("", "a rank", "one device")
        cells = table(header, [*rows, ("in all", *totals)], right=(1, 2))
        return ["Memory at the worst moment of a step", "", *cells, ""]

    def __str__(self) -> str:
        return self.to_text()


_KINDS = {"parameter": "parameters", "buffer": "buffers", "input": "inputs", "output": "outputs"}


def placements_text(cuts: Sequence[int]) -> str:
    """Cuts as DTensor writes them: ``(Shard(0), Replicate())``."""
    each = ["Replicate()" if cut < 0 else f"Shard({cut})" for cut in cuts]
    return f"({', '.join(each)}{',' if len(each) == 1 else ''})"


def plan_file_text(path: Union[str, os.PathLike[str]]) -> str:
    """The text of a plan's file. Raises PlanError if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"{path}: cannot be read ({error.strerror}); expected a plan that "
            "tofu plan --save writes"
        ) from None


def spec_text(cuts: Sequence[int], axes: Sequence[str], rank: int) -> str:
    """Cuts as JAX writes them: ``P(("d0", "d1"), None, "d2")``.

    Args:
        cuts: the dimension that each step cuts, -1 for none.
        axes: the mesh's axis of each step.
        rank: the number of the tensor's dimensions.
    """
    along = [[axis for axis, cut in zip(axes, cuts) if cut == dim] for dim in range(rank)]
    while along and not along[-1]:
        along.pop()
    each = [
        f"({', '.join(map(json.dumps, names))})" if len(names) > 1
        else json.dumps(names[0]) if names else "None"
        for names in along
    ]  # fmt: skip
    return f"P({', '.join(each)})"


def _code(head: Sequence[str], tensors_of: Mapping[str, Mapping[str, str]]) -> str:
    """Python of a dict by kind and name, whose first lines are given."""
    lines = [*head]
    for kind, tensors in tensors_of.items():
        lines.append(f'    "{kind}": {{')
        lines += [f'        "{name}": {text},' for name, text in tensors.items()]
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


def read_plan(text: str, traced: Traced, mesh: Optional[tuple[int, ...]], where: str) -> TorchPlan:
    """Reads the plan of a traced module from a document; a mesh of None is the document's own.

    Raises:
        PlanError: the text is not such a document, or its plan is for another module or mesh.
    """
    try:
        document = json.loads(text)
        if document["format"] != MODULE_FORMAT or document["version"] != _VERSION:
            raise KeyError("format")
        sizes, optimizer = tuple(document["mesh"]), document["optimizer"]
        undescribed = dict(document["undescribed"])
        memory = document.get("memory", {})
        kinds = dict(memory.get("rank", {})), dict(memory.get("serial", {}))
        details = Plan.from_json(json.dumps(document["plan"]))
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{where}: not a plan of a torch module; expected the document that "
            "tofu plan --save writes"
        ) from error
    if mesh is not None and sizes != mesh:
        raise PlanError(f"{where}: made for the mesh {sizes}, but the mesh is {mesh}; plan again")
    graph = training_graph(traced, optimizer)
    if details.recompute is None and graph.hash != details.graph_hash and traced.timesteps:
        apart = traced.timesteps()
        own = training_graph(apart, optimizer)
        if own.hash == details.graph_hash:
            traced, graph = apart, own
    if details.recompute is not None:
        limit = details.recompute["limit_bytes"]
        graph = recomputed(aten_table(graph)[0], limit).table.graph
        traced = repeated_as(traced, graph)
    if graph.hash != details.graph_hash:
        raise PlanError(f"{where}: {_difference(details, graph)}; plan again")
    return TorchPlan(traced, graph, sizes, details, undescribed, optimizer, *kinds)


def _difference(details: Plan, graph: _core.Graph) -> str:
    """Describes briefly how a graph differs from a plan's."""
    planned = {tensor.name: tensor.shape for tensor in details.tensors}
    for node in graph.nodes:
        shape = planned.get(node.name)
        if shape is None:
            return f"{node.name} is not in it: the module has changed since"
        if shape != node.outputs[0][0]:
            return f"{node.name} had the shape {shape}, but now has {node.outputs[0][0]}"
    return "the module has changed since it was made"

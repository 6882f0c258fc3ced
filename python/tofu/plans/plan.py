"""A plan for readers: how every tensor and operator is cut.

A ``Plan`` shows the result of a search in C++, with Python's knowledge of it::

    plan = Plan.of(searched, model="mlp")
    plan = plan.noted(memory="exact", bytes_per_worker=kinds)

It becomes JSON (``docs/formats.md``) only for files and for people.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from tofu import _core
from tofu.dtypes import dtype_bytes, dtype_name
from tofu.errors import PlanError

from .names import readable
from .parts import Parts
from .peak import Peak

__all__ = [
    "OperatorPlan",
    "Plan",
    "Step",
    "TensorPlan",
    "format_bytes",
    "read_cuts",
    "tile_bounds",
    "undescribed_text",
]

FORMAT = "tofu-plan"
VERSION = 1
REPLICATED = -1
TERMS = -3  # each worker of the step holds a term of the tensor
TERMS_NAME = "terms"  # in documents, also the variable of an operator that adds terms up
_TIMES = ("step_ns", "compute_ns", "fetch_ns", "hidden_ns", "host_ns")


def read_cuts(written: Sequence[Any]) -> tuple[Any, ...]:
    """Cuts from a document."""
    return tuple(TERMS if cut == TERMS_NAME else cut for cut in written)


@dataclasses.dataclass(frozen=True)
class Step:
    """One recursive step, which divides every group of workers into `parts` groups."""

    parts: int
    groups: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class TensorPlan:
    """One tensor: the dimension that each step cuts, -1 if it is replicated, TERMS if it waits."""

    node: str
    output: int
    shape: tuple[int, ...]
    dtype: int
    cuts: tuple[int, ...]

    def tiles(self, parts: Sequence[int]) -> tuple[int, ...]:
        """The number of pieces along each dimension."""
        numbers = [1] * len(self.shape)
        for cut, count in zip(self.cuts, parts):
            if cut >= 0:
                numbers[cut] *= count
        return tuple(numbers)

    def bounds(self, parts: Sequence[int]) -> list[list[tuple[int, int]]]:
        """The pieces along each dimension, in the order of their numbers."""
        return tile_bounds(self.shape, self.cuts, parts)

    @property
    def replicated(self) -> bool:
        """Whether some step leaves a whole copy with every group."""
        return REPLICATED in self.cuts

    def indivisible(self, parts: Sequence[int]) -> bool:
        """Whether some step replicates it because no dimension has an element for each part."""
        extents = list(self.shape)
        for cut, count in zip(self.cuts, parts):
            if cut >= 0:
                extents[cut] //= count
            elif cut == REPLICATED and all(extent < count for extent in extents):
                return True
        return False

    @property
    def name(self) -> str:
        """The node's name, with the output's number if it is not the first."""
        return self.node if self.output == 0 else f"{self.node}[{self.output}]"

    @property
    def label(self) -> str:
        """The name for people."""
        return readable(self.name)

    @property
    def dtype_name(self) -> str:
        """The data type in words; its number where MXNet has no such type."""
        return dtype_name(self.dtype)

    @property
    def bytes(self) -> int:
        """The size of the whole tensor."""
        return math.prod(self.shape) * dtype_bytes(self.dtype)


@dataclasses.dataclass(frozen=True)
class OperatorPlan:
    """One operator: the index variable that each step splits, or None."""

    node: str
    op: str
    cuts: tuple[Optional[str], ...]
    bytes: int

    @property
    def label(self) -> str:
        """The name for people."""
        return readable(self.node)


def tile_bounds(
    shape: Sequence[int], cuts: Sequence[int], parts: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """The pieces along each dimension of a tensor, in the order of their numbers."""
    return Parts(parts).bounds(shape, cuts)


# Reasons why a search ended -> the words that say so behind a plan's cost.
STOPPED = {
    "proven": "",
    "time limit": "; the time limit stopped the search",
    "nothing left to try": "; the search had nothing left to try",
}


def _percent(share: float) -> str:
    """A percentage, rounded up to a tenth."""
    return f"{math.ceil(share * 10) / 10:.1f}%"


class IfWhole(NamedTuple):
    """A cheaper plan, in which tensors may stay whole.

    Attributes:
        total_bytes: bytes that its workers fetch per training step.
        saved_share: the part of the other plan's bytes that it saves, more than 0.
        held_share: the memory of its fullest worker as a multiple of the other plan's, estimated.
    """

    total_bytes: int
    saved_share: float
    held_share: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """A partition of a training graph over `workers` (paper section 5.2).

    Attributes:
        workers: number of workers, the product of `parts`.
        graph_hash: hash of the graph the plan is for.
        parts: the number of groups that each step divides a group into, and their shares.
        steps: the bytes that each step communicates, over all its groups.
        total_bytes: bytes that all workers together fetch per training step.
        lower_bound_bytes: no plan of these steps can communicate less.
        status: "optimal" (no plan of these steps communicates less), "steps-optimal" (each
            step is a proven optimum given the others) or "feasible".
        search_seconds: time from graph in memory to plan.
        model: name of the planned model or file, or "" if unknown.
        nodes: number of nodes of the training graph, including variables.
        mode: the search mode; bound and status refer only to plans of this mode.
        bytes_per_worker: memory of the fullest worker, by kind; empty if unknown.
        memory: "exact" if MXNet will allocate just that, "lives" if it is what a PyTorch program
            holds at its worst moment, else "estimate".
        fetch: how tiles are fetched, or "" if unknown.
        fetched_bytes: bytes that workers really fetch, sharing equal fetches; None if unknown.
        shared_bytes: bytes that they would fetch as well if they did not share; None if unknown.
        relayed_bytes: fetched bytes that small regions add on their way through one worker; None
            if unknown.
        stopped: the reason for the search's end, a key of STOPPED, or "" if unknown.
        objective: what the search minimised, one of config.OBJECTIVES.
        predicted: the predicted time of a step and the bytes of each level of links
            (docs/formats.md); None if no machine was given.
        routes: inputs that workers do not fetch directly (docs/formats.md).
        output_routes: the same for outputs, whose terms may be added up within hosts first.
        chosen: the objective of the plan that simulation chose, or "" if nothing was simulated.
        replication: whether tensors might stay whole if that is cheaper.
        simulated_ns: the simulated step of each candidate, negative if it does not fit.
        if_whole: a cheaper plan with whole tensors; None: none is known. Not part of the document.
        recompute: what runs again in the backward pass (docs/formats.md); None: nothing.
        peak: a worker's memory over a step; None if unknown. Not part of the document.
        searched: the plan in C++ that this one shows; None if it was read without its graph.
        written: the document that it was read from; empty if there was none.
        notes: names of the fields that the document has besides, in its order.
    """

    workers: int
    graph_hash: str
    parts: Parts
    steps: tuple[Step, ...]
    total_bytes: int
    lower_bound_bytes: int
    status: str
    search_seconds: float
    tensors: tuple[TensorPlan, ...]
    operators: tuple[OperatorPlan, ...]
    model: str = ""
    nodes: int = 0
    mode: str = "tofu"
    bytes_per_worker: Mapping[str, int] = dataclasses.field(default_factory=dict)
    memory: str = "estimate"
    fetch: str = ""
    fetched_bytes: Optional[int] = None
    shared_bytes: Optional[int] = None
    relayed_bytes: Optional[int] = None
    stopped: str = ""
    objective: str = "bytes"
    predicted: Optional[Mapping[str, Any]] = None
    routes: Sequence[Mapping[str, Any]] = ()
    output_routes: Sequence[Mapping[str, Any]] = ()
    chosen: str = ""
    replication: bool = False
    simulated_ns: Mapping[str, int] = dataclasses.field(default_factory=dict)
    recompute: Optional[Mapping[str, Any]] = None
    if_whole: Optional[IfWhole] = dataclasses.field(repr=False, compare=False, default=None)
    peak: Optional[Peak] = dataclasses.field(repr=False, compare=False, default=None)
    searched: Optional[_core.Plan] = dataclasses.field(repr=False, compare=False, default=None)
    written: Mapping[str, Any] = dataclasses.field(repr=False, compare=False, default_factory=dict)
    notes: tuple[str, ...] = dataclasses.field(repr=False, compare=False, default=())

    @classmethod
    def of(cls, searched: _core.Plan, **notes: Any) -> Plan:
        """The plan that a search found.

        notes: other fields than those that it sets.
        """
        plan = cls(
            workers=searched.workers,
            graph_hash=searched.table.graph.hash,
            parts=Parts.of(searched),
            steps=tuple(itertools.starmap(Step, searched.steps)),
            total_bytes=searched.total_bytes,
            lower_bound_bytes=searched.lower_bound_bytes,
            status=searched.status,
            search_seconds=searched.search_seconds,
            tensors=tuple(itertools.starmap(TensorPlan, searched.tensors)),
            operators=tuple(itertools.starmap(OperatorPlan, searched.operators)),
            nodes=searched.num_nodes,
            mode=searched.mode,
            objective=searched.objective,
            predicted=searched.predicted,
            routes=tuple(searched.routes),
            output_routes=tuple(searched.output_routes),
            searched=searched,
        )
        return plan.noted(**notes)

    def noted(self, **notes: Any) -> Plan:
        """The same plan with more of its fields known; its document has them, too."""
        added = (name for name in notes if name not in (*self.notes, "peak"))
        return dataclasses.replace(self, **notes, notes=(*self.notes, *added))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan document. Raises PlanError when `text` is not one."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanError(
                f"plan: not JSON ({error}); expected a document that tofu plan wrote"
            ) from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise PlanError(f'plan: no "format": "{FORMAT}"; expected a document of tofu plan')
        if document.get("version") != VERSION:
            raise PlanError(
                f"plan: version {document.get('version')!r}, but this tofu reads {VERSION}; "
                "make the plan again with this version"
            )
        try:
            plan = cls._from_document(document)
            plan._check()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise PlanError(f"plan: incomplete or damaged ({error!r}); make it again") from None
        return plan

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Plan:
        return cls(
            workers=int(document["workers"]),
            graph_hash=str(document["graph_hash"]),
            parts=Parts.read(document),
            steps=tuple(Step(s["parts"], s["groups"], s["bytes"]) for s in document["steps"]),
            total_bytes=int(document["total_bytes"]),
            lower_bound_bytes=int(document["lower_bound_bytes"]),
            status=str(document["status"]),
            search_seconds=float(document["search_seconds"]),
            tensors=tuple(
                TensorPlan(
                    t["node"], t["output"], tuple(t["shape"]), t["dtype"], read_cuts(t["cuts"])
                )
                for t in document["tensors"]
            ),
            operators=tuple(
                OperatorPlan(o["node"], o["op"], tuple(o["cuts"]), o["bytes"])
                for o in document["operators"]
            ),
            model=str(document.get("model", "")),
            nodes=int(document.get("nodes", 0)),
            bytes_per_worker={
                kind: int(count)
                for kind, count in document.get("bytes_per_worker", {}).items()
                if kind != "total"
            },
            mode=str(document.get("mode", "")),
            memory=str(document.get("memory", "estimate")),
            fetch=str(document.get("fetch", "")),
            fetched_bytes=document.get("fetched_bytes"),
            shared_bytes=document.get("shared_bytes"),
            relayed_bytes=document.get("relayed_bytes"),
            stopped=str(document.get("stopped", "")),
            objective=str(document.get("objective", "bytes")),
            predicted=document.get("predicted"),
            routes=tuple(document.get("routes", ())),
            output_routes=tuple(document.get("output_routes", ())),
            chosen=str(document.get("chosen", "")),
            replication=bool(document.get("replication", False)),
            simulated_ns=dict(document.get("simulated_ns", {})),
            recompute=document.get("recompute"),
            written=document,
        )

    def _check(self) -> None:
        """Raise ValueError where numbers do not go together; texts may come from anywhere."""
        if min(self.parts, default=1) < 1 or math.prod(self.parts) != self.workers:
            raise ValueError(f"{self.workers} workers in parts {self.parts}")
        if len(self.steps) != len(self.parts):
            raise ValueError(f"{len(self.steps)} steps, expected {len(self.parts)}")
        sizes = [self.total_bytes, self.lower_bound_bytes, *self.bytes_per_worker.values()]
        sizes += [step.bytes for step in self.steps]
        sizes += [operator.bytes for operator in self.operators]
        if self.fetched_bytes is not None:
            sizes.append(self.fetched_bytes)
        wrong = [size for size in sizes if type(size) is not int or size < 0]
        if wrong:
            raise ValueError(f"{wrong[0]!r} bytes")
        times = self.predicted or {}
        sizes = [times[name] for name in _TIMES if self.predicted is not None]
        sizes += [link["bytes"] for link in times.get("links", ())]
        wrong = [size for size in sizes if type(size) is not int or size < 0]
        if wrong:
            raise ValueError(f"{wrong[0]!r} in the predicted time")
        if not 0 <= self.search_seconds < math.inf:
            raise ValueError(f"{self.search_seconds} seconds")
        for tensor in self.tensors:
            dtype_name(tensor.dtype)
            fits = all(type(size) is int and size >= 0 for size in tensor.shape)
            known = (TERMS, *range(-1, len(tensor.shape)))
            cuts = all(type(c) is int and c in known for c in tensor.cuts)
            if not (fits and cuts and len(tensor.cuts) == len(self.parts)):
                raise ValueError(f"cuts {tensor.cuts} of {tensor.node}, shape {tensor.shape}")
            if type(tensor.output) is not int or not isinstance(tensor.node, str):
                raise ValueError(f"output {tensor.output!r} of {tensor.node!r}")
        for op in self.operators:
            texts = (op.node, op.op, *(cut for cut in op.cuts if cut is not None))
            if len(op.cuts) != len(self.parts) or not all(isinstance(t, str) for t in texts):
                raise ValueError(f"splits {op.cuts} of {op.node!r}")

    def document(self) -> dict[str, Any]:
        """The plan's document (docs/formats.md)."""
        document = dict(self.written)
        if self.searched is not None:
            document = {"model": self.model} if "model" in self.notes else {}
            for name, value in json.loads(self.searched.to_json()).items():
                document[name] = value
                if name == "search_seconds" and "bytes_per_worker" in self.notes:
                    document["bytes_per_worker"] = None  # its place; the value follows
        document.update((name, getattr(self, name)) for name in self.notes)
        if "bytes_per_worker" in self.notes:
            total = sum(self.bytes_per_worker.values())
            document["bytes_per_worker"] = {**self.bytes_per_worker, "total": total}
        return document

    def to_json(self) -> str:
        """The plan's document as text."""
        return json.dumps(self.document())

    def in_graph(self, table: _core.StrategyTable) -> _core.Plan:
        """The plan in C++, of the graph of this table. Raises PlanError if it does not fit."""
        return self.searched or _core.Plan(self.to_json(), table)

    def tensor(self, node: str, output: int = 0) -> TensorPlan:
        """The plan of one tensor. Raises PlanError if the graph has none of that name."""
        for tensor in self.tensors:
            if tensor.node == node and tensor.output == output:
                return tensor
        raise PlanError(f"plan: no tensor {node!r} (output {output}); see the plan's tensor names")

    def quality(self) -> str:
        """The plan's proven quality, in words."""
        in_mode = "" if self.mode in ("", "tofu") else f" of {self.mode}"
        if self._is_timed:
            in_mode = f"{in_mode} in predicted time"
        cost, bound = self.proven_cost
        if cost <= bound or self.status == "optimal":
            return f"proven optimal{in_mode}"
        steps = "every step optimal by itself; " if self.status == "steps-optimal" else ""
        if bound <= 0:
            return f"{steps}nothing proven of the whole plan{in_mode}"
        above = 100 * (cost / bound - 1)
        return f"{steps}at most {_percent(above)} above the optimum{in_mode}"

    @property
    def proven_cost(self) -> tuple[int, int]:
        """The plan's cost, bytes or nanoseconds, and a bound that no plan falls below."""
        if self.predicted is not None and self._is_timed:
            return self.predicted["step_ns"], self.predicted["lower_bound_ns"]
        return self.total_bytes, self.lower_bound_bytes

    @property
    def _is_timed(self) -> bool:
        return self.predicted is not None and "lower_bound_ns" in self.predicted

    @property
    def tensor_bytes(self) -> int:
        """The bytes of all tensors, whole."""
        return sum(tensor.bytes for tensor in self.tensors)

    def replicated_bytes(self) -> dict[str, int]:
        """Tensors that some step must replicate, with their bytes, largest first."""
        return _sizes(each for each in self.tensors if each.indivisible(self.parts))

    def whole_bytes(self) -> dict[str, int]:
        """Tensors that every worker must hold whole, with their bytes, largest first."""
        return _sizes(
            tensor
            for tensor in self.tensors
            if tensor.indivisible(self.parts) and set(tensor.cuts) == {REPLICATED}
        )


def _sizes(tensors: Iterable[TensorPlan]) -> dict[str, int]:
    """The bytes of nodes, of those that have most first."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        size = math.prod(tensor.shape) * dtype_bytes(tensor.dtype)
        sizes[tensor.node] = sizes.get(tensor.node, 0) + size
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def undescribed_text(name: str, operators: Mapping[str, str], cost_bytes: int) -> str:
    """A warning about `operators` of graph `name` that the strategy table has no row for.

    operators: name -> reason, "" if it has no description.
    cost_bytes: bytes that they communicate in a step.
    """
    bare = sorted(operator for operator, reason in operators.items() if not reason)
    parts = [f"no description of {', '.join(bare)}"] if bare else []
    parts += [f"{operator}: {reason}" for operator, reason in sorted(operators.items()) if reason]
    advice = ". A description in TDL would let them be split" if bare else ""
    return (
        f"{name}: {'; '.join(parts)}; every worker computes them whole, which costs "
        f"{format_bytes(cost_bytes)} of communication per step{advice}"
    )


def gap_text(best: int, bound: int) -> str:
    """The most by which a cost is above the least one, in words."""
    if best <= bound:
        return "0%"
    if bound <= 0:
        return "unknown"
    share = 100 * (best - bound) / bound
    return f"{share:,.0f}%" if share >= 100 else f"{share:.3g}%"


def format_cost(cost: int, objective: str) -> str:
    """A search's cost in the unit of its objective (src/passes/search/cost/cost_model.h)."""
    if objective == "time":
        return format_seconds(cost / 1e9)
    return format_bytes(cost) if objective == "bytes" else f"{cost:,}"


def format_seconds(seconds: float) -> str:
    """A time in seconds, milliseconds or microseconds."""
    if seconds >= 1:
        return f"{seconds:.3f} s"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def format_bytes(count: float) -> str:
    """`count` bytes in the largest binary unit that keeps it at 1 or more."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"

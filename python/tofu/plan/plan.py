"""A plan as a person or a program reads it: how every tensor and operator is cut.

The C++ passes write plans as JSON (``docs/formats.md``); this module gives that
document a type and prints it::

    plan = Plan.from_json(text)
    print(plan.to_text())
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Optional

from ..errors import PlanError

__all__ = ["OperatorPlan", "Plan", "Step", "TensorPlan", "format_bytes", "undescribed_text"]

FORMAT = "tofu-plan"
VERSION = 1
REPLICATED = -1
# Both by MXNet's type flags.
DTYPE_BYTES = (4, 8, 2, 1, 4, 1, 8, 1)
_DTYPE_NAMES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")


@dataclasses.dataclass(frozen=True)
class Step:
    """One recursive step: every group of workers is divided into `parts` groups."""

    parts: int
    groups: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class TensorPlan:
    """One tensor: the dimension that each step cuts, or -1 where it is replicated."""

    node: str
    output: int
    shape: tuple[int, ...]
    dtype: int
    cuts: tuple[int, ...]

    def tiles(self, parts: Sequence[int]) -> tuple[int, ...]:
        """Number of pieces along each dimension."""
        pieces = [1] * len(self.shape)
        for cut, count in zip(self.cuts, parts):
            if cut != REPLICATED:
                pieces[cut] *= count
        return tuple(pieces)

    @property
    def replicated(self) -> bool:
        """Whether some step leaves a whole copy with every group."""
        return REPLICATED in self.cuts


@dataclasses.dataclass(frozen=True)
class OperatorPlan:
    """One operator: the index variable that each step splits, None where none is."""

    node: str
    op: str
    cuts: tuple[Optional[str], ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a training graph is partitioned over `workers` (paper section 5.2).

    Attributes:
        workers: number of workers, the product of `parts`.
        graph_hash: hash of the graph the plan is for.
        parts: groups a group is divided into, per step.
        steps: what each step communicates, in bytes over all its groups.
        total_bytes: bytes all workers together fetch per training step.
        lower_bound_bytes: no plan of these steps can communicate less.
        status: "optimal" (every step is a proven optimum of its step) or "feasible".
        search_seconds: from graph in memory to plan.
    """

    workers: int
    graph_hash: str
    parts: tuple[int, ...]
    steps: tuple[Step, ...]
    total_bytes: int
    lower_bound_bytes: int
    status: str
    search_seconds: float
    tensors: tuple[TensorPlan, ...]
    operators: tuple[OperatorPlan, ...]
    source: str = dataclasses.field(repr=False, compare=False, default="")

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan document. Raises PlanError when `text` is not one."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise PlanError(
                f"plan: not JSON ({error}); expected a document that tofu plan wrote"
            ) from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise PlanError(f'plan: no "format": "{FORMAT}"; expected what tofu plan wrote')
        if document.get("version") != VERSION:
            raise PlanError(
                f"plan: version {document.get('version')!r}, this tofu reads version {VERSION}; "
                "make the plan again with this version"
            )
        try:
            return cls._from_document(document, text)
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(f"plan: incomplete or damaged ({error!r}); make it again") from None

    @classmethod
    def _from_document(cls, document: dict[str, Any], text: str) -> Plan:
        return cls(
            workers=int(document["workers"]),
            graph_hash=str(document["graph_hash"]),
            parts=tuple(int(part) for part in document["parts"]),
            steps=tuple(Step(s["parts"], s["groups"], s["bytes"]) for s in document["steps"]),
            total_bytes=int(document["total_bytes"]),
            lower_bound_bytes=int(document["lower_bound_bytes"]),
            status=str(document["status"]),
            search_seconds=float(document["search_seconds"]),
            tensors=tuple(
                TensorPlan(t["node"], t["output"], tuple(t["shape"]), t["dtype"], tuple(t["cuts"]))
                for t in document["tensors"]
            ),
            operators=tuple(
                OperatorPlan(o["node"], o["op"], tuple(o["cuts"]), o["bytes"])
                for o in document["operators"]
            ),
            source=text,
        )

    def to_json(self) -> str:
        """The document this plan was read from."""
        return self.source

    def tensor(self, node: str, output: int = 0) -> TensorPlan:
        """The plan of one tensor. Raises PlanError when the graph has none of that name."""
        for tensor in self.tensors:
            if tensor.node == node and tensor.output == output:
                return tensor
        raise PlanError(f"plan: no tensor {node!r} (output {output}); see the plan's tensor names")

    def to_text(self) -> str:
        """The plan as tables for a terminal."""
        lines = [
            f"{self.workers} workers = {' x '.join(map(str, self.parts)) or '1'}, "
            f"{format_bytes(self.total_bytes)} communicated per training step "
            f"({self._quality()}), found in {self.search_seconds:.3f} s",
            "",
        ]
        lines += _table(
            ("step", "parts", "groups", "bytes"),
            (
                (str(i), str(s.parts), str(s.groups), f"{s.bytes:,}")
                for i, s in enumerate(self.steps, 1)
            ),
        )
        lines += ["", "Tensors (pieces along each dimension; '=' marks a replicated one)", ""]
        lines += _table(
            ("tensor", "shape", "dtype", "tiles", "cut per step"),
            map(self._tensor_row, self.tensors),
        )
        lines += ["", "Operators (index variable split at each step)", ""]
        lines += _table(
            ("operator", "kind", "split per step", "bytes fetched"),
            (
                (o.node, o.op, " ".join(c or "-" for c in o.cuts), f"{o.bytes:,}")
                for o in self.operators
            ),
        )
        return "\n".join(lines) + "\n"

    def _quality(self) -> str:
        """How good the plan is known to be: `status` speaks of each step by itself."""
        if self.total_bytes <= self.lower_bound_bytes:
            return "proven optimal"
        bound = f"the least possible is at least {format_bytes(self.lower_bound_bytes)}"
        return f"every step optimal by itself; {bound}" if self.status == "optimal" else bound

    def _tensor_row(self, tensor: TensorPlan) -> tuple[str, ...]:
        name = tensor.node if tensor.output == 0 else f"{tensor.node}[{tensor.output}]"
        pieces = "x".join(map(str, tensor.tiles(self.parts))) or "-"
        known = 0 <= tensor.dtype < len(_DTYPE_NAMES)
        return (
            name,
            "x".join(map(str, tensor.shape)) or "scalar",
            _DTYPE_NAMES[tensor.dtype] if known else str(tensor.dtype),
            pieces + ("=" if tensor.replicated else ""),
            " ".join("-" if cut == REPLICATED else str(cut) for cut in tensor.cuts),
        )

    def replicated_bytes(self) -> dict[str, int]:
        """Bytes per tensor of those that some step replicates, largest first."""
        sizes: dict[str, int] = {}
        for tensor in filter(lambda tensor: tensor.replicated, self.tensors):
            size = math.prod(tensor.shape) * DTYPE_BYTES[tensor.dtype]
            sizes[tensor.node] = sizes.get(tensor.node, 0) + size
        return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def undescribed_text(name: str, operators: Collection[str], plan: Plan) -> str:
    """What a user is told of the `operators` of graph `name` that no description covers."""
    cost = sum(operator.bytes for operator in plan.operators if operator.op in operators)
    return (
        f"{name}: no description of {', '.join(sorted(operators))}; every worker computes them "
        f"whole, which costs {format_bytes(cost)} of communication per step. "
        "A description in TDL would let them be split"
    )


def format_bytes(count: float) -> str:
    """`count` bytes in the largest binary unit that keeps it at 1 or more."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [tuple(header), *map(tuple, rows)]
    widths = [max(len(row[i]) for row in body) for i in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in body
    ]

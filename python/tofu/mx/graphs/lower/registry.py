"""Declares, builds and applies lowerings.

@BEFORE.lowering("mean", reason="divides by the number of elements of its own tile")
def mean(node, build):
    ...
    return [build.op("_mul_scalar", total, scalar=1 / count)]
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Optional, Union

import numpy as np

from tofu.analysis.strategy_table import WHOLE
from tofu.errors import GraphError
from tofu.mx.devices import GraphUse
from tofu.mx.nnvm import Entry, Graph, Node, format_shape
from tofu.plans.names import STAGE

__all__ = [
    "AFTER",
    "BEFORE",
    "STAGES",
    "Builder",
    "Lowering",
    "Registry",
    "flag",
    "number",
    "single",
]

_log = logging.getLogger("tofu")

_BACKWARD = "backward_"
AttrValue = Union[str, bool, int, float, tuple[int, ...]]


class Builder:
    """Makes the nodes that replace one node.

    Attributes:
        train, workers, on_gpus: as in GraphUse.
        aux_updates: variable -> function to its value after a step; a lowering may add some.
        shared: entries that the lowering of a forward operator leaves for the lowering of its
            backward operator, by the forward node.
        read: the outputs of the node that something reads.
        updates_statistics: whether the step changes the node's running statistics.
        is_differentiated: whether a gradient flows through the node.
        is_fused: whether a BatchNorm stays one operator.
        may_fuse: whether it does in predictions.
    """

    def __init__(
        self,
        node: Node,
        use: GraphUse,
        *,
        shared: dict[Node, Sequence[Entry]],
        read: Collection[int],
        is_differentiated: bool,
        fused: Optional[Collection[str]],
    ) -> None:
        self.train, self.workers, self.on_gpus = use.train, use.workers, use.on_gpus
        self.aux_updates: dict[Entry, Callable[[Entry], Entry]] = {}
        self.shared = shared
        self.read = frozenset(read)
        self.updates_statistics = use.on_gpus or is_differentiated
        self.is_differentiated = is_differentiated
        self.is_fused = node.name in (fused or ())
        self.may_fuse = fused is not None
        self._node = node
        self._stage: Optional[str] = None
        self._counts: dict[str, int] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Name the nodes made in this context after their result, such as "mean"."""
        before, self._stage = self._stage, self._stage or name
        try:
            yield
        finally:
            self._stage = before

    def op(self, op: str, *inputs: Entry, **attrs: Optional[AttrValue]) -> Entry:
        """Output 0 of a new node. Attributes that are None are left out."""
        node = Node(
            op,
            f"{self._node.name}{STAGE}{self._next(self._stage or _plain(op))}",
            {key: _format(value) for key, value in attrs.items() if value is not None},
            list(inputs),
            list(self._node.control_deps),
        )
        return Entry(node)

    def _next(self, stage: str) -> str:
        """The stage's name, with a number after its first node."""
        count = self._counts[stage] = self._counts.get(stage, 0) + 1
        return stage if count == 1 else f"{stage}_{count}"

    def forget(self) -> None:
        """Discard what has been built."""
        self.aux_updates.clear()
        self.shared.pop(self._node, None)

    def reshape(self, entry: Entry, shape: Sequence[int]) -> Entry:
        """The entry in another, explicit shape."""
        return self.op("Reshape", entry, shape=tuple(shape))

    def zeros(self, shape: Sequence[int], dtype: str) -> Entry:
        """A tensor of zeros."""
        return self.op("_zeros", shape=tuple(shape), dtype=dtype)


# Returns the entry that replaces each output, or None to leave the node unchanged.
Function = Callable[[Node, Builder], Optional[Sequence[Entry]]]
# Whether a node needs its lowering with this number of workers.
Needed = Callable[[Node, int], bool]


@dataclasses.dataclass(frozen=True)
class Lowering:
    """One operator's rewrite.

    Attributes:
        op: the operator.
        reason: why it needs the rewrite.
        function: the rewrite.
        where: selects the nodes that need it (None: all). Such a rewrite only makes splits
            cheaper; if it fails, the operator stays and is split as its description allows.
        essential: whether the operator would compute something else without the rewrite, even
            unsplit.
    """

    op: str
    reason: str
    function: Function
    where: Optional[Needed] = None
    essential: bool = False

    def apply(self, node: Node, build: Builder) -> Optional[Sequence[Entry]]:
        """Return the entries that replace the node's outputs, or None.

        If the rewrite fails, the node stays unchanged. Every worker then computes it whole,
        unless the lowering has a `where`.

        Raises:
            GraphError: an essential rewrite fails.
        """
        before = dict(node.attrs), list(node.inputs), list(node.control_deps)
        try:
            if self.where is not None and not self.where(node, build.workers):
                return None
            return self.function(node, build)
        except Exception as error:  # a fault affects only this operator
            node.attrs, node.inputs, node.control_deps = before
            build.forget()
            text = f"its rewrite fails: {type(error).__name__}: {error}"
            if self.essential:
                raise GraphError(f"node {node.name!r} ({node.op}): {text}") from error
            if self.where is None:
                node.attrs[WHOLE] = text
            _log.debug("%s (%s): %s", node.name, node.op, text)
            return None


class Registry:
    """Lowerings by operator."""

    def __init__(self) -> None:
        self._lowerings: dict[str, Lowering] = {}

    def lowering(
        self, *ops: str, reason: str, where: Optional[Needed] = None, essential: bool = False
    ) -> Callable[[Function], Function]:
        """Declare the decorated function as the lowering of some operators."""

        def declare(function: Function) -> Function:
            for op in ops:
                self._lowerings[op] = Lowering(op, reason, function, where, essential)
            return function

        return declare

    def __iter__(self) -> Iterator[Lowering]:
        return iter(self._lowerings.values())

    def apply(
        self,
        graph: Graph,
        use: GraphUse,
        fused: Optional[Collection[str]] = (),
    ) -> dict[str, Entry]:
        """Rewrite all nodes that have a lowering and need it; shapes must be inferred.

        use: the run that the graph is for.
        fused: names of the BatchNorms that stay one operator; in predictions all do. None: none
            does, not even in predictions.

        Returns the new values of auxiliary states, by variable name.

        Raises GraphError if an essential lowering fails.
        """
        replacements: dict[Entry, Entry] = {}
        updates: dict[Node, dict[Entry, Callable[[Entry], Entry]]] = {}
        shared: dict[Node, Sequence[Entry]] = {}
        read = _outputs_read(graph)
        differentiated: dict[Node, None] = {}  # in the order in which backward operators run
        for each in graph.topological():
            differentiated.update(dict.fromkeys(each.control_deps[:1]))
        for node in graph.topological():
            lowering = self._lowerings.get(node.op)
            if lowering is None:
                continue
            builder = Builder(
                node,
                use,
                shared=shared,
                read=read.get(node, ()),
                is_differentiated=node in differentiated,
                fused=fused,
            )
            outputs = lowering.apply(node, builder)
            if outputs is not None:
                pairs = ((Entry(node, i), out) for i, out in enumerate(outputs))
                replacements.update((entry, out) for entry, out in pairs if entry != out)
                updates[node] = builder.aux_updates
        order = updates if use.on_gpus else {**differentiated, **updates}
        values = _updated(updates, order)
        count = len(graph.heads)
        graph.kept = list(graph.variables().values())
        graph.heads += values.values()
        graph.replace(replacements)
        values = dict(zip(values, graph.heads[count:]))
        del graph.heads[count:]
        return values


def _updated(
    updates: Mapping[Node, Mapping[Entry, Callable[[Entry], Entry]]], order: Iterable[Node]
) -> dict[str, Entry]:
    """The new values of variables, which several nodes may update one after the other."""
    values = {variable: variable for each in updates.values() for variable in each}
    for node in order:
        for variable, update in updates.get(node, {}).items():
            values[variable] = update(values[variable])
    return {variable.node.name: value for variable, value in values.items()}


def _outputs_read(graph: Graph) -> dict[Node, set[int]]:
    read: dict[Node, set[int]] = {}
    for entry in [*graph.heads, *(e for node in graph.nodes_read() for e in node.inputs)]:
        read.setdefault(entry.node, set()).add(entry.index)
    return read


def flag(node: Node, name: str, default: bool = False) -> bool:
    """A boolean attribute."""
    text = node.attrs.get(name)
    return default if text is None else text.lower() in ("true", "1")


def number(node: Node, name: str, default: float) -> float:
    """A number attribute."""
    return float(node.attrs.get(name, default))


def single(node: Node, name: str, default: float) -> float:
    """A number attribute, rounded to single precision as MXNet stores it."""
    return float(np.float32(number(node, name, default)))


def _plain(op: str) -> str:
    """The name of a stage after its operator, without prefixes for directions."""
    name = op.strip("_")
    return f"{name[len(_BACKWARD) :].strip('_')}_gradient" if name.startswith(_BACKWARD) else name


def _format(value: AttrValue) -> str:
    if isinstance(value, tuple):
        return format_shape(value)
    if isinstance(value, float):
        return repr(value)
    return str(value)


# Composite operators in the forward graph; the gradient is then that of their parts.
BEFORE = Registry()
# Composite operators that workers could not share otherwise; applied before BEFORE.
STAGES = Registry()
# Applied to the whole graph: backward operators that need the state of their forward operator,
# and composite operators with a better gradient than that of their parts.
AFTER = Registry()

"""Operators of the forward pass that run again in the backward pass, to keep fewer tensors.

Which ones do either the module tells, with ``torch.utils.checkpoint``, or the planner, to fit into
a limit of memory (``planner/recomputation``).
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from tofu import _core
from tofu.torch.graphs.traced import Entry, Operator, Traced

__all__ = ["repeated_as", "with_checkpoints"]

_SUFFIX = "_repeated"


def with_checkpoints(traced: Traced, name: str) -> Traced:
    """Repeats the operators of checkpoints, each before the first operator that needs it.

    Tensors that operators outside of a checkpoint read stay, and so do random numbers.

    Args:
        traced: the trace.
        name: the module's name, for a warning of buffers that checkpoints change.
    """
    inside = {o.name: o for o in traced.operators if o.checkpoint is not None}
    changed = [buffer for buffer, entry in traced.mutations.items() if entry.node in inside]
    if changed and traced.gradients:
        warnings.warn(
            f"{name}: forward changes {changed[0]!r} inside a checkpoint, once in a planned call; "
            "plain torch changes it once more in the backward pass. Call batch norms outside of "
            "checkpoints for equal statistics",
            stacklevel=2,
        )
    inside = {name: o for name, o in inside.items() if name in traced.forward}
    if not inside:
        return traced
    return dataclasses.replace(traced, operators=tuple(_Repeater(traced, inside).run()))


class _Repeater:
    """Inserts repetitions into the backward pass."""

    def __init__(self, traced: Traced, inside: dict[str, Operator]) -> None:
        self._traced = traced
        self._inside = inside
        self._done: dict[str, str] = {}  # operator -> its repetition
        heads = [*traced.outputs, *traced.mutations.values()]
        self._kept = {entry for entry in heads if entry is not None}
        for operator in traced.operators:
            if operator.name in traced.forward:
                self._kept |= {e for _, e in operator.inputs if self._leaves(e, operator)}
        for operator in inside.values():
            if torch.Tag.nondeterministic_seeded in operator.target.tags:
                self._kept |= {Entry(operator.name, k) for k in range(len(operator.outputs))}

    def _leaves(self, entry: Entry, reader: Operator) -> bool:
        maker = self._inside.get(entry.node)
        return maker is not None and maker.checkpoint != reader.checkpoint

    def run(self) -> Iterator[Operator]:
        """The operators of both passes."""
        for operator in self._traced.operators:
            if operator.name in self._traced.forward:
                yield operator
            else:
                yield from self._before(operator)
                yield _reading(operator, [self._moved(entry) for _, entry in operator.inputs])

    def _is_repeated(self, entry: Entry) -> bool:
        return entry.node in self._inside and entry not in self._kept

    def _moved(self, entry: Entry) -> Entry:
        if not self._is_repeated(entry):
            return entry
        return Entry(self._done[entry.node], entry.index)

    def _before(self, operator: Operator) -> Iterator[Operator]:
        """The repetitions that an operator needs, and that are not there yet."""
        waiting = [operator]
        while waiting:
            needs = [
                self._inside[entry.node]
                for _, entry in waiting[-1].inputs
                if self._is_repeated(entry) and entry.node not in self._done
            ]
            if needs:
                waiting.append(needs[0])
                continue
            ready = waiting.pop()
            if waiting and ready.name not in self._done:
                name = self._done[ready.name] = ready.name + _SUFFIX
                inputs = [self._moved(entry) for _, entry in ready.inputs]
                again = _reading(ready, inputs)
                yield dataclasses.replace(again, name=name, repeats=ready.name, sequence=-1)


def repeated_as(traced: Traced, graph: _core.Graph) -> Traced:
    """The trace of a graph that ``planner/recomputation`` has made of a trace's graph."""
    known = {operator.name: operator for operator in traced.operators}
    nodes = graph.nodes
    operators = []
    for node in nodes:
        repeats = node.attrs.get(_core.repeats_attribute, "")
        operator = known.get(node.name) or known.get(repeats)
        if operator is not None:
            inputs = [Entry(nodes[source].name, index) for source, index in node.sources]
            again = _reading(operator, inputs)
            operators.append(dataclasses.replace(again, name=node.name, repeats=repeats))
    return dataclasses.replace(traced, operators=tuple(operators))


def _reading(operator: Operator, entries: Sequence[Entry]) -> Operator:
    """The operator with other inputs."""
    if all(entry == own for entry, (_, own) in zip(entries, operator.inputs)):
        return operator
    left = iter(entries)

    def replaced(value: Any) -> Any:
        if isinstance(value, Entry):
            return next(left)
        return [replaced(each) for each in value] if isinstance(value, list) else value

    arguments = {name: replaced(value) for name, value in operator.arguments.items()}
    inputs = tuple((name, entry) for (name, _), entry in zip(operator.inputs, entries))
    return dataclasses.replace(operator, arguments=arguments, inputs=inputs)

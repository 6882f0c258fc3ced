"""Lists the operators of the installed MXNet with their strategies."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np

from tofu.analysis import row_for
from tofu.errors import TofuError
from tofu.lang import Description, Shape, ir, lookup
from tofu.lang.example_calls import Case
from tofu.verify.calls.operator_calls import NOT_RUN, cases_by_operator
from tofu.verify.calls.probes import values
from tofu.verify.inventory.classes import INEXPRESSIBLE, UNRUN, class_of, counts
from tofu.verify.inventory.listing import registered_operators
from tofu.verify.inventory.recorded_results import recorded
from tofu.verify.run.node import NodeCall, inferred, quiet, run_node, sorted_attrs

__all__ = ["Call", "Operator", "call_of", "fingerprint", "inventory", "operator_of"]

NOT_DESCRIBED = "not described"
_NO_CALL = "no call of it is known"


@dataclasses.dataclass(frozen=True)
class Operator:
    """A registered operator; its fields are those of ``tofu ops --format json``."""

    name: str
    aliases: list[str]
    class_: str
    described: bool
    strategies: int
    reductions: int
    halos: int
    verified: bool
    reason: Optional[str]

    def to_document(self) -> dict[str, Any]:
        """Converts the operator to a JSON document."""
        fields = dataclasses.asdict(self)
        return {name.rstrip("_"): value for name, value in fields.items()}


@dataclasses.dataclass(frozen=True)
class Call:
    """An operator's attributes and shapes."""

    op: str
    attrs: Mapping[str, str]
    ins: tuple[Shape, ...]
    outs: tuple[Shape, ...]


def inventory() -> list[Operator]:
    """Lists all registered operators by name."""
    cases = cases_by_operator()
    reasons = _reasons()
    return [
        operator_of(name, aliases, cases.get(name, []), reasons)
        for name, aliases in registered_operators().items()
    ]


def operator_of(
    name: str, aliases: list[str], cases: Sequence[Case], reasons: Mapping[str, str]
) -> Operator:
    """An operator with the strategies of its richest call."""
    description = lookup(name)
    if description is None:
        reason = reasons.get(name, NOT_DESCRIBED)
        return Operator(name, aliases, INEXPRESSIBLE, False, 0, 0, 0, False, reason)
    calls = [call for case in cases for call in [call_of(case)] if call is not None]
    kinds = [_kind(description, call) for call in calls]
    counted = [(number, kind) for kind in kinds if kind is not None for _, number in [kind]]
    if not counted:
        reason = "no call is described" if calls else f"not run: {NOT_RUN.get(name, _NO_CALL)}"
        return Operator(name, aliases, UNRUN, True, 0, 0, 0, False, reason)
    _, (class_, (strategies, reductions, halos)) = max(counted, key=lambda each: each[0])
    verified = recorded().get(name, {}).get("fingerprint") == fingerprint(calls)
    return Operator(name, aliases, class_, True, strategies, reductions, halos, verified, None)


def call_of(case: Case) -> Optional[Call]:
    """A case as a call of the operator; None if MXNet infers no shapes for it."""
    shapes = inferred(case) or _found(case)
    if shapes is None:
        return None
    ins, outs = shapes
    if case.forward is None:
        return Call(case.op, case.attrs, tuple(ins), tuple(outs))
    read_shapes = [ins[int(r[1:])] if r[0] == "i" else outs[int(r[1:])] for r in case.reads]
    grads = case.grads if case.grads is not None else [f"i{k}" for k in range(len(ins))]
    return Call(case.op, case.attrs, tuple(read_shapes), tuple(ins[int(g[1:])] for g in grads))


def _found(case: Case) -> Optional[tuple[list[Shape], list[Shape]]]:
    """Shapes from running an operator for which MXNet infers none, or wrong ones."""
    if case.shaped or (case.imperative and case.forward is None):
        return None
    op, attrs = case.op, case.attrs
    if case.forward is not None:
        op, attrs = case.forward, case.forward_attrs or attrs
    rng = np.random.default_rng(1)
    try:
        arrays = [values(each, rng, case.dtype) for each in case.inputs]
        with quiet():
            call = NodeCall(op, sorted_attrs(attrs), case.outputs, numpy=case.numpy)
            outs = run_node(call, arrays)
    except (mx.MXNetError, ValueError):  # no such call
        return None
    return [a.shape for a in arrays], [o.shape for o in outs if o is not None]


def fingerprint(calls: Sequence[Call]) -> str:
    """A hash of the rows of these calls, which changes with the description."""
    digest = hashlib.sha256()
    for call in calls:
        digest.update(_said(call).encode())
    return digest.hexdigest()[:16]


@functools.lru_cache(maxsize=8192)
def _said_of(op: str, attrs: tuple[tuple[str, str], ...], ins: Any, outs: Any) -> str:
    description = lookup(op)
    try:
        row = row_for(op, dict(attrs), ins, outs)
        if description is None or row is None:
            return "nothing"
        trace = description.trace(ins, outs, dict(attrs))
    except TofuError as error:
        return type(error).__name__
    bodies = [ir.show(out.body) for out in trace.outputs]
    return json.dumps([{**row, "source": ""}, bodies], sort_keys=True)


def _said(call: Call) -> str:
    return _said_of(call.op, tuple(sorted(call.attrs.items())), call.ins, call.outs)


def _kind(description: Description, call: Call) -> Optional[tuple[str, tuple[int, int, int]]]:
    try:
        row = row_for(call.op, call.attrs, call.ins, call.outs)
        if row is None:
            return None
        trace = description.trace(call.ins, call.outs, call.attrs)
    except TofuError:
        return None
    return class_of(trace, row), counts(row, call.attrs, call.ins, call.outs)


def _reasons() -> Mapping[str, str]:
    reasons: Mapping[str, str] = importlib.import_module("tofu.tdl.inexpressible").REASONS
    return reasons

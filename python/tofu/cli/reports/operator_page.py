"""The page of ``tofu ops OPERATOR``: its description, example call and strategies."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tofu.analysis import Analysis, analyze
from tofu.analysis.result import Extent
from tofu.analysis.table import described_name
from tofu.errors import ConfigError
from tofu.lang import lookup
from tofu.plans import Problem
from tofu.tables import table
from tofu.verify.calls.operator_calls import cases_by_operator
from tofu.verify.inventory.inventory import Call, call_of

__all__ = ["NO_CALL", "inventory_entry", "operator_text", "used_text"]

Document = Mapping[str, Any]  # an operator, as in tofu ops --format json
NO_CALL = "no example call is known"
_LEGEND = (
    "A part reads lo..hi of the variable that is split, both ends inclusive; : is a whole "
    "dimension.\nA name in capitals is the last index of a variable."
)


def inventory_entry(command: str, name: str, operators: Sequence[Document]) -> Optional[Document]:
    """The inventory's entry of an operator; None for one of the user's that has a description.

    Args:
        command: the command that asks, for the error.
        name: its name, or another name that MXNet has for it.
        operators: the inventory.

    Raises:
        ConfigError: there is no such operator.
    """
    by_name = {alias: o for o in operators for alias in (o["name"], *o["aliases"])}
    if name not in by_name and lookup(name) is None:
        near = difflib.get_close_matches(name, by_name, n=3)
        raise ConfigError(
            f"{command} {name}: MXNet has no such operator"
            + (f"; did you mean {', '.join(near)}?" if near else "; tofu ops lists all")
        )
    return by_name.get(name)


def operator_text(name: str, operators: Sequence[Document]) -> str:
    """Everything about one operator, for a terminal.

    Args:
        name: its name, or another name that MXNet has for it; that of an operator in a file of
            the user's.
        operators: the inventory.

    Raises:
        ConfigError: there is no such operator.
    """
    cases = cases_by_operator()
    document = inventory_entry("tofu ops", name, operators)
    canonical = document["name"] if document is not None else name
    description = lookup(canonical)
    if description is None:
        assert document is not None
        return (
            f"{canonical}: {document['class']}; {document['reason']}\n"
            "Every worker computes it whole. A description would let it be split if it can be "
            "(docs/own-operators.md).\n"
        )
    lines = [_head(canonical, document, description.location), "", description.source.text(), ""]
    calls = [(case, call) for case in cases.get(canonical, []) for call in [call_of(case)] if call]
    analyses = []
    for case, call in calls:
        analysis = analyze(description, call.ins, call.outs, attributes=call.attrs)
        analyses.append((len(analysis.strategies), case.name, call, analysis))
    if not analyses:
        reason = NO_CALL if document is None else document["reason"]
        return "\n".join([*lines, f"No strategies to show: {reason}"]) + "\n"
    _, _, call, analysis = max(analyses, key=lambda each: each[0])
    lines += [_example(call, analysis), "", "Index variables:"]
    words = [
        (name, description.words(name), _words(extent, analysis))
        for name, extent in analysis.extents.items()
    ]
    lines += [f"  {line}" for line in table(("variable", "what it is", "where"), words)]
    lines += ["", "Ways to split it:", *str(analysis).splitlines()[1:], "", _LEGEND]
    return "\n".join(lines) + "\n"


def _head(name: str, document: Any, location: str) -> str:
    if document is None:
        return f"{name}: described in {location}"
    names = f" ({', '.join(document['aliases'])})" if document["aliases"] else ""
    verified = "verified" if document["verified"] else "not verified"
    return f"{name}{names}: {document['class']}, described in {location}, {verified}"


def _example(call: Call, analysis: Analysis) -> str:
    tensors = zip((tensor.name for tensor in analysis.trace.inputs), call.ins)
    inputs = ", ".join(f"{name} {_shape(shape)}" for name, shape in tensors)
    attributes = "".join(f", {key}={value}" for key, value in call.attrs.items())
    outputs = ", ".join(map(_shape, call.outs))
    return f"Example: {call.op}({inputs}{attributes}) -> {outputs}"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _words(extent: Extent, analysis: Analysis) -> str:
    """A variable in words: the dimension that it runs over, and whether it is reduced."""
    if extent.kind == "output":
        output = f"output {extent.slot}" if len(analysis.outputs) > 1 else "the output"
        return f"dimension {extent.dim} of {output}"
    if extent.kind == "input":
        name = analysis.trace.inputs[extent.slot].name
        return f"reduced: dimension {extent.dim} of {name}"
    return f"reduced: {extent.constant} values"


def used_text(problems: Sequence[Problem], operators: Sequence[Document]) -> str:
    """The operators of training graphs, and which of them are described."""
    by_name = {alias: o for o in operators for alias in (o["name"], *o["aliases"])}
    uses = Counter(
        described_name(node.op, node.attrs)[0]
        for problem in problems
        for node in problem.graph.nodes
        if node.op
    )
    rows, missing = [], 0
    for name, count in sorted(uses.items(), key=lambda each: (-each[1], each[0])):
        is_described = lookup(name) is not None
        missing += not is_described
        document = by_name.get(name)
        kind = document["class"] if document is not None else "yours"
        reason = "" if document is None else document["reason"] or ""
        state = "described" if is_described else reason or "not described"
        rows.append((name, f"{count:,}", kind, state))
    lines = table(("operator", "nodes", "class", ""), rows, right=(1,))
    whole = f"{missing} of them not described, which every worker computes whole"
    lines.append(f"{len(uses)} operators, {whole if missing else 'all described'}")
    return "\n".join(lines) + "\n"

"""Writes a TDL description from the splits that work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tofu.lang.example_calls import Case, Shape
from tofu.verify.find.splits import Way

__all__ = ["Found", "text_of"]

_REDUCER = {"sum": "Sum", "max": "Max", "min": "Min", "prod": "Prod"}


@dataclass(frozen=True)
class Found:
    """Splits found for one operator.

    Attributes:
        name: the operator's name in its description.
        case: the call that ran.
        tensors: names for its inputs.
        outs: the outputs' shapes.
        ways: splits that work, at most one per dimension.
    """

    name: str
    case: Case
    tensors: tuple[str, ...]
    outs: tuple[Shape, ...]
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class _Named:
    """A way and the variable that it splits."""

    name: str
    way: Way


def text_of(operators: Sequence[Found], note: str = "") -> str:
    """A Python file with the descriptions, and the calls that found them as cases."""
    shapes = " and ".join(str(i.shape) for i in operators[0].case.inputs)
    lines = [f'"""Found by running {operators[0].name} on {shapes}."""', ""]
    lines += ["import tofu", "from tofu.verify import In, case"]
    written = [_described(each) for each in operators]
    lines += [line for each in written for line in ["", "", *each]]
    cases = [f"    {_case(each.case)}," for each in operators]
    lines += ["", "", "CASES = [", *cases, "]"]
    lines += [f"# {note}"] if note else []
    return "\n".join(lines) + "\n"


def _described(operator: Found) -> list[str]:
    """The lines of one description."""
    case = operator.case
    named = [_Named(_variable(k, way), way) for k, way in enumerate(operator.ways)]
    written = [n for n in named if _can_be_written(n, named, case)]
    left_out = [f"# Left out: {n.way.text()}" for n in named if n not in written]
    if not written:
        return [f"# {operator.name}: no split found; every worker computes the whole.", *left_out]
    opaque = _is_whole(written, operator)
    lines = [*left_out, f'@tofu.op(name="{operator.name}"{_rewrites(written)})']
    lines += [f"def {_function(operator.name)}({', '.join(operator.tensors)}):"]
    lines += ["    f = tofu.Opaque()"] if opaque else []
    bodies = [_output(k, operator, written, opaque=opaque) for k in range(len(operator.outs))]
    if len(bodies) == 1:
        return [*lines, f"    return {bodies[0]}"]
    return [*lines, "    return (", *(f"        {body}," for body in bodies), "    )"]


def _variable(number: int, way: Way) -> str:
    concatenated = any(o.kind == "concatenate" for o in way.outcomes)
    return f"{'i' if concatenated else 'r'}{number}"


def _can_be_written(named: _Named, others: Sequence[_Named], case: Case) -> bool:
    """Whether TDL can express a way: windows of elements, and attributes that are numbers."""
    way = named.way
    if any(not case.attrs[a].strip().isdigit() for a in way.attributes):
        return False
    if way.window:
        covered = {(k, d) for n in others for k, d in enumerate(n.way.cuts) if d is not None}
        return all(
            (k, d) in covered for k, i in enumerate(case.inputs) for d in range(len(i.shape))
        )
    for slot in way.zeroed:  # added unchanged, at an element
        cut_dims = {d for n in others for k, d in enumerate(n.way.cuts) if k == slot}
        if not cut_dims.issuperset(range(len(case.inputs[slot].shape))):
            return False
    return True


def _index(slot: int, operator: Found, ways: Sequence[_Named], output: int) -> tuple[str, bool]:
    """The element of an input for an output, and whether one of its dimensions is whole."""
    dims = [":"] * len(operator.case.inputs[slot].shape)
    for named in ways:
        dim = named.way.cuts[slot]
        if dim is not None and named.way.outcomes[output].kind != "whole":
            dims[dim] = f"{named.name} + d{named.name}" if named.way.window else named.name
    return f"{operator.tensors[slot]}[{', '.join(dims)}]", ":" in dims


def _is_whole(ways: Sequence[_Named], operator: Found) -> bool:
    """Whether an opaque function is needed because something is whole or not divided."""
    slots = range(len(operator.tensors))
    return any(
        len(_divided(k, ways)) < len(out) or any(_index(s, operator, ways, k)[1] for s in slots)
        for k, out in enumerate(operator.outs)
    )


def _divided(output: int, ways: Sequence[_Named]) -> Mapping[int, str]:
    """The variables of an output's dimensions that are divided."""
    variables: dict[int, str] = {}
    for named in ways:
        outcome = named.way.outcomes[output]
        if outcome.kind == "concatenate" and outcome.dim is not None:
            variables.setdefault(outcome.dim, named.name)
    return variables


def _output(number: int, operator: Found, ways: Sequence[_Named], *, opaque: bool) -> str:
    divided = _divided(number, ways)
    variables = [divided.get(d, f"o{number}_{d}") for d in range(len(operator.outs[number]))]
    undivided = [v for d, v in enumerate(variables) if d not in divided]
    reducing = [n for n in ways if n.way.outcomes[number].kind in _REDUCER]
    zeroed = sorted({slot for n in reducing for slot in n.way.zeroed})
    slots = [k for k in range(len(operator.tensors)) if k not in zeroed]
    read = [_index(k, operator, ways, number)[0] for k in slots]
    arguments = ", ".join(read)
    if opaque:
        body = f"f({arguments})" + (f"[{', '.join(undivided)}]" if undivided else "")
    else:
        body = f'tofu.lang.apply("f", {arguments})'
    for named in (n for n in ways if n.way.window and n.way.outcomes[number].kind != "whole"):
        inner = f"tofu.Sum(lambda d{named.name}: {body}, extent={named.way.window + 1})"
        body = f'tofu.lang.apply("window", {inner})'
    if reducing:
        kind = _REDUCER[reducing[0].way.outcomes[number].kind]
        body = f"tofu.{kind}(lambda {', '.join(n.name for n in reducing)}: {body})"
    for slot in zeroed:
        body += f" + {_index(slot, operator, ways, number)[0]}"
    return f"lambda {', '.join(variables)}: {body}"


def _rewrites(ways: Sequence[_Named]) -> str:
    texts = [
        f'tofu.lang.Rewrite("{attr}", {{"size": "{named.name}"}})'
        for named in ways
        for attr in named.way.attributes
    ]
    return f", rewrites=[{', '.join(texts)}]" if texts else ""


def _function(operator: str) -> str:
    words = re.sub(r"\W+", "_", operator.replace("Custom:", "")).strip("_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()


def _case(case: Case) -> str:
    inputs = [
        f"In({i.shape}"
        + (f', "{i.kind}"' if i.kind != "real" else "")
        + (f", {i.high}" if i.high else "")
        + ")"
        for i in case.inputs
    ]
    more = f", attrs={dict(case.attrs)!r}, dtype={case.dtype!r}, outputs={case.outputs}"
    return f'case("{case.op}", {", ".join(inputs)}{more})'

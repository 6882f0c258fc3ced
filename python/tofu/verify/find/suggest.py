"""``tofu suggest``: finds a description of an operator by running it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np

from tofu.analysis.described import load_described
from tofu.errors import ConfigError, GraphError
from tofu.lang.example_calls import Case, In
from tofu.mx.graphs.custom import gradient_call
from tofu.verify.calls.probes import values
from tofu.verify.find.splits import Way, find_ways, refusing
from tofu.verify.find.writing import Found, text_of
from tofu.verify.run.node import Array, NodeCall, quiet, run_node, sorted_attrs, visible_outputs

__all__ = ["parse_input", "suggestion"]

_CUSTOM = "Custom:"
_INPUT = re.compile(r"(\d+(?:,\d+)*)(?::(real|positive|int(\d+)))?")
_SAMPLES = 2
_LAST = 99  # sorts variables after those of the outputs' dimensions


def parse_input(text: str) -> In:
    """An input from "6,4", "6,4:positive" or "6:int10". Raises ConfigError."""
    match = _INPUT.fullmatch(text.replace(" ", ""))
    if match is None:
        raise ConfigError(
            f"--shape {text}: expected sizes, such as 6,4, and optionally a kind of values, "
            "6,4:positive or 6,4:int10"
        )
    shape = tuple(map(int, match.group(1).split(",")))
    if match.group(3):
        return In(shape, "int", int(match.group(3)))
    return In(shape, match.group(2) or "real")


def suggestion(
    operator: str, inputs: Sequence[In], attrs: Mapping[str, str], *, dtype: str, seed: int
) -> str:
    """The text of a Python file that describes an operator.

    Args:
        operator: its name; ``Custom:NAME`` if it is written in Python.
        inputs: the shapes and values to run it on; different sizes distinguish dimensions.
        attrs: its attributes.
        dtype: the type of the inputs.
        seed: seeds the values.

    Raises:
        ConfigError: MXNet does not run it this way, or gives different results each time.
    """
    load_described()
    with quiet():
        if not operator.startswith(_CUSTOM):
            return text_of([_found(operator, operator, inputs, attrs, dtype, seed)])
        call_attrs = {**attrs, "op_type": operator[len(_CUSTOM) :]}
        forward = _found(operator, "Custom", inputs, call_attrs, dtype, seed)
        try:
            call, reads, outputs = gradient_call(call_attrs)
        except GraphError as error:
            return text_of([forward], note=f"its gradient is not described: {error}")
        tensors = [In(shape) for shape in forward.outs] + list(inputs)
        tensors += [In(shape) for shape in forward.outs]
        read = [tensors[number] for number in reads]
        names = [_name(number, outputs, len(inputs)) for number in reads]
        gradient = _found(f"_backward_{operator}", "Custom", read, call, dtype, seed)
        return text_of([forward, dataclasses.replace(gradient, tensors=tuple(names))])


def _name(number: int, outputs: int, inputs: int) -> str:
    """The name of a tensor that a gradient reads."""
    if number < outputs:
        return f"ograd{number}"
    number -= outputs
    return f"x{number}" if number < inputs else f"out{number - inputs}"


def _found(
    name: str, op: str, inputs: Sequence[In], attrs: Mapping[str, str], dtype: str, seed: int
) -> Found:
    """The splits of one operator, found by running it."""
    case = Case(op, tuple(inputs), attrs, dtype=dtype)
    outputs = _outputs(case, name)

    def run(arrays: Sequence[Array], call_attrs: Mapping[str, str]) -> list[Array]:
        results = run_node(NodeCall(op, sorted_attrs(call_attrs), outputs), arrays)
        return [a for a in results if a is not None]

    samples = [
        [values(spec, np.random.default_rng([seed, k]), dtype) for spec in inputs]
        for k in range(_SAMPLES)
    ]
    wholes = _twice(run, samples[0], attrs, name)
    ways = find_ways(refusing(run), samples, attrs)
    case = dataclasses.replace(case, outputs=outputs)
    tensors = tuple(f"x{k}" for k in range(len(inputs)))
    return Found(name, case, tensors, tuple(a.shape for a in wholes), tuple(_usable(ways)))


def _outputs(case: Case, operator: str) -> int:
    try:
        return visible_outputs(case) - len(case.inputs)
    except mx.MXNetError as error:
        raise ConfigError(
            f"tofu suggest {operator}: MXNet has no such operator or refuses its attributes "
            f"({_last_line(error)}); for one written in Python, use Custom:NAME and --describe "
            "the file that registers it"
        ) from None


def _twice(run: Any, inputs: Sequence[Array], attrs: Mapping[str, str], name: str) -> list[Array]:
    try:
        first, second = run(inputs, attrs), run(inputs, attrs)
    except (mx.MXNetError, ValueError, TypeError) as error:
        shapes = ", ".join(str(a.shape) for a in inputs)
        raise ConfigError(
            f"tofu suggest {name}: it does not run on inputs of {shapes} ({_last_line(error)}); "
            "give other --shape, --attr or --dtype"
        ) from None
    if not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(first, second)):
        raise ConfigError(
            f"tofu suggest {name}: two runs differ, so parts cannot be compared; describe a "
            "random operator by hand, with @tofu.op(random=True)"
        )
    result: list[Array] = first
    return result


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _usable(ways: Sequence[Way]) -> list[Way]:
    """Ways that fit into one description: one for each dimension that is divided."""
    divided: set[tuple[int, int]] = set()
    usable: list[Way] = []
    reducer: Optional[str] = None
    for way in ways:
        cut = {(k, d) for k, d in enumerate(way.cuts) if d is not None}
        kinds = {o.kind for o in way.outcomes} - {"concatenate", "whole"}
        if cut & divided or len({*kinds, reducer} - {None}) > 1:
            continue
        divided |= cut
        reducer = next(iter(kinds), reducer)
        usable.append(way)
    return sorted(usable, key=lambda way: [_LAST if o.dim is None else o.dim for o in way.outcomes])

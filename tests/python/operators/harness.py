"""Runs a real MXNet operator, forward or backward, whole and by parts."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Optional
from unittest import mock

import mxnet as mx
import numpy as np

from tofu.analysis import row_for
from tofu.analysis.parts import Part, parts_of

Shape = tuple[int, ...]
# MXNet rewrites a graph when it binds it, in ways that lose control dependencies.
_AS_IT_IS = {"MXNET_ELIMINATE_COMMON_EXPR": "0", "MXNET_SUBGRAPH_BACKEND": "NONE"}


@dataclasses.dataclass(frozen=True)
class In:
    """An input: random reals, distinct and of both signs, or positive, or small integers."""

    shape: Shape
    kind: str = "real"  # real, positive, int, flag
    high: int = 0
    dtype: Optional[str] = None

    def array(self, rng: np.random.Generator, dtype: str) -> np.ndarray:
        size = int(np.prod(self.shape))
        if self.kind == "int":
            values = rng.integers(0, self.high, size).astype("float64")
        elif self.kind == "flag":
            values = rng.integers(0, 2, size).astype("float64")
        else:
            values = (rng.permutation(size) + rng.uniform(0.1, 0.9, size)) / size
            values = 0.1 + 0.8 * values
            if self.kind == "real":
                values *= rng.choice([-1.0, 1.0], size)
        return values.reshape(self.shape).astype(self.dtype or dtype)


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator to try.

    Attributes:
        op: its name.
        inputs: its own inputs, or for a backward operator those of its forward one.
        attrs: attributes, as MXNet's strings.
        forward: the forward operator of a backward one.
        reads: what the backward operator reads: g0 the gradient of output 0, i0 the
            forward operator's input 0, o0 its output 0, z1 zeros like its output 1.
        grads: the forward inputs that its outputs are the gradients of.
        like: forward inputs shaped like something that the backward operator reads.
        forward_attrs: where the forward operator's differ; in a part their "shape" is that
            of the gradient of output 0.
        hide: outputs that the operator refuses to compute.
        outputs: the number of outputs of the (forward) operator, hidden ones included.
        skip: outputs that are not compared (private workspaces, random values).
        expect: the variables that must be splittable, exactly; None: not checked.
        imperative: run by mx.nd, for what cannot be a node of a graph.
        shaped: for those, the inputs whose shapes the outputs have.
    """

    op: str
    inputs: tuple[In, ...]
    attrs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    forward: Optional[str] = None
    reads: tuple[str, ...] = ()
    grads: Optional[tuple[str, ...]] = None
    like: Mapping[int, str] = dataclasses.field(default_factory=dict)
    forward_attrs: Optional[Mapping[str, str]] = None
    hide: tuple[int, ...] = ()
    outputs: int = 1
    skip: tuple[int, ...] = ()
    expect: Optional[str] = None
    dtype: str = "float64"
    imperative: bool = False
    shaped: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        shapes = "_".join("x".join(map(str, i.shape)) or "0" for i in self.inputs)
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.op}-{shapes}-{attrs}"


def _node(op: str, name: str, attrs: Mapping[str, str], inputs: Sequence[int]) -> dict:
    return {"op": op, "name": name, "attrs": dict(attrs), "inputs": [[i, 0, 0] for i in inputs]}


def _variable(name: str) -> dict:
    return {"op": "null", "name": name, "inputs": []}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """The shape and type of an array, to be part of a cache's key."""

    shape: Shape
    dtype: str


@functools.lru_cache(maxsize=64)
def _bound(
    op: str,
    attrs: tuple[tuple[str, str], ...],
    inputs: tuple[Tensor, ...],
    outputs: int,
    hide: tuple[int, ...],
    forward: Optional[str],
    forward_attrs: tuple[tuple[str, str], ...],
    donor: tuple[Tensor, ...],
) -> tuple:
    """An executor for one node, with its forward operator beside it where it needs one."""
    nodes = [_variable(f"x{k}") for k in range(len(inputs))]
    arrays = {f"x{k}": mx.nd.zeros(t.shape, dtype=t.dtype) for k, t in enumerate(inputs)}
    control = []
    if forward is not None:
        first = len(nodes)
        nodes += [_variable(f"f{k}") for k in range(len(donor))]
        arrays.update({f"f{k}": mx.nd.zeros(t.shape, dtype=t.dtype) for k, t in enumerate(donor)})
        nodes.append(_node(forward, "forward", dict(forward_attrs), range(first, len(nodes))))
        control = [len(nodes) - 1]
    nodes.append(_node(op, "op", dict(attrs), range(len(inputs))))
    if control:
        nodes[-1]["control_deps"] = control
    last = len(nodes) - 1
    # The forward operator's output is asked for too: some do not run otherwise.
    heads = [[last, k, 0] for k in range(outputs) if k not in hide]
    heads += [[k, 0, 0] for k in control]
    graph = {
        "nodes": nodes,
        "arg_nodes": [k for k, n in enumerate(nodes) if n["op"] == "null"],
        "heads": heads,
        "attrs": {"mxnet_version": ["int", 10901]},
    }
    symbol = mx.sym.load_json(json.dumps(graph))
    auxiliary = set(symbol.list_auxiliary_states())
    named = {n: a for n, a in arrays.items() if n in set(symbol.list_arguments())}
    states = {n: a for n, a in arrays.items() if n in auxiliary}
    # MXNet's subgraph backend, active on cpu(0), refuses control dependencies.
    with mock.patch.dict(os.environ, _AS_IT_IS):
        executor = symbol.bind(mx.cpu(), named, grad_req="null", aux_states=states)
    return executor, arrays


def run_node(
    op: str,
    attrs: Mapping[str, str],
    inputs: Sequence[np.ndarray],
    outputs: int,
    hide: tuple[int, ...] = (),
    forward: Optional[str] = None,
    forward_attrs: Optional[Mapping[str, str]] = None,
    donor: Sequence[Tensor] = (),
) -> list[Optional[np.ndarray]]:
    """The outputs of one node; None for those that are hidden."""
    key = tuple(Tensor(a.shape, str(a.dtype)) for a in inputs)
    more = tuple(sorted((forward_attrs or {}).items()))
    own = tuple(sorted(attrs.items()))
    executor, arrays = _bound(op, own, key, outputs, hide, forward, more, tuple(donor))
    for k, array in enumerate(inputs):
        arrays[f"x{k}"][:] = mx.nd.array(array, dtype=array.dtype)
    results = iter(executor.forward(is_train=True))
    return [None if k in hide else next(results).asnumpy() for k in range(outputs)]


def run_imperatively(case: Case, attrs: Mapping[str, str], inputs: Sequence[np.ndarray]) -> list:
    function = getattr(mx.nd, case.op, None) or getattr(mx.nd._internal, case.op)
    arrays = [mx.nd.array(a, dtype=a.dtype) for a in inputs]
    out = [mx.nd.zeros(arrays[k].shape, dtype=arrays[k].dtype) for k in case.shaped]
    result = function(*arrays, out=out or None, **attrs)
    return [o.asnumpy() for o in (result if isinstance(result, list) else [result])]


class Run:
    """A case with its inputs, run whole."""

    def __init__(self, case: Case, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.case = case
        arrays = [i.array(rng, case.dtype) for i in case.inputs]
        self.forward_inputs = [Tensor(a.shape, str(a.dtype)) for a in arrays]
        if case.forward is None:
            self.inputs = arrays
        else:
            self.inputs = self._backward_inputs(arrays, rng)
        self.outputs = self.run(self.inputs, case.attrs, self.forward_inputs)
        self.in_shapes = [a.shape for a in self.inputs]
        self.out_shapes = [
            self.forward_inputs[int(self.grads[k][1:])].shape if a is None else a.shape
            for k, a in enumerate(self.outputs)
        ]
        self.row = row_for(case.op, case.attrs, self.in_shapes, self.out_shapes)

    def _backward_inputs(self, arrays: list, rng: np.random.Generator) -> list[np.ndarray]:
        case = self.case
        outs = run_node(case.forward, self._forward_attrs(case.attrs), arrays, case.outputs)
        result = []
        for read in case.reads:
            kind, number = read[0], int(read[1:])
            if kind == "i":
                result.append(arrays[number])
            elif kind == "o":
                result.append(outs[number])
            elif kind == "z":
                result.append(np.zeros_like(outs[number]))
            else:
                own = In(outs[number].shape).array(rng, str(outs[number].dtype))
                result.append(own)
        return result

    @property
    def grads(self) -> tuple[str, ...]:
        if self.case.grads is not None:
            return self.case.grads
        return tuple(f"i{k}" for k in range(len(self.case.inputs)))

    def _forward_attrs(
        self, attrs: Mapping[str, str], shape: Optional[Shape] = None
    ) -> Mapping[str, str]:
        if self.case.forward_attrs is None:
            return attrs
        own = dict(self.case.forward_attrs)
        if shape is not None and "shape" in own:
            own["shape"] = str(shape)
        return own

    def run(
        self, inputs: Sequence[np.ndarray], attrs: Mapping[str, str], donor: Sequence[Tensor]
    ) -> list:
        case = self.case
        if case.imperative:
            return run_imperatively(case, attrs, inputs)
        if case.forward is None:
            return run_node(case.op, attrs, inputs, case.outputs)
        more = self._forward_attrs(attrs, inputs[0].shape)
        count = len(self.grads)
        return run_node(case.op, attrs, inputs, count, case.hide, case.forward, more, donor)

    def extent(self, variable: int) -> int:
        extent = self.row["vars"][variable]["extent"]
        if isinstance(extent, int):
            return extent
        kind, slot, dim = extent
        return (self.in_shapes if kind == "input" else self.out_shapes)[slot][dim]

    def names(self, numbers: Sequence[int]) -> list[str]:
        return [self.row["vars"][n]["name"] for n in numbers]

    # --- by parts -------------------------------------------------------------------

    def check(self, splits: Sequence[tuple[int, int]]) -> None:
        """Run by parts and compare with the whole."""
        parts = parts_of(self.row, self.case.attrs, self.in_shapes, self.out_shapes, splits)
        results = [self._run_part(part) for part in parts]
        for number, whole in enumerate(self.outputs):
            if whole is None:
                continue
            if number in self.case.skip:
                for part, result in zip(parts, results):
                    assert result[number].shape == _sizes(part.outputs[number])
                continue
            assembled = self._assemble(number, parts, results, splits)
            tolerance = 1e-9 if whole.dtype == np.float64 else 2e-4
            np.testing.assert_allclose(
                assembled,
                whole.astype("float64"),
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"{self.case.name}: output {number} split by {splits} of {self.row}",
            )

    def _run_part(self, part: Part) -> list[np.ndarray]:
        inputs = [
            _region(array, box, fill, zeros)
            for array, box, fill, zeros in zip(self.inputs, part.inputs, part.fills, part.zeros)
        ]
        donor = list(self.forward_inputs)
        for k, read in enumerate(self.case.reads):
            if read[0] == "i":
                number = int(read[1:])
                donor[number] = Tensor(inputs[k].shape, donor[number].dtype)
        for k, grad in enumerate(self.grads if self.case.forward else ()):
            number = int(grad[1:])
            donor[number] = Tensor(_sizes(part.outputs[k]), donor[number].dtype)
        for number, read in self.case.like.items():
            shape = inputs[self.case.reads.index(read)].shape
            donor[number] = Tensor(shape, donor[number].dtype)
        results = self.run(inputs, part.attributes, donor)
        for k, result in enumerate(results):
            if result is None:
                continue
            assert result.shape == _sizes(part.outputs[k]), (
                f"{self.case.name}: part {part.digits} makes {result.shape} of output {k}, "
                f"expected {_sizes(part.outputs[k])} from {self.row}"
            )
        return results

    def _assemble(
        self, number: int, parts: list[Part], results: list, splits: Sequence[tuple[int, int]]
    ) -> np.ndarray:
        reduce = {int(v): kind for v, kind in self.row["outputs"][number]["reduce"].items()}
        steps = [k for k, (var, _) in enumerate(splits) if var in reduce]
        whole = self.outputs[number]
        terms: dict[tuple, np.ndarray] = {}
        for part, result in zip(parts, results):
            digits = tuple(part.digits[k] for k in steps)
            term = terms.setdefault(digits, np.full(whole.shape, np.nan, "float64"))
            place = tuple(slice(*d) for d in part.outputs[number])
            done = ~np.isnan(term[place])
            np.testing.assert_array_equal(term[place][done], result[number][done])
            term[place] = result[number]
        kind = reduce[splits[steps[0]][0]] if steps else "sum"
        join = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}[kind]
        return functools.reduce(join, terms.values())


def _sizes(box: Sequence[tuple[int, int]]) -> Shape:
    return tuple(end - begin for begin, end in box)


def _region(
    array: np.ndarray, box: Sequence[tuple[int, int]], fill: Optional[float], zeros: bool
) -> np.ndarray:
    inside = tuple(
        slice(max(begin, 0), max(min(end, size), 0)) for (begin, end), size in zip(box, array.shape)
    )
    if zeros:
        return np.zeros(_sizes(box), array.dtype)
    if fill is None:
        return np.ascontiguousarray(array[inside])
    result = np.full(_sizes(box), fill, array.dtype)
    place = tuple(
        slice(s.start - begin, s.start - begin + max(s.stop - s.start, 0))
        for s, (begin, _) in zip(inside, box)
    )
    result[place] = array[inside]
    return result

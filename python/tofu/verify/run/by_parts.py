"""Runs one call of a real operator, whole and in parts.

The parts follow the operator's row of the strategy table exactly: the regions read, the
attributes rewritten, the zeros and fills. Concatenated or reduced, they must equal the whole.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from tofu.analysis import row_for
from tofu.analysis.apply_row import Part, Split, extent_of, parts_of
from tofu.analysis.table import described_name, unweighted
from tofu.analysis.terms import linear_inputs
from tofu.boxes import Box
from tofu.errors import TdlError
from tofu.lang import lookup
from tofu.lang.example_calls import Case, In, Shape
from tofu.verify.calls.probes import values
from tofu.verify.run.node import (
    Array,
    Forward,
    NodeCall,
    Tensor,
    run_imperatively,
    run_node,
    sorted_attrs,
)

__all__ = ["MismatchError", "Run", "check_distribution", "check_equal"]

# Largest rounding difference of sums taken in parts, by type.
_TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2}
_JOIN: dict[str, Any] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "logsumexp": np.logaddexp,
}
# Two samples of one distribution exceed this about once in a million times.
_KOLMOGOROV = 2.7


class MismatchError(Exception):
    """The parts of an operator do not equal the whole."""


class Run:
    """A case with its inputs, run whole."""

    def __init__(self, case: Case, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.case = case
        arrays = [values(i, rng, case.dtype) for i in case.inputs]
        self.forward_inputs = [Tensor(a.shape, str(a.dtype)) for a in arrays]
        self.inputs = arrays if case.forward is None else self._backward_inputs(arrays, rng)
        self.outputs = self.run(self.inputs, case.attrs, self.forward_inputs)
        self.in_shapes = [a.shape for a in self.inputs]
        self.out_shapes = [
            self.forward_inputs[int(self.grads[k][1:])].shape if a is None else a.shape
            for k, a in enumerate(self.outputs)
        ]
        row = row_for(case.op, case.attrs, self.in_shapes, self.out_shapes)
        if row is None:
            raise TdlError(f"{case.name} is not described: add a description, or remove the case")
        self.row = unweighted(row)
        name, attributes = described_name(case.op, case.attrs)
        description = lookup(name)
        self.random = description is not None and description.random
        self._trace = (
            None
            if description is None
            else functools.partial(description.trace, self.in_shapes, self.out_shapes, attributes)
        )

    def _backward_inputs(self, arrays: list[Array], rng: np.random.Generator) -> list[Array]:
        case = self.case
        assert case.forward is not None
        forward_attrs = sorted_attrs(self._forward_attrs(case.attrs))
        call = NodeCall(case.forward, forward_attrs, case.outputs, numpy=case.numpy)
        outs = run_node(call, arrays)
        result = []
        for read in case.reads:
            kind, number = read[0], int(read[1:])
            if kind == "i":
                result.append(arrays[number])
                continue
            out = outs[number]
            assert out is not None
            if kind == "o":
                result.append(out)
            elif kind == "z":
                result.append(np.zeros_like(out))
            else:
                result.append(values(In(out.shape), rng, str(out.dtype)))
        return result

    @property
    def grads(self) -> tuple[str, ...]:
        """The forward inputs that the outputs are the gradients of."""
        if self.case.grads is not None:
            return self.case.grads
        return tuple(f"i{k}" for k in range(len(self.case.inputs)))

    def _forward_attrs(
        self, attrs: Mapping[str, str], shape: Optional[Shape] = None
    ) -> Mapping[str, str]:
        if self.case.forward_attrs is None:
            return attrs
        forward_attrs = dict(self.case.forward_attrs)
        if shape is not None and "shape" in forward_attrs:
            forward_attrs["shape"] = str(shape)
        return forward_attrs

    def run(
        self, inputs: Sequence[Array], attrs: Mapping[str, str], donor: Sequence[Tensor]
    ) -> list[Any]:
        """Runs the operator and returns its outputs."""
        case = self.case
        if case.imperative or case.in_place:
            gradients = [donor[int(g[1:])] for g in self.grads] if case.forward else []
            return run_imperatively(case, attrs, inputs, gradients)
        call_attrs = sorted_attrs(attrs)
        if case.forward is None:
            return run_node(NodeCall(case.op, call_attrs, case.outputs, numpy=case.numpy), inputs)
        more = self._forward_attrs(attrs, inputs[0].shape if inputs else None)
        forward = Forward(case.forward, sorted_attrs(more), tuple(donor))
        seen = {int(r[1:]): x for r, x in zip(case.reads, inputs) if case.live and r[0] == "i"}
        call = NodeCall(case.op, call_attrs, len(self.grads), case.hide, forward, case.numpy)
        return run_node(call, inputs, seen)

    def extent(self, variable: int) -> int:
        """The extent of a variable of the row."""
        return extent_of(self.row["vars"][variable]["extent"], self.in_shapes, self.out_shapes)

    def names(self, numbers: Sequence[int]) -> list[str]:
        """The names of variables of the row."""
        return [self.row["vars"][n]["name"] for n in numbers]

    # --- by parts -------------------------------------------------------------------

    def check(self, splits: Sequence[Split]) -> None:
        """Run in parts and compare with the whole. Raises MismatchError if they differ."""
        parts = parts_of(self.row, self.case.attrs, self.in_shapes, self.out_shapes, splits)
        results = [self._run_part(part) for part in parts]
        for number, whole in enumerate(self.outputs):
            if whole is None or number in self.case.skip:
                continue
            assembled = self._assemble(number, parts, results, splits)
            where = f"output {number} of {self.case.name}, split by {self._split_text(splits)}"
            if self.random:
                check_distribution(assembled, whole, where)
            else:
                check_equal(assembled, whole, where)

    def linear_inputs(self) -> list[frozenset[int]]:
        """The sets of inputs whose terms the operator passes through; none of a random one.

        Only of numbers whose terms add up to them: integers may wrap round.
        """
        if self.random or self._trace is None:
            return []
        sets = linear_inputs(self._trace())
        floats = {k for k, array in enumerate(self.inputs) if array.dtype.kind == "f"}
        return sorted((s for s in sets if s <= floats), key=sorted)

    def check_terms(self, slots: Collection[int]) -> None:
        """Run on two terms of these inputs, and compare the sum of the outputs with the whole.

        The second term of the last input is zeros, as of one that is no sum. Raises MismatchError
        if they differ.
        """
        terms = [list(self.inputs), list(self.inputs)]
        for slot in slots:
            whole = self.inputs[slot]
            # Of any sign: terms of the sum's sign would pass through a ReLU, too.
            signs = np.random.default_rng(slot).uniform(-1, 1, whole.shape)
            part = (signs * (1 + np.abs(whole))).astype(whole.dtype)
            terms[0][slot] = whole if slot == max(slots) and len(slots) > 1 else part
            terms[1][slot] = whole - terms[0][slot]
        results = [self.run(term, self.case.attrs, self.forward_inputs) for term in terms]
        for number, (whole, *of_terms) in enumerate(zip(self.outputs, *results)):
            if whole is None or number in self.case.skip:
                continue
            where = f"output {number} of {self.case.name}, from terms of inputs {sorted(slots)}"
            total: Array = of_terms[0].astype("float64") + of_terms[1].astype("float64")
            check_equal(total.astype(whole.dtype), whole, where)

    def _split_text(self, splits: Sequence[Split]) -> str:
        return ", ".join(f"{self.names([var])[0]} in {count}" for var, count in splits) or "nothing"

    def _run_part(self, part: Part) -> list[Any]:
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
            if k in self.case.hide and grad in self.case.reads:
                continue  # the attribute has the shape of an input
            number = int(grad[1:])
            donor[number] = Tensor(part.outputs[k].shape, donor[number].dtype)
        for number, read in self.case.like.items():
            shape = inputs[self.case.reads.index(read)].shape
            donor[number] = Tensor(shape, donor[number].dtype)
        results = self.run(inputs, part.attributes, donor)
        for k, result in enumerate(results):
            if result is not None and result.shape != part.outputs[k].shape:
                raise MismatchError(
                    f"{self.case.name}: part {part.digits}, output {k}: found {result.shape}, "
                    f"expected {part.outputs[k].shape}"
                )
        return results

    def _assemble(
        self,
        number: int,
        parts: list[Part],
        results: list[list[Any]],
        splits: Sequence[Split],
    ) -> Array:
        reduce = {int(v): kind for v, kind in self.row["outputs"][number]["reduce"].items()}
        steps = [k for k, (var, _) in enumerate(splits) if var in reduce]
        whole = self.outputs[number]
        exact = "float64" if whole.dtype.kind == "f" else "int64"
        terms: dict[tuple[int, ...], tuple[Array, Array]] = {}
        for part, result in zip(parts, results):
            digits = tuple(part.digits[k] for k in steps)
            empty = (np.zeros(whole.shape, exact), np.zeros(whole.shape, "bool"))
            term, done = terms.setdefault(digits, empty)
            place = tuple(slice(*d) for d in part.outputs[number])
            value, again = result[number].astype(exact), done[place]
            if not self.random and not _close(term[place][again], value[again], whole.dtype):
                raise MismatchError(f"{self.case.name}: parts disagree on output {number}")
            term[place], done[place] = value, True
        if not all(done.all() for _, done in terms.values()):
            raise MismatchError(f"{self.case.name}: parts leave out some of output {number}")
        kind = reduce[splits[steps[0]][0]] if steps else "sum"
        joined: Array = functools.reduce(_JOIN[kind], [term for term, _ in terms.values()])
        return joined.astype(whole.dtype)


def _close(assembled: Array, whole: Array, dtype: Any) -> bool:
    """Whether two results are equal up to rounding, relative to the largest term."""
    if dtype.kind != "f":
        return np.array_equal(assembled, whole)
    finite = np.abs(whole[np.isfinite(whole)])
    tolerance = _TOLERANCE[str(dtype)]
    slack = tolerance * (1 + float(finite.max(initial=0)))
    return np.allclose(assembled, whole, rtol=tolerance, atol=slack, equal_nan=True)


def check_equal(assembled: Array, whole: Array, where: str) -> None:
    """Raise MismatchError unless two results are equal up to rounding."""
    result, expected = (
        a.astype("float64") if a.dtype.kind == "f" else a for a in (assembled, whole)
    )
    if _close(result, expected, whole.dtype):
        return
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    raise MismatchError(f"{where}: differs by up to {np.nanmax(difference, initial=0):.3g}")


def check_distribution(assembled: Array, whole: Array, where: str) -> None:
    """Raise MismatchError if the two-sample Kolmogorov-Smirnov test of all elements fails."""
    a, b = np.sort(assembled, axis=None), np.sort(whole.astype("float64"), axis=None)
    if not a.size:
        return
    at = np.concatenate([a, b])
    distance = np.abs(
        np.searchsorted(a, at, "right") / a.size - np.searchsorted(b, at, "right") / b.size
    ).max()
    allowed = _KOLMOGOROV * np.sqrt(2 / a.size)
    if distance > allowed:
        raise MismatchError(f"{where}: distributions {distance:.2f} apart, allowed {allowed:.2f}")


def _region(array: Array, box: Box, fill: Optional[float], zeros: bool) -> Array:
    inside = tuple(
        slice(max(begin, 0), max(min(end, size), 0)) for (begin, end), size in zip(box, array.shape)
    )
    if zeros:
        return np.zeros(box.shape, array.dtype)
    if fill is None:
        return np.array(array[inside], order="C")  # a copy, even with 0 dimensions
    result = np.full(box.shape, fill, array.dtype)
    place = tuple(
        slice(s.start - begin, s.start - begin + max(s.stop - s.start, 0))
        for s, (begin, _) in zip(inside, box)
    )
    result[place] = array[inside]
    return result

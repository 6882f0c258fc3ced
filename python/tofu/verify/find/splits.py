"""Finds the splits of an operator by running it, without a description.

Dimensions of equal size are divided together, in one input or in all that have one. The
operator runs on the parts, and its outputs are combined in every possible way and compared
with the whole's: concatenated, summed, maximum, minimum, multiplied. To find a window that
moves along a dimension, the first part gets more and more of that dimension.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import mxnet as mx
import numpy as np

from tofu.verify.run.node import Array

__all__ = ["Call", "Outcome", "Way", "find_ways", "refusing"]

# Runs the operator; None if it refuses.
Call = Callable[[Sequence[Array], Mapping[str, str]], Optional[list[Array]]]
# Inputs, and the outputs for them.
Sample = tuple[Sequence[Array], list[Array]]
_REDUCERS: dict[str, Any] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}
_TOLERANCE = {"float64": 1e-7, "float32": 1e-4, "float16": 2e-2}
_MAX_CHOICES = 8  # of dimensions of equal size in one input
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


@dataclass(frozen=True)
class Outcome:
    """The way parts form an output: "concatenate" along `dim`, a reducer, or "whole"."""

    kind: str
    dim: Optional[int] = None


@dataclass(frozen=True)
class Way:
    """A split that reproduces the operator's outputs.

    Attributes:
        cuts: by input, the dimension that is divided; None: a part reads the whole.
        outcomes: how each output combines.
        zeroed: inputs that are zeros in every part except the first.
        window: the number of elements that a part reads beyond its end.
        attributes: names of attributes in which the part's size replaces the dimension's.
    """

    cuts: tuple[Optional[int], ...]
    outcomes: tuple[Outcome, ...]
    zeroed: tuple[int, ...] = ()
    window: int = 0
    attributes: tuple[str, ...] = ()

    def text(self) -> str:
        """Describes the split in words, with dimensions as numbers."""
        cut = ", ".join(
            f"dimension {d} of input {k}" for k, d in enumerate(self.cuts) if d is not None
        )
        outcomes = ", ".join(
            o.kind + ("" if o.dim is None else f" along {o.dim}") for o in self.outcomes
        )
        halo = f", reading {self.window} further" if self.window else ""
        return f"{cut}{halo}: {outcomes}"


def find_ways(
    call: Call,
    samples: Sequence[Sequence[Array]],
    attrs: Mapping[str, str],
    *,
    together: bool = False,
) -> list[Way]:
    """The splits that work for all samples of values.

    Args:
        call: runs the operator.
        samples: inputs, always of the same shapes; a split must work for each.
        attrs: the operator's attributes.
        together: always divide all inputs that have a dimension of the size, never only one;
            for operators that do not check whether their inputs match.
    """
    wholes = [call(inputs, attrs) for inputs in samples]
    pairs = [(i, w) for i, w in zip(samples, wholes) if w is not None]
    if len(pairs) < len(samples):
        return []
    largest: list[Way] = []
    for size in sorted({s for array in samples[0] for s in array.shape if s > 1}):
        choices = list(_cuts(samples[0], size, alone=not together))
        ways = [w for cuts in choices for w in _try(call, pairs, attrs, cuts)]
        if not ways:
            ways = [w for cuts in choices for w in _windows(call, pairs, attrs, cuts)]
        largest += [w for w in ways if not any(_within(w, other) for other in ways)]
    return largest


def _within(way: Way, other: Way) -> bool:
    """Whether `other` divides the same inputs as `way` and more."""
    return (
        way != other
        and way.outcomes == other.outcomes
        and all(a is None or a == b for a, b in zip(way.cuts, other.cuts))
    )


def _cuts(
    inputs: Sequence[Array], size: int, *, alone: bool
) -> Iterator[tuple[Optional[int], ...]]:
    """The dimension of each input to divide: in all inputs that have one of the size, or in one."""
    dims = [[d for d, s in enumerate(a.shape) if s == size] for a in inputs]
    choices: list[Sequence[Optional[int]]] = [input_dims or (None,) for input_dims in dims]
    together = itertools.product(*choices)
    yield from itertools.islice(together, _MAX_CHOICES)
    if alone and sum(map(bool, dims)) > 1:
        for slot, input_dims in enumerate(dims):
            for dim in input_dims:
                yield tuple(dim if k == slot else None for k in range(len(inputs)))


def _try(
    call: Call,
    samples: Sequence[Sample],
    attrs: Mapping[str, str],
    cuts: tuple[Optional[int], ...],
) -> Iterator[Way]:
    """The first way that works with these cuts, if any."""
    size = next(a.shape[d] for a, d in zip(samples[0][0], cuts) if d is not None)
    whole = [k for k, d in enumerate(cuts) if d is None]
    for zeroed in ((), *((k,) for k in whole)):
        for changed in _changed(attrs, size):
            outcomes = None
            for sample in samples:
                for first in {size - size // 2, max(size // 3, 1)}:
                    sizes = (first, size - first)
                    now = _outcomes(call, sample, attrs, cuts, sizes, zeroed, changed)
                    outcomes = now if outcomes in (None, now) else ()
                    if not outcomes:
                        break
                if not outcomes:
                    break
            if outcomes:
                yield Way(cuts, outcomes, zeroed, 0, changed)
                return


def _changed(attrs: Mapping[str, str], size: int) -> list[tuple[str, ...]]:
    """Attributes that may have to change in a part: none, or those with the size."""
    naming = [n for n, text in attrs.items() if str(size) in _NUMBER.findall(text)]
    return [(), *((n,) for n in naming), *([tuple(naming)] if len(naming) > 1 else [])]


def _outcomes(
    call: Call,
    sample: Sample,
    attrs: Mapping[str, str],
    cuts: Sequence[Optional[int]],
    sizes: tuple[int, int],
    zeroed: Sequence[int],
    changed: Sequence[str],
) -> tuple[Outcome, ...]:
    """Outcomes that turn two parts into each output; () if an output has none."""
    inputs, outputs = sample
    results = []
    total = sum(sizes)
    for begin, end in ((0, sizes[0]), (sizes[0], total)):
        part = [
            a if d is None else np.ascontiguousarray(a.take(range(begin, end), axis=d))
            for a, d in zip(inputs, cuts)
        ]
        if begin:
            part = [np.zeros_like(a) if k in zeroed else a for k, a in enumerate(part)]
        part_attrs = {
            n: _resized(t, total, end - begin) if n in changed else t for n, t in attrs.items()
        }
        result = call(part, part_attrs)
        if result is None:
            return ()
        results.append(result)
    if zeroed and all(map(_equal, results[0], outputs)):
        return ()  # the first part equals the whole: the operator does not read the cut dimension
    outcomes = tuple(_outcome(w, a, b) for w, a, b in zip(outputs, *results))
    if None in outcomes or all(o is not None and o.kind == "whole" for o in outcomes):
        return ()
    return tuple(o for o in outcomes if o is not None)


def _resized(text: str, size: int, part: int) -> str:
    return _NUMBER.sub(lambda m: str(part) if int(m.group()) == size else m.group(), text)


def _outcome(whole: Array, first: Array, second: Array) -> Optional[Outcome]:
    if first.ndim != whole.ndim or second.ndim != whole.ndim:
        return None
    if first.shape == second.shape == whole.shape:
        if _equal(first, whole) and _equal(second, whole):
            return Outcome("whole")
        for kind, join in _REDUCERS.items():
            if _equal(join(first, second), whole):
                return Outcome(kind)
    for dim in range(whole.ndim):
        a, b = first.shape, second.shape
        rest = [(*s[:dim], *s[dim + 1 :]) for s in (a, b, whole.shape)]
        fits = rest[0] == rest[1] == rest[2] and a[dim] + b[dim] == whole.shape[dim]
        if fits and a[dim] and b[dim] and _equal(np.concatenate([first, second], dim), whole):
            return Outcome("concatenate", dim)
    return None


def _equal(result: Array, expected: Array) -> bool:
    if result.shape != expected.shape:
        return False
    if expected.dtype.kind != "f":
        return np.array_equal(result, expected)
    tolerance = _TOLERANCE[str(expected.dtype)]
    return np.allclose(result, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


# --- windows ---------------------------------------------------------------------------


def _windows(
    call: Call,
    samples: Sequence[Sample],
    attrs: Mapping[str, str],
    cuts: tuple[Optional[int], ...],
) -> Iterator[Way]:
    """Finds windows along the dimension: part of an output reads a little more input."""
    inputs, outputs = samples[0]
    size = next(a.shape[d] for a, d in zip(inputs, cuts) if d is not None)
    for dim in range(outputs[0].ndim):
        length = outputs[0].shape[dim]
        reach = size - length
        if not 0 < reach < size - 1 or length < 2:
            continue
        half = length - length // 2
        spans = ((0, half), (half, length))
        if all(
            _is_span(call, sample, attrs, cuts, dim, (begin, end), (begin, end + reach))
            for sample in samples
            for begin, end in spans
        ):
            yield Way(cuts, tuple(Outcome("concatenate", dim) for _ in outputs), (), reach)
            return


def _is_span(
    call: Call,
    sample: Sample,
    attrs: Mapping[str, str],
    cuts: Sequence[Optional[int]],
    dim: int,
    written: tuple[int, int],
    read: tuple[int, int],
) -> bool:
    """Whether a range of the inputs yields a range of all outputs."""
    inputs, outputs = sample
    part = [
        a if d is None else np.ascontiguousarray(a.take(range(*read), axis=d))
        for a, d in zip(inputs, cuts)
    ]
    results = call(part, attrs)
    if results is None:
        return False
    return all(
        w.ndim > dim and _equal(r, w.take(range(*written), axis=dim))
        for r, w in zip(results, outputs)
    )


def refusing(run: Callable[[Sequence[Array], Mapping[str, str]], list[Array]]) -> Call:
    """Wraps the operator in a call that returns None if MXNet raises an error."""

    def call(inputs: Sequence[Array], attrs: Mapping[str, str]) -> Optional[list[Array]]:
        try:
            return run(inputs, attrs)
        except (mx.MXNetError, ValueError, TypeError, IndexError):
            return None

    return call

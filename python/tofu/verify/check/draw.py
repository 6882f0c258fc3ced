"""Draws other shapes for a case.

An operator's shapes depend on each other and on its attributes in ways that only the
operator knows. So sizes are replaced consistently, such as every 6 by a 7, and MXNet's shape
inference decides whether the result is a valid call. Replacements are tried for one
dimension at a time, then everywhere, then also in the attributes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Optional

import mxnet as mx
import numpy as np

from tofu.analysis import row_for
from tofu.errors import TofuError
from tofu.lang import lookup
from tofu.lang.example_calls import Case, In
from tofu.verify.run.node import inferred, visible_outputs

__all__ = ["drawn", "with_dtype"]

_SIMPLE = (2, 3, 4, 5, 6, 7)
_SIZES = (1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 9, 10)
_ATTEMPTS = 6
_WHOLE_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
# The properties that two dimensions of equal size must share to stay equal.
_TIES: tuple[Callable[[int, int], int], ...] = (
    lambda dim, rank: dim,
    lambda dim, rank: dim - rank,
    lambda dim, rank: 0,
)


def drawn(case: Case, rng: np.random.Generator, sizes: Sequence[int] = _SIZES) -> Optional[Case]:
    """The case with other sizes; None if no attempt is a valid call."""
    if case.fixed:
        return None
    for attempt in range(_ATTEMPTS):
        for candidate in _candidates(case, rng, sizes if attempt < 3 else _SIMPLE):
            if candidate is not None and _is_call(candidate, case):
                return candidate
    return None


def _is_call(case: Case, original: Case) -> bool:
    """Whether MXNet infers shapes on which the description, if any, is defined.

    The description rules out calls on which MXNet crashes the process.
    """
    if case.imperative:
        return True
    try:
        if visible_outputs(case) != visible_outputs(original):
            return False
    except mx.MXNetError:
        return False
    shapes = inferred(case)
    if shapes is None:
        return False
    op, attrs = case.op, case.attrs
    if case.forward is not None:
        op, attrs = case.forward, case.forward_attrs or attrs
    if lookup(op) is None:
        return True
    try:
        return row_for(op, attrs, *shapes) is not None
    except TofuError:
        return False


def with_dtype(case: Case, dtype: str) -> Case:
    """The case with another type for inputs that have none, and in its attributes."""
    attrs = {k: dtype if v == case.dtype else v for k, v in case.attrs.items()}
    forward = case.forward_attrs
    if forward is not None:
        forward = {k: dtype if v == case.dtype else v for k, v in forward.items()}
    return dataclasses.replace(case, dtype=dtype, attrs=attrs, forward_attrs=forward)


def _candidates(
    case: Case, rng: np.random.Generator, sizes: Sequence[int]
) -> Iterator[Optional[Case]]:
    for tie in _TIES:
        new: dict[tuple[int, int], int] = {}
        for size, dim, rank in _dimensions(case):
            key = (size, tie(dim, rank))
            if size > 1 and key not in new:
                new[key] = int(rng.choice(sizes))
        if case.inputs:
            yield _renamed(case, _renaming(new, tie))
    by_size = {size: value for (size, _), value in new.items()}
    yield _renamed(case, lambda size, dim, rank: by_size.get(size, size), by_size)


def _dimensions(case: Case) -> Iterator[tuple[int, int, int]]:
    """Size, number and rank of all dimensions, or of the attribute's if there is no input."""
    shapes = [i.shape for i in case.inputs]
    if not shapes:
        shapes = [tuple(map(int, _WHOLE_NUMBER.findall(case.attrs.get("shape", ""))))]
    for shape in shapes:
        for dim, size in enumerate(shape):
            yield size, dim, len(shape)


def _renaming(
    new: Mapping[tuple[int, int], int], tie: Callable[[int, int], int]
) -> Callable[[int, int, int], int]:
    return lambda size, dim, rank: new.get((size, tie(dim, rank)), size)


def _renamed(
    case: Case,
    rename: Callable[[int, int, int], int],
    in_attrs: Optional[Mapping[int, int]] = None,
) -> Optional[Case]:
    inputs = []
    for spec in case.inputs:
        rank = len(spec.shape)
        shape = tuple(rename(size, dim, rank) for dim, size in enumerate(spec.shape))
        inputs.append(dataclasses.replace(spec, shape=shape))
    inputs = [dataclasses.replace(i, high=_high(i, case, inputs)) for i in inputs]
    if any(i.kind in ("int", "count") and i.high < 1 for i in inputs):
        return None
    attrs, forward = case.attrs, case.forward_attrs
    if in_attrs is not None:
        attrs = _rewritten(attrs, in_attrs)
        forward = None if forward is None else _rewritten(forward, in_attrs)
    return dataclasses.replace(
        case, inputs=tuple(inputs), attrs=attrs, forward_attrs=forward, expect=None
    )


def _high(spec: In, case: Case, renamed: list[In]) -> int:
    """The bound of integers: the size of the dimension that they index, if any."""
    indexed = [
        new
        for old, now in zip(case.inputs, renamed)
        for size, new in zip(old.shape, now.shape)
        if size == spec.high
    ]
    return min(indexed, default=spec.high)


def _rewritten(attrs: Mapping[str, str], sizes: Mapping[int, int]) -> dict[str, str]:
    def number(match: re.Match[str]) -> str:
        value = int(match.group())
        return str(sizes.get(value, value))

    return {name: _WHOLE_NUMBER.sub(number, text) for name, text in attrs.items()}

"""Helpers for descriptions that depend on ranks and shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

from tofu.errors import InconclusiveError
from tofu.lang import Opaque, Over, Reindex, Sum

Axes = Union[None, int, Sequence[int]]
# Meanings of the index variables of convolutions.
CHANNELS = {"b": "batch", "ci": "input channels", "co": "output channels", "g": "groups"}


def axis_of(axis: int, ndim: int) -> int:
    """A non-negative axis.

    Raises:
        InconclusiveError: the tensor has no dimensions.
    """
    if ndim == 0:
        raise InconclusiveError("an axis of a tensor without dimensions")
    return axis + ndim if axis < 0 else axis


def axes_of(axis: Axes, ndim: int, *, exclude: bool = False) -> tuple[int, ...]:
    """Non-negative axes, sorted; None and () are all of them."""
    if axis is None or axis == () or ndim == 0:
        chosen = set(range(ndim))
        return tuple(sorted(chosen))
    axes = (axis,) if isinstance(axis, int) else axis
    chosen = {axis_of(a, ndim) for a in axes}
    if exclude:
        chosen = set(range(ndim)) - chosen
    return tuple(sorted(chosen))


def without(index: Sequence[Any], axes: Union[int, Iterable[int]]) -> tuple[Any, ...]:
    """The index without some of its dimensions."""
    dropped = {axes} if isinstance(axes, int) else set(axes)
    return tuple(v for d, v in enumerate(index) if d not in dropped)


def at(index: Sequence[Any], axes: Union[int, Iterable[int]], value: Any) -> tuple[Any, ...]:
    """The index with one value at some of its dimensions."""
    replaced = {axes} if isinstance(axes, int) else set(axes)
    return tuple(value if d in replaced else v for d, v in enumerate(index))


def inserted(index: Sequence[Any], axis: int, value: Any) -> tuple[Any, ...]:
    """The index with one more dimension."""
    return (*index[:axis], value, *index[axis:])


def whole(index: Sequence[Any], axes: Union[int, Iterable[int]]) -> tuple[Any, ...]:
    """The index with some dimensions whole."""
    return at(index, axes, slice(None))


def names(ndim: int, prefix: str = "i") -> list[str]:
    """Variables i0, i1, ..., as in ``lambda *i``."""
    return [f"{prefix}{d}" for d in range(ndim)]


def broadcast(tensor: Any, index: Sequence[Any], ones: Sequence[bool]) -> Any:
    """The tensor's element that broadcasting puts at `index`; `ones`: dimensions of size 1."""
    skipped = len(ones) - tensor.ndim
    return tensor[
        tuple(
            0 if is_one and not ones[d + skipped] else index[d + skipped]
            for d, is_one in enumerate(tensor.ones)
        )
    ]


def broadcast_ones(*tensors: Any) -> tuple[bool, ...]:
    """Whether each dimension has size 1 after broadcasting the tensors to one shape."""
    ndim = max(x.ndim for x in tensors)
    padded = [(True,) * (ndim - x.ndim) + tuple(x.ones) for x in tensors]
    return tuple(all(dims) for dims in zip(*padded))


def unbroadcast(small: Sequence[bool], ones: Sequence[bool], element: Any) -> Over:
    """The gradient of broadcasting: `element` summed over the broadcast dimensions.

    Args:
        small: whether each dimension of the gradient has size 1.
        ones: whether each dimension has size 1 after broadcasting.
        element: the value at an index of the broadcast shape.
    """
    skipped = len(ones) - len(small)
    full = names(len(ones))
    variables = [
        f"one{d}" if is_one and not ones[d + skipped] else full[d + skipped]
        for d, is_one in enumerate(small)
    ]
    summed = [name for name in full if name not in variables]

    def body(*index: Any) -> Any:
        by_name = dict(zip(variables, index))
        if not summed:
            return element(*(by_name[n] for n in full))

        def inner(*rest: Any) -> Any:
            every = {**by_name, **dict(zip(summed, rest))}
            return element(*(every[n] for n in full))

        return Sum(Over(summed, inner))

    return Over(variables, body)


def instances(outputs: str, *reads: tuple[Any, str], tag: str = "o") -> tuple[Over, ...]:
    """Outputs of an opaque function of regions of tensors, in the notation of einsum.

    ``instances("nc.. n.", (data, "nc"), (rois, "n"))`` gives two outputs: in the first, n
    and c choose the regions, and the other two dimensions index the function's result;
    the second, which lacks c, is the sum over c.

    Args:
        outputs: a word per output: a letter is a variable, a dot is computed whole.
        reads: tensors; a letter of the word is that variable, a dot a whole dimension, 0
            the first index. Dimensions beyond the word are whole.
        tag: prefix of the names of the dots' variables; unique to each call.
    """
    used = sorted({letter for _, word in reads for letter in word if letter.isalpha()})
    return tuple(
        _instance(word, reads, used, f"{tag}{k}_") for k, word in enumerate(outputs.split())
    )


def _instance(word: str, reads: Sequence[tuple[Any, str]], used: Sequence[str], tag: str) -> Over:
    variables = [letter if letter != "." else f"{tag}{d}" for d, letter in enumerate(word)]
    function = Opaque("Instance")
    summed = [letter for letter in used if letter not in word]
    dots = [d for d, letter in enumerate(word) if letter == "."]

    def value(by_name: dict[str, Any], index: Sequence[Any]) -> Any:
        slices = []
        for tensor, places in reads:
            padded = places.ljust(tensor.ndim, ".")
            slices.append(
                tensor[
                    tuple(
                        slice(None) if p == "." else 0 if p == "0" else by_name[p] for p in padded
                    )
                ]
            )
        result = function(*slices)
        return result[tuple(index[d] for d in dots)] if dots else result

    def body(*index: Any) -> Any:
        by_name = dict(zip(variables, index))
        if not summed:
            return value(by_name, index)
        return Sum(Over(summed, lambda *rest: value({**by_name, **dict(zip(summed, rest))}, index)))

    return Over(variables, body)


def letters(ndim: int) -> str:
    """A word for `instances` with a variable for every dimension."""
    return "abcdefgh"[:ndim]


def line(ndim: int, axes: Union[int, Iterable[int]]) -> str:
    """A word for `instances` with a variable for every dimension except the axes."""
    return "".join(at(letters(ndim), axes, "."))


def zero(tensor: Any, word: str) -> tuple[Over, ...]:
    """An output of zeros in the shape of a tensor, with words for `instances` for both."""
    return instances(word.ljust(tensor.ndim, "."), (tensor, word), tag="z")


class Factors:
    """The common factors of a reshape's dimensions.

    Both shapes are walked from the left. Each factor belongs to one dimension on either
    side (or to none, if that side has no more), which makes both indices affine in the
    factors' variables. A stretch that does not factor, (4, 6) to (6, 4), is `mixed`.

    Attributes:
        names, extents: a variable per factor.
        mixed: whether some stretch does not factor.
    """

    def __init__(self, source: Sequence[int], target: Sequence[int]) -> None:
        self.names: list[str] = []
        self.extents: list[int] = []
        self._source: list[list[int]] = [[] for _ in source]
        self._target: list[list[int]] = [[] for _ in target]
        self._source_whole: set[int] = set()
        self._target_whole: set[int] = set()
        if math.prod(source) != math.prod(target):
            raise InconclusiveError(f"reshape of {tuple(source)} to {tuple(target)}")
        self._walk(list(source), list(target))
        self.mixed = bool(self._source_whole)

    def _walk(self, source: list[int], target: list[int]) -> None:
        s = t = 0
        while s < len(source) or t < len(target):
            left = source[s] if s < len(source) else 1
            right = target[t] if t < len(target) else 1
            factor = min(left, right)
            if max(left, right) % factor:
                s, t = self._mix(source, target, s, t)
                continue
            self._add(factor, s if s < len(source) else None, t if t < len(target) else None)
            if s < len(source):
                source[s] //= factor
            if t < len(target):
                target[t] //= factor
            s, t = self._next(source, target, s, t)

    @staticmethod
    def _next(source: list[int], target: list[int], s: int, t: int) -> tuple[int, int]:
        done_s = s < len(source) and source[s] == 1
        done_t = t < len(target) and target[t] == 1
        return s + done_s, t + done_t

    def _mix(self, source: list[int], target: list[int], s: int, t: int) -> tuple[int, int]:
        """Take both sides whole until their products meet."""
        left, right = source[s], target[t]
        self._source_whole.add(s)
        self._target_whole.add(t)
        while left != right:
            if left < right:
                s += 1
                left *= source[s]
                self._source_whole.add(s)
            else:
                t += 1
                right *= target[t]
                self._target_whole.add(t)
        return s + 1, t + 1

    def _add(self, factor: int, s: Optional[int], t: Optional[int]) -> None:
        number = len(self.names)
        self.names.append(f"f{number}")
        self.extents.append(factor)
        if s is not None:
            self._source[s].append(number)
        if t is not None:
            self._target[t].append(number)

    def _index(self, groups: list[list[int]], variables: Sequence[Any]) -> list[Any]:
        result = []
        for group in groups:
            value: Any = 0
            for number in group:
                value = value * self.extents[number] + variables[number]
            result.append(value)
        return result

    def source(self, variables: Sequence[Any]) -> tuple[Any, ...]:
        """The input's index; mixed dimensions are whole."""
        return whole(self._index(self._source, variables), self._source_whole)

    def target(self, variables: Sequence[Any]) -> tuple[Any, ...]:
        """The output's index, made of factors only; not for a mixed reshape."""
        return tuple(self._index(self._target, variables))


def reshaped(tensor: Any, shape: Sequence[int], wrap: Any = None) -> Any:
    """The output that is `tensor` in another shape, elements in row-major order.

    Args:
        tensor: the input.
        shape: the output's.
        wrap: computes the value from the element and the output's index.
    """
    finish = wrap if wrap is not None else (lambda value, _: value)
    if tuple(tensor.shape) == tuple(shape):
        return lambda *i: finish(tensor[i], i)
    factors = Factors(tensor.shape, shape)
    if factors.mixed:
        raise InconclusiveError(
            f"reshape of {tuple(tensor.shape)} to {tuple(shape)}: expected dimensions that "
            "are products of common factors"
        )
    return Reindex(
        factors.names,
        factors.extents,
        at=lambda *f: factors.target(f),
        value=lambda *f: finish(tensor[factors.source(f)], factors.target(f)),
    )


class Strides:
    """Positions x along dimensions, some as stride * q + r to make parts whole strides.

    Args:
        sizes: of the dimensions.
        strides: of the dimensions; None for one that is not taken apart.

    Attributes:
        names, extents: a variable x, or two, q and r, for every dimension.
    """

    def __init__(self, sizes: Sequence[int], strides: Sequence[Optional[int]]) -> None:
        self.strides = strides
        self.names: list[str] = []
        self.extents: list[int] = []
        for d, (size, stride) in enumerate(zip(sizes, strides)):
            self.names += [f"x{d}"] if stride is None else [f"q{d}", f"r{d}"]
            self.extents += [size] if stride is None else [size // stride, stride]

    def apart(self, variables: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The q and r of every dimension; x twice for one that is not taken apart."""
        rest = iter(variables)
        pairs = []
        for stride in self.strides:
            first = next(rest)
            pairs.append((first, first if stride is None else next(rest)))
        return pairs

    def positions(self, variables: Sequence[Any]) -> list[Any]:
        """The x of every dimension."""
        return [
            q if stride is None else q * stride + r
            for stride, (q, r) in zip(self.strides, self.apart(variables))
        ]

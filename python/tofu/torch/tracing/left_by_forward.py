"""Puts what forward leaves behind, besides its outputs, where plain torch would put it.

A planned call leaves in attributes, dicts and lists the values that the trace has found there. A
second trace, of the module as the first call leaves it, tells counters and tensors apart from
values on which forward itself depends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

import torch
from torch.utils.weak import WeakIdKeyDictionary

from tofu.errors import GraphError
from tofu.torch.graphs.module_state import ALL, END, Path, Place, named
from tofu.torch.tiles.private_names import pytree

__all__ = ["Kept", "Left", "Lasting", "differs", "lasting", "leave", "restore", "tensors_left"]

# The values that forward leaves by their places; of END: those that it appends.
Left = Mapping[Place, Any]
_TENSORS = WeakIdKeyDictionary()
_NUMBERS = torch.Generator()
_MANY = 1000  # calls after which a list that grows is looked at
_USES = {
    f"__{name}__"
    for name in (
        "lt", "le", "gt", "ge", "eq", "ne", "bool", "mod", "rmod", "floordiv", "rfloordiv",
        "divmod", "and", "or", "xor", "rshift", "lshift",
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Kept:
    """Stands for a tensor that forward leaves behind.

    Attributes:
        number: its number among those that forward leaves.
        shape: its shape.
        dtype: its type.
        trained: whether it has gradients.
    """

    number: int
    shape: tuple[Any, ...]
    dtype: Any
    trained: bool

    def example(self) -> Any:
        """A tensor of this kind with random values."""
        return torch.rand(self.shape, generator=_NUMBERS).to(self.dtype)


def tensors_left() -> list[tuple[Any, Any]]:
    """The tensors that calls have left and that are still there, with their values alone."""
    return list(_TENSORS.items())


def leave(
    containers: Mapping[Path, Any], left: Left, counts: Mapping[Place, Any], tensors: Sequence[Any]
) -> None:
    """Change attributes, dicts and lists as forward does.

    Args:
        containers: the dicts and lists of the module.
        left: the values, with `Kept` for tensors.
        counts: the numbers that are added to those at some places.
        tensors: the tensors.

    Raises:
        GraphError: a container is not there.
    """
    for tensor in tensors:
        _TENSORS[tensor] = tensor.detach()
    for (path, key), value in left.items():
        if path not in containers:
            raise GraphError(
                f"forward leaves values in {named(path)!r}, which the module does not reach now; "
                "keep it as an attribute of the module"
            )
        container = containers[path]
        value = _filled(value, tensors)
        if key == ALL:
            container.clear()
        if key in (END, ALL):
            container.extend(value)
        else:
            counted = (path, key) in counts and key in container
            container[key] = container[key] + counts[path, key] if counted else value


def _filled(value: Any, tensors: Sequence[Any]) -> Any:
    return pytree.tree_map_only(Kept, lambda kept: tensors[kept.number], value)


@contextlib.contextmanager
def _after_a_call(containers: Mapping[Path, Any], left: Left) -> Iterator[None]:
    """The module as a call would leave it, with random numbers in tensors."""
    paths = {path for path, _ in left if path in containers}
    before = {path: containers[path].copy() for path in paths}
    kept = [x for x in pytree.tree_leaves(list(left.values())) if isinstance(x, Kept)]
    leave(containers, left, {}, [each.example() for each in kept])
    try:
        yield
    finally:
        for path, values in before.items():
            containers[path].clear()
            (containers[path].update if isinstance(values, dict) else containers[path].extend)(
                values
            )


def restore(container: Any, before: Any) -> None:
    """Give a dict or a list the values that it had before."""
    container.clear()
    if isinstance(container, dict):
        container.update(before)
    else:
        container.extend(before)


def differs(container: Any, before: Any) -> bool:
    """Whether a dict or a list has other values than it had, or in another order."""
    is_dict = isinstance(container, dict)
    if len(container) != len(before) or (is_dict and [*container] != [*before]):
        return True
    pairs = (container.values(), before.values()) if is_dict else (container, before)
    return not all(map(operator.is_, *pairs))


@dataclasses.dataclass(frozen=True)
class Lasting:
    """What a forward leaves in every call.

    Attributes:
        left: the values by their places.
        counts: those of these places that are counters -> the increment.
        ignored: places on which forward does not depend.
    """

    left: Left
    counts: Mapping[Place, Any]
    ignored: frozenset[Place]


def lasting(
    name: str,
    containers: Mapping[Path, Any],
    left: Left,
    again: Callable[[], tuple[Left, Any]],
    identity: Any,
) -> Lasting:
    """Tell counters, and tensors on which forward does not depend, from other values.

    Args:
        name: the module's name, for errors.
        containers: the dicts and lists of the module.
        left: the values that forward leaves.
        again: traces forward once more: the values that it leaves then, and a key of its graph.
        identity: the key of the graph that left these values.

    Raises:
        GraphError: forward leaves another value in every call and depends on it.
    """
    starts = _starts(containers, left)
    with _after_a_call(containers, left):
        later, key = last, final = again()
        if key != identity or starts:
            with _after_a_call(containers, later):
                last, final = again()
    same = final == key  # the first call may fill a cache
    kept: dict[Place, Any] = {}
    counts: dict[Place, Any] = {}
    ignored: set[Place] = set()
    for (path, place), value in left.items():
        if place == END and (path, ALL) in later:  # the list was empty
            place = ALL
        kept[path, place] = value
        new = later.get((path, place), value)
        if _trained(value) and ((path, place) not in later or not same):
            _refuse(name, (path, place))
        if (path, place) in later and (place in (END, ALL) or _tensors(value)):
            if not same:
                _refuse(name, (path, place))
            ignored.add((path, END if place == ALL else place))
        elif new != value:
            before = containers[path].get(place)
            values = (
                (before, value, new)
                if place in containers[path]
                else (value, new, last.get((path, place), new))
            )
            counts[path, place] = _step(name, (path, place), same, values)
    grown = {
        place
        for place in ignored
        if place[1] == END and getattr(containers[place[0]], "maxlen", None) is None
    }
    if counts or grown:
        watched = _watched(containers, left, counts, grown)
        with _after_a_call(containers, {**left, **watched}):
            _, last_key = again()
        used = [place for place in counts if watched[place].used]
        used += sorted(grown, key=str) if last_key != final else []
        if used:
            _refuse(name, used[0])
    return Lasting(kept, counts, frozenset(ignored | counts.keys()))


def _watched(
    containers: Mapping[Path, Any], left: Left, counts: Mapping[Place, Any], grown: set[Place]
) -> dict[Place, Any]:
    """Counters that notice what forward does with them, and long lists where forward appends."""
    longer = {place: list(left.get(place, ())) * _MANY for place in grown}
    return {**longer, **{place: _COUNTERS[type(left[place])](left[place]) for place in counts}}


def _counter(base: type) -> type:
    """A type of number that notes whether a script does more with it than count."""

    class Counter(base):
        used: list[Any]

        def __new__(cls, value: Any, used: Any = None) -> Any:
            made = super().__new__(cls, value)
            made.used = [] if used is None else used
            return made

        def __deepcopy__(self, memo: Any) -> Any:
            return self

    def counting(name: str) -> Any:
        def method(self: Any, other: Any) -> Any:
            found = getattr(base, name)(self, other)
            return found if found is NotImplemented else Counter(found, self.used)

        return method

    def using(name: str) -> Any:
        def method(self: Any, *others: Any) -> Any:
            self.used.append(name)
            return getattr(base, name)(self, *others)

        return method

    for name in ("__add__", "__radd__", "__sub__"):
        setattr(Counter, name, counting(name))
    for name in _USES & vars(base).keys():
        setattr(Counter, name, using(name))
    Counter.__hash__ = base.__hash__  # type: ignore[assignment]
    return Counter


_COUNTERS = {base: _counter(base) for base in (int, float)}


def _starts(containers: Mapping[Path, Any], left: Left) -> bool:
    """Whether forward leaves numbers where there are none, perhaps the first of a counter."""
    return any(
        isinstance(x, (int, float)) and key not in (END, ALL) and key not in containers[path]
        for (path, key), x in left.items()
    )


def _tensors(value: Any) -> list[Kept]:
    return [x for x in pytree.tree_leaves(value) if isinstance(x, Kept)]


def _trained(value: Any) -> bool:
    return any(kept.trained for kept in _tensors(value))


def _step(name: str, place: Place, same: bool, values: tuple[Any, Any, Any]) -> Any:
    """The increment of a counter from its values before and after two calls."""
    before, first, second = values
    numbers = all(type(each) in (int, float) for each in values)
    if not same or not numbers or second - first != first - before:
        _refuse(name, place)
    return first - before


def _refuse(name: str, place: Place) -> None:
    where = named(place[0] if place[1] in (END, ALL) else place)
    raise GraphError(
        f"{name}: forward keeps {where!r} for later calls and depends on it there, which a planned "
        "call cannot repeat; change it outside of forward, or make it a buffer"
    )

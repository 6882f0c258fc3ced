"""Changes the dicts and lists among a call's arguments as the module's forward does.

A trace gets dicts and lists of its own, so it notes what they hold in the end. A planned call puts
that into the caller's: the caller's own objects where they stay or move, and new values.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Callable

from tofu.torch.graphs.module_state import Path
from tofu.torch.tiles.private_names import pytree
from tofu.torch.tracing.left_by_forward import Kept, differs, restore

__all__ = ["ArgumentChanges", "Changes", "change"]

Changes = Mapping[Path, Any]  # the new contents of dicts and lists, by their places
_SEQUENCES = (list, tuple, collections.deque)


@dataclasses.dataclass(frozen=True)
class _Own:
    """Stands for an object that the caller has given.

    Attributes:
        path: its place among the arguments.
    """

    path: Path


def _reached(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Path, Any]:
    """The arguments, and what their dicts, lists and tuples hold, by place."""
    found: dict[Path, Any] = {}
    waiting: list[tuple[Path, Any]] = [((), tuple(args)), ((), dict(kwargs))]
    while waiting:
        path, value = waiting.pop()
        if path:
            found[path] = value
        if isinstance(value, dict):
            waiting += [((path, key), each) for key, each in value.items()]
        elif isinstance(value, _SEQUENCES):
            waiting += [((path, k), each) for k, each in enumerate(value)]
    return found


class ArgumentChanges:
    """Compares a call's arguments before and after forward runs.

    Args:
        args: the arguments by position.
        kwargs: those by name.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._reached = _reached(args, kwargs)
        self._before = {
            path: (value, value.copy())
            for path, value in self._reached.items()
            if isinstance(value, (dict, list, collections.deque))
        }

    def found(self, keep: Callable[[tuple[Path, Any], Any], Any]) -> Changes:
        """What forward has put into dicts and lists.

        Args:
            keep: stands for a new value at a place, or raises GraphError.
        """
        own = {id(value): _Own(path) for path, value in self._reached.items()}
        changes: dict[Path, Any] = {}
        for path, (container, before) in self._before.items():
            if not differs(container, before):
                continue

            def new(key: Any, value: Any, path: Path = path, before: Any = before) -> Any:
                if _at(before, key) is value:
                    return _Own((path, key))
                return pytree.tree_map(
                    lambda x: own.get(id(x)) if _moves(x, own) else keep((path, key), x),
                    value,
                    is_leaf=lambda x: _moves(x, own),
                )

            if isinstance(container, dict):
                changes[path] = {key: new(key, value) for key, value in container.items()}
            else:
                changes[path] = [new(k, value) for k, value in enumerate(container)]
        return changes


def _moves(value: Any, own: Mapping[int, _Own]) -> bool:
    """Whether a value is a tensor, a dict or a list of the caller; numbers are equal anyway."""
    return id(value) in own and (hasattr(value, "shape") or isinstance(value, (dict, *_SEQUENCES)))


def _at(container: Any, key: Any) -> Any:
    if isinstance(container, dict):
        return container.get(key)
    return container[key] if key < len(container) else None


def change(
    changes: Changes, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]
) -> None:
    """Change a call's arguments as forward does.

    Args:
        changes: the changes.
        args: the arguments by position.
        kwargs: those by name.
        tensors: the tensors that forward leaves.
    """
    reached = _reached(args, kwargs)

    def filled(value: Any) -> Any:
        if isinstance(value, Kept):
            return tensors[value.number]
        return reached[value.path] if isinstance(value, _Own) else value

    for path, contents in changes.items():
        restore(reached[path], pytree.tree_map(filled, contents))

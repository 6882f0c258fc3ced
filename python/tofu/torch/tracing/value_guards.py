"""Lets a trace pass checks of values: ``assert`` statements, and ``if`` statements that only raise.

A trace has no values, so it cannot decide them. Both go on where the check passes::

    if labels.max() >= self.classes:
        raise ValueError("a label is too large")

The graph does not repeat the check, and a warning says so. So it is with checks inside of torch.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import types
import warnings
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch.overrides import TorchFunctionMode

from tofu.errors import GraphError

__all__ = ["ValueGuards", "unchecked"]

# Functions that give the truth of tensors on as it is; others, such as bool, may turn it around.
_MONOTONE = ("any", "all")
_Tensor: Any = torch.Tensor
_TRUTHS = {_Tensor.__bool__, _Tensor.equal, _Tensor.allclose, torch.equal, torch.allclose}
_FORWARD = "tofu.torch.tracing.traced_forward"  # runs the forward that is traced
_Span = tuple[int, int, int, int]  # the first and last line, the first and last column


class ValueGuards(TorchFunctionMode):
    """Decides the truth of tensors, and of comparisons of their numbers, in checks."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one of torch's functions."""
        try:
            return func(*args, **(kwargs or {}))
        except Exception:  # torch has several kinds for values that are not there
            asks = func in _TRUTHS or func is _Tensor.item
            asker, functions = _asker(inspect.currentframe())
            passing = _passing(asker) if asks else None
            if passing is None:
                raise
            a_number = func is _Tensor.item and "__bool__" not in functions
            return _NUMBERS[passing]() if a_number else passing


def _number(passing: bool) -> type:
    """A type of number all of whose comparisons have the same truth."""
    compare = dict.fromkeys(
        ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"), lambda *_: passing
    )
    return type("Number", (float,), {**compare, "__hash__": float.__hash__})


_NUMBERS = {passing: _number(passing) for passing in (False, True)}


def _asker(frame: Any) -> tuple[types.FrameType, set[str]]:
    """The script's frame that asks for the truth of a tensor, and torch's functions in between."""
    functions = set()
    while frame.f_code.co_name in ("__torch_function__", "__bool__"):
        functions.add(frame.f_code.co_name)
        frame = frame.f_back
    return frame, functions


def _passing(frame: types.FrameType) -> Optional[bool]:
    """The truth of a tensor with which the check of a frame's line passes; None if it is none."""
    path, line = frame.f_code.co_filename, frame.f_lineno
    check = next((x for x in _checks(path) if x.lineno <= line <= x.test.end_lineno), None)
    if check is None:
        return None
    wanted = isinstance(check, ast.Assert)
    asked = _asked(list(_leaves(check.test)), frame)
    answers = {wanted is even for _, even in asked}
    if len(answers) != 1 or any(_turns(leaf) for leaf, _ in asked):
        return None
    _warn(path, line)
    return answers.pop()


def unchecked(*_: Any, **__: Any) -> None:
    """Pass torch's check that a matrix can be inverted or factored, which only raises.

    Raises:
        GraphError: forward catches the error, and so decides by values.
    """
    frame = _asker(inspect.currentframe().f_back)[0]  # type: ignore[union-attr]
    path, line = frame.f_code.co_filename, frame.f_lineno
    if any(map(_catches, _frames_of_forward(frame))):
        raise GraphError(
            f"{path}:{line}: {linecache.getline(path, line).strip()}: cannot be traced, as forward "
            "catches the error of this operator, which depends on the values of tensors; call the "
            "operator without a try statement, or one such as torch.linalg.cholesky_ex"
        )
    _warn(path, line)


def _frames_of_forward(frame: Any) -> Iterator[types.FrameType]:
    """A frame and those that called it, up to the forward that is traced, less torch's and ours."""
    while frame is not None and frame.f_globals.get("__name__") != _FORWARD:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("tofu", "torch"):
            yield frame
        frame = frame.f_back


def _catches(frame: types.FrameType) -> bool:
    """Whether a frame's line is in a ``try`` statement that catches errors of linear algebra."""
    tries = [x for x in ast.walk(_tree(frame.f_code.co_filename)) if isinstance(x, ast.Try)]
    line = frame.f_lineno
    handlers = [
        handler.type
        for each in tries
        if any(x.lineno <= line <= (x.end_lineno or 0) for x in each.body)
        for handler in each.handlers
    ]
    return any(
        kind is None
        or issubclass(
            torch.linalg.LinAlgError,
            eval(ast.unparse(kind), frame.f_globals, frame.f_locals),
        )
        for kind in handlers
    )


def _warn(path: str, line: int) -> None:
    warnings.warn(
        f"{path}:{line}: {linecache.getline(path, line).strip()}: planned calls do not check this, "
        "as it depends on the values of tensors; check data before the call",
        stacklevel=3,
    )


@functools.cache
def _checks(path: str) -> list[Any]:
    """The statements of a file that raise or do nothing, where the file does not catch errors."""
    tree = _tree(path)
    tries = (node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers)
    caught = {id(each) for node in tries for line in node.body for each in ast.walk(line)}
    return [
        node
        for node in ast.walk(tree)
        if id(node) not in caught
        and (isinstance(node, ast.Assert)
        or (isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise)
            and all(isinstance(each, (ast.Assign, ast.Raise)) for each in node.body)))
    ]  # fmt: skip


@functools.cache
def _tree(path: str) -> ast.AST:
    """A file's syntax; nothing if it is no Python, as the text of a notebook's magic."""
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _leaves(test: ast.expr, even: bool = True) -> Iterator[tuple[ast.expr, bool]]:
    """The parts between ``and``, ``or`` and ``not``, and whether an even number negates each."""
    if isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _leaves(each, even)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _leaves(test.operand, not even)
    else:
        yield test, even


def _asked(leaves: list[tuple[ast.expr, bool]], frame: types.FrameType) -> list[Any]:
    """Those of a condition's parts whose truth a frame may ask for."""
    positions: Any = getattr(frame.f_code, "co_positions", tuple)()  # from Python 3.11 on
    for position in list(positions)[frame.f_lasti // 2 :: -1]:  # a jump's may be the whole test
        found = [each for each in leaves if _contains(_span(each[0]), position)]
        if found:
            return found
    return [each for each in leaves if isinstance(each[0], (ast.Call, ast.Compare))]


def _turns(leaf: ast.expr) -> bool:
    """Whether a part of a condition calls a function that may turn a tensor's truth around."""
    calls = (x.func for x in ast.walk(leaf) if isinstance(x, ast.Call))
    return any(isinstance(x, ast.Name) and x.id not in _MONOTONE for x in calls)


def _span(node: ast.expr) -> _Span:
    end, last = node.end_lineno or node.lineno, node.end_col_offset or 0
    return node.lineno, end, node.col_offset, last


def _contains(outer: _Span, inner: Any) -> bool:
    """Whether a part of a file contains another, which may be unknown."""
    if None in inner:
        return False
    begins = (outer[0], outer[2]) <= (inner[0], inner[2])
    return bool(begins and (inner[1], inner[3]) <= (outer[1], outer[3]))

"""Tracing a block that was never hybridized: its Python code runs once, on symbols.

Gluon's own trace would show: in ``export``, in ``summary``, in the names of later blocks. So
tofu keeps its trace separately and leaves the block unchanged. The trace is used only if the code
does nothing but compute its outputs. Any other effect (computing with arrays, printing, changing
attributes, drawing Python's random numbers) ends it.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import json
import logging
import random
import sys
import threading
import traceback
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet.base import _LIB
from mxnet.gluon import block as gluon_block
from mxnet.util import is_np_array

from tofu.errors import TofuError
from tofu.gluon.session.arrays import is_numpy
from tofu.mx.nnvm import symbol_text

from . import attributes, nesting
from .nesting import PLAIN

__all__ = ["Graph", "UntraceableError", "trace"]

_MODE = "changes autograd's mode (record, pause, train_mode, ...)"
# Calls that end a trace, because a graph would not repeat them.
_REFUSED: tuple[tuple[Any, str, str], ...] = (
    (_LIB, "MXImperativeInvokeEx", "computes with arrays instead of the operators of F"),
    (_LIB, "MXNDArraySyncCopyToCPU", "reads the values of an array"),
    (_LIB, "MXNDArraySyncCopyFromCPU", "makes an array of Python's values"),
    (_LIB, "MXAutogradSetIsRecording", _MODE),
    (_LIB, "MXAutogradSetIsTraining", _MODE),
    (builtins, "print", "prints"),
    (builtins, "input", "asks for input"),
    (sys, "breakpointhook", "stops at a breakpoint"),
    (logging.Logger, "handle", "logs"),
)
_NOTED = ((_LIB, "MXAutogradIsTraining"), (_LIB, "MXAutogradIsRecording"))


_GONE = object()
_STANDARD = {Path(random.__file__).parent, Path(logging.__file__).parent}


class UntraceableError(TofuError):
    """The code of a block cannot be replaced by a graph; the text says why."""


class _Stop(BaseException):
    """Ends a trace. Code that catches all errors must not catch it."""


@dataclasses.dataclass
class Graph:
    """A trace. PartitionedBlock reads the first four, which are named as a block's.

    Attributes:
        name: the block's name.
        _cached_graph: the inputs' names, and the symbol.
        _cached_op: an object that identifies the trace.
        _cached_op_args: for every input of the symbol, whether the script passes it, and its
            place among the arguments or the parameter.
        outputs: how the outputs are nested.
        effects: attributes that every call sets: block, name and value.
        reads_training, reads_recording: whether the code asks for autograd's mode.
    """

    name: str
    _cached_graph: tuple[list[str], Any]
    _cached_op: object
    _cached_op_args: list[tuple[bool, Any]]
    outputs: Any
    effects: list[tuple[Callable[[], Any], str, Any]]
    reads_training: bool
    reads_recording: bool

    @property
    def symbol(self) -> Any:
        """The symbol that computes the outputs."""
        return self._cached_graph[1]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that the symbol reads, by name."""
        return {p.name: p for is_input, p in self._cached_op_args if not is_input}

    @property
    def input_names(self) -> list[str]:
        """The names of the script's inputs."""
        return self._cached_graph[0]

    def apply_effects(self) -> None:
        """Set the attributes that the code would have set."""
        for reference, name, value in self.effects:
            block = reference()
            if block is not None:
                vars(block)[name] = value

    def operators(self) -> list[tuple[str, Mapping[str, str]]]:
        """The name and attributes of every operator, also in subgraphs."""
        return list(_operators(json.loads(symbol_text(self.symbol))))


def trace(block: Any, forward: Callable[..., Any], pattern: Any, arrays: Sequence[Any]) -> Graph:
    """Trace one call.

    Args:
        block: the block; its attributes are the same afterwards.
        forward: its class's forward method.
        pattern: how the arguments are nested.
        arrays: the arrays among them.

    Raises:
        UntraceableError: the code does something that a graph cannot do.
    """
    inside = attributes.blocks_in(block)
    parameters = _parameters(block)
    names = ["data"] if len(arrays) == 1 else [f"data{i}" for i in range(len(arrays))]
    inputs = [_variable(n, numpy=is_numpy(array)) for n, array in zip(names, arrays)]
    watched = _Watched()
    before = _Attributes(inside)
    with _plain_variables(parameters), mx.name.NameManager(), contextlib.ExitStack() as restored:
        restored.callback(before.restore)
        outputs = watched.run(lambda: forward(block, *nesting.rebuild(pattern, inputs)))
        effects = before.changes()
        if effects:  # does a second call set other values?
            again = _Attributes(inside)
            watched.run(lambda: forward(block, *nesting.rebuild(pattern, inputs)))
            for changed, name, _ in again.changes():
                raise UntraceableError(f"every call changes attribute {name} of {changed.name}")
    try:
        symbols, output_pattern = nesting.flatten(outputs)
    except TypeError as error:
        raise UntraceableError(f"it returns {error}") from None
    if not symbols or not all(isinstance(each, mx.sym.Symbol) for each in symbols):
        raise UntraceableError("it returns arrays that it does not compute from its inputs")
    try:
        symbol = mx.sym.Group(symbols, gluon_block._check_same_symbol_type(symbols))
    except TypeError as error:
        raise UntraceableError(f"it returns arrays of two classes ({error})") from None
    return Graph(
        block.name or type(block).__name__,
        (names, symbol),
        object(),
        [_argument(name, names, parameters) for name in symbol.list_inputs()],
        output_pattern,
        [(weakref.ref(changed), name, value) for changed, name, value in effects],
        *(name in watched.noted for _, name in _NOTED),
    )


def _parameters(block: Any) -> dict[str, Any]:
    try:
        return dict(block.collect_params())
    except (AssertionError, ValueError) as error:
        raise UntraceableError(f"its parameters cannot be collected ({error})") from None


def _variable(name: str, *, numpy: bool) -> Any:
    variable = mx.sym.var(name)
    return variable.as_np_ndarray() if numpy else variable


def _argument(name: str, inputs: Sequence[str], parameters: Mapping[str, Any]) -> tuple[bool, Any]:
    if name in inputs and name not in parameters:
        return True, inputs.index(name)
    if name not in parameters or name in inputs:
        raise UntraceableError(
            f"it reads {name}, which collect_params() does not return; expected every block "
            "that it calls to be an attribute or a registered child"
        )
    return False, parameters[name]


@contextlib.contextmanager
def _plain_variables(parameters: Mapping[str, Any]) -> Iterator[None]:
    """Give parameters new variables, which know only names, inside this context.

    MXNet keeps a parameter's first variable, with the shape and rates of that moment.
    """
    before = {name: parameter._var for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        parameter._var = _variable(name, numpy=is_np_array())
    try:
        yield
    finally:
        for name, parameter in parameters.items():
            parameter._var = before[name]


class _Watched:
    """Runs code, and ends it if it has an effect that a graph would not repeat.

    Attributes:
        noted: the functions in ``_NOTED`` that the code has called.
    """

    def __init__(self) -> None:
        self.noted: set[str] = set()
        self._thread = threading.get_ident()
        self._reason: Optional[str] = None

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a function and return its result. Raises UntraceableError."""
        for _ in range(2):  # another thread may have drawn numbers the first time
            states = random.getstate(), np.random.get_state()
            try:
                with self._watching():
                    result = function()
                if random.getstate() == states[0] and _equal(np.random.get_state(), states[1]):
                    return result
            except _Stop as stop:
                raise UntraceableError(str(stop)) from None
            except Exception as error:
                raise UntraceableError(f"tracing it raised {_describe(error)}") from None
            finally:
                random.setstate(states[0])
                np.random.set_state(states[1])
        raise UntraceableError("it draws Python's random numbers")

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        with contextlib.ExitStack() as undo:
            for owner, name, reason in _REFUSED:
                original = getattr(owner, name)
                undo.callback(setattr, owner, name, original)
                setattr(owner, name, self._refusing(original, reason))
            for owner, name in _NOTED:
                original = getattr(owner, name)
                undo.callback(setattr, owner, name, original)
                setattr(owner, name, self._noting(original, name))
            yield

    def _refusing(self, original: Callable[..., Any], reason: str) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return original(*args, **kwargs)
            raise _Stop(f"it {reason}{_place_of_caller()}")

        return watched

    def _noting(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def watched(*args: Any) -> Any:
            if threading.get_ident() == self._thread:
                self.noted.add(name)
            return original(*args)

        return watched


class _Attributes:
    """The present attributes of blocks."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._before = [(block, dict(vars(block))) for block in blocks]
        self._contents = [
            (value, value.copy())
            for _, before in self._before
            for value in before.values()
            if isinstance(value, (list, dict, set))
        ]
        self._values = [attributes.read_each(block) for block in blocks]

    def changes(self) -> list[tuple[Any, str, Any]]:
        """The attributes that have changed: block, name and value.

        Raises:
            UntraceableError: one of them was deleted, or is not a plain value.
        """
        changed = []
        for (block, _), before in zip(self._before, self._values):
            now = attributes.read_each(block)
            for name in before.keys() | now.keys():
                if before.get(name) == now.get(name):
                    continue
                value = vars(block).get(name, _GONE)
                if type(value) not in PLAIN or (name in before and len(before[name]) != 2):
                    raise UntraceableError(
                        f"it keeps something in attribute {name} of {block.name}"
                    )
                changed.append((block, name, value))
        if len(attributes.blocks_in(self._before[0][0])) != len(self._before):
            raise UntraceableError("it adds blocks to itself")
        return changed

    def restore(self) -> None:
        """Set the attributes back; those that are as before stay, as other threads read them."""
        for value, content in [*((vars(b), before) for b, before in self._before), *self._contents]:
            if _identities(value) != _identities(content):
                value.clear()
                value.extend(content) if isinstance(value, list) else value.update(content)


def _identities(values: Any) -> Any:
    """What identifies the keys and values of a dict, or the members of a list or set."""
    if isinstance(values, dict):
        return [(id(key), id(value)) for key, value in values.items()]
    members = map(id, values)
    return set(members) if isinstance(values, set) else list(members)


def _equal(first: Any, second: Any) -> bool:
    """Whether two states of NumPy's generator are equal."""
    return all(np.array_equal(a, b) for a, b in zip(first, second))


def _describe(error: Exception) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    places = [(f.f_globals, line) for f, line in traceback.walk_tb(error.__traceback__)]
    return f"{type(error).__name__}: {text}{_place(reversed(places))}"


def _place_of_caller() -> str:
    return _place((f.f_globals, line) for f, line in traceback.walk_stack(sys._getframe(1)))


def _place(frames: Iterable[tuple[dict[str, Any], int]]) -> str:
    """The line of the script that is running, given frames from the innermost outwards."""
    for names, line in frames:
        if not attributes.is_library(names.get("__name__")) and not _is_standard(names):
            return f" ({Path(names['__file__']).name}:{line})"
    return ""


def _is_standard(names: Mapping[str, Any]) -> bool:
    """Whether the code with these globals is Python's own."""
    return Path(names.get("__file__") or logging.__file__).parent in _STANDARD


def _operators(graph: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for node in graph["nodes"]:
        if node["op"] != "null":
            yield node["op"], node.get("attrs", {})
        for subgraph in node.get("subgraphs", ()):
            yield from _operators(subgraph)

"""Runs a module's forward for a trace, and refuses effects that the graph would not repeat."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Callable
from unittest import mock

import torch
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from tofu.errors import GraphError
from tofu.torch.graphs.module_state import Replacement
from tofu.torch.tiles.private_names import FunctionalTensor, pytree
from tofu.torch.tracing.changed_arguments import ArgumentChanges, Changes
from tofu.torch.tracing.kept_by_forward import KeptByForward
from tofu.torch.tracing.left_by_forward import Left

__all__ = ["OwnOutputs", "ReturnsObjectError", "without_other_randomness", "without_seeds"]


_RETURNED = (
    torch.Tensor, torch.SymFloat, torch.SymInt, bool, int, float, complex, str, bytes, type(None),
)  # fmt: skip


class ReturnsObjectError(GraphError):
    """Forward returns an object that is no tensor.

    Args:
        module: the module's name.
        text: the message.
    """

    def __init__(self, module: str, text: str) -> None:
        super().__init__(text)
        self.module = module


class OwnOutputs(Replacement):
    """The forward of a module that is traced: its outputs alias nothing, as graphs have no aliases.

    Tensors that forward leaves in the module are outputs, too.

    Args:
        module: the module.
        gradients: whether the call has gradients.

    Attributes:
        own_forward: the forward that it replaces.
        through: as of a `Traced`.
        tiles: as of a `Traced`.
        changes: as of a `Traced`.
    """

    def __init__(self, module: torch.nn.Module, gradients: bool) -> None:
        self._module = module
        self._gradients = gradients
        self.own_forward = module.forward
        self._kept = KeptByForward(module)
        self._names = _OtherNames(module)
        self.through: dict[int, frozenset[int]] = {}
        self.tiles: frozenset[int] = frozenset()
        self.changes: Changes = {}
        module.forward = self

    @property
    def left(self) -> Left:
        """The values that forward has left in the module."""
        return self._kept.left

    def check(self) -> None:
        """Raise GraphError if the backward pass has left values."""
        self._kept.check()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and copy outputs that alias inputs or each other."""
        module = self._module
        given = [*pytree.tree_leaves((args, kwargs)), *module.parameters(), *module.buffers()]
        known = {id(each) for each in given}
        self._kept.begin()
        arguments = ArgumentChanges(args, kwargs)
        with torch.set_grad_enabled(self._gradients), self._names:  # forward may ask for the mode
            outputs = self.own_forward(*args, **kwargs)
        self._kept.end()
        self.changes = arguments.found(self._kept.keep)
        flat = pytree.tree_leaves((outputs, self._kept.tensors))
        nodes = _nodes(flat, given)
        self._check_trained(nodes)
        self.through = _through(flat, nodes)
        first = len(flat) - len(self._kept.tensors)
        self.tiles = frozenset(first + number for number in self._kept.computed)
        for each in pytree.tree_leaves(outputs):
            if not isinstance(each, _RETURNED):
                raise ReturnsObjectError(
                    type(module).__name__,
                    f"{type(module).__name__}: forward returns a {type(each).__name__}; expected "
                    "tensors, numbers and texts, in lists, tuples and dicts. Models of Hugging "
                    "Face return a cache unless their configuration or the call says "
                    "use_cache=False",
                )

        def own(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and (id(value) in known or value._is_view()):
                return value.clone()
            known.add(id(value))
            return value

        return pytree.tree_map(own, (outputs, self._kept.tensors))

    def _check_trained(self, nodes: list[Any]) -> None:
        """Raise GraphError if outputs have gradients of tensors that planned calls do not train."""
        for node in nodes:
            leaf = getattr(node, "variable", None)
            if leaf is None or isinstance(leaf, FunctionalTensor):  # forward has made it
                continue
            name = self._kept.name_of(leaf)
            where = repr(name) if name else f"a tensor of the shape {tuple(leaf.shape)}"
            raise GraphError(
                f"{type(self._module).__name__}: forward reads {where}, which has a gradient but "
                "is no parameter of the module, so a planned call would not train it; register it "
                "as a parameter, or its module as a submodule, or read it under torch.no_grad()"
            )


def _edge(tensor: Any) -> Any:
    """The node of autograd's graph that a tensor's gradient goes to, and its number there."""
    return get_gradient_edge(tensor)[:2]


def _with_gradients(values: list[Any]) -> Iterator[tuple[int, Any]]:
    for k, each in enumerate(values):
        if isinstance(each, torch.Tensor) and each.requires_grad:
            yield k, each


def _nodes(outputs: list[Any], given: list[Any]) -> list[Any]:
    """The nodes of autograd's graph before outputs, up to the given tensors, inner ones first."""
    seen = {_edge(each)[0] for _, each in _with_gradients(given)}
    found: list[Any] = []
    waiting = [(_edge(each)[0], False) for _, each in _with_gradients(outputs)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            inner = [(each, False) for each, _ in node.next_functions if each is not None]
            waiting += [(node, True), *inner]
    return found


def _through(outputs: list[Any], nodes: list[Any]) -> dict[int, frozenset[int]]:
    """Position of an output -> the positions of others whose gradients flow through it."""
    edges = {k: _edge(each) for k, each in _with_gradients(outputs)}
    places: dict[Any, int] = {}  # of outputs, as bits
    for k, edge in edges.items():
        places[edge] = places.get(edge, 0) | 1 << k
    inner: dict[Any, int] = {}
    for node in nodes:
        inner[node] = 0
        for edge in node.next_functions:
            inner[node] |= places.get(edge, 0) | inner.get(edge[0], 0)
    reach = {k: places[edge] | inner.get(edge[0], 0) for k, edge in edges.items()}
    found = {k: frozenset(j for j in edges if j != k and reach[j] >> k & 1) for k in edges}
    return {k: others for k, others in found.items() if others}


class _OtherNames(TorchFunctionMode):
    """Gives functions the trace's tensors where forward has parameters by another name.

    A trace puts its own tensors in the places of parameters, but not in lists, tuples and objects.

    Args:
        module: the module, before it is traced.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._places = {
            id(tensor): (each._parameters, key)
            for each in module.modules()
            for key, tensor in each._parameters.items()
            if tensor is not None
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        values = (*args, *(kwargs or {}).values())
        if any(type(x) in (list, tuple) or id(x) in self._places for x in values):
            args, kwargs = pytree.tree_map_only(torch.Tensor, self._now, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _now(self, tensor: Any) -> Any:
        group, key = self._places.get(id(tensor), ({None: tensor}, None))
        return group[key]


# Modules of random numbers besides torch's, with functions to get and set their states.
_STATES = {"random": ("getstate", "setstate"), "numpy.random": ("get_state", "set_state")}


@contextlib.contextmanager
def without_seeds(name: str) -> Iterator[None]:
    """Raises GraphError if forward seeds torch's generator.

    A planned call draws from seeds of its own, for each tile, so forward's would do nothing.
    """

    def refuse(*_: Any, **__: Any) -> Any:
        raise GraphError(
            f"{name}: forward seeds torch's random numbers or draws from a generator of its own, "
            "but a planned call draws from its own seeds; draw fixed numbers in __init__ and keep "
            "them in a buffer, and seed outside of forward"
        )

    with contextlib.ExitStack() as stack:
        for module in (torch, torch.random):
            for function in ("manual_seed", "seed"):
                stack.enter_context(mock.patch.object(module, function, refuse))
        stack.enter_context(_WithoutGenerators(refuse))
        yield


class _WithoutGenerators(TorchFunctionMode):
    """Refuses operators that draw from a generator of the script."""

    def __init__(self, refuse: Callable[[], None]) -> None:
        super().__init__()
        self._refuse = refuse

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and isinstance(kwargs.get("generator"), torch.Generator):
            self._refuse()
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def without_other_randomness(name: str) -> Iterator[None]:
    """Raises GraphError if Python's or NumPy's random numbers are drawn, and restores their state.

    Their values would be the same in all calls of the traced program.
    """
    known = {k: sys.modules[k] for k in _STATES if k in sys.modules}
    before = {k: getattr(module, _STATES[k][0])() for k, module in known.items()}
    yield
    for k, module in known.items():
        if repr(getattr(module, _STATES[k][0])()) != repr(before[k]):
            getattr(module, _STATES[k][1])(before[k])
            raise GraphError(
                f"{name}: forward draws numbers of Python's module {k}, which a planned call would "
                "not draw again; draw them outside and pass them as arguments, or use torch's"
            )

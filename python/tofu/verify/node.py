"""Runs one node of MXNet, forward or backward."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet._ctypes.ndarray import _imperative_invoke
from mxnet.base import _LIB, check_call

from tofu.verify.case import Case, Shape

__all__ = ["Array", "Tensor", "run_imperatively", "run_node"]

Array = np.ndarray[Any, Any]
# MXNet rewrites a graph when it binds it, in ways that lose control dependencies; and its
# subgraph backend, active on cpu(0), refuses them.
_AS_IT_IS = {"MXNET_ELIMINATE_COMMON_EXPR": "0", "MXNET_SUBGRAPH_BACKEND": "NONE"}


@dataclass(frozen=True)
class Tensor:
    """The shape and type of an array, to be part of a cache's key."""

    shape: Shape
    dtype: str


def run_node(
    op: str,
    attrs: Mapping[str, str],
    inputs: Sequence[Array],
    outputs: int,
    hide: tuple[int, ...] = (),
    forward: Optional[str] = None,
    forward_attrs: Optional[Mapping[str, str]] = None,
    donor: Sequence[Tensor] = (),
    numpy: bool = False,
    seen: Optional[Mapping[int, Array]] = None,
) -> list[Optional[Array]]:
    """The outputs of one node; None for those that are hidden.

    Args:
        op: the operator.
        attrs: its attributes.
        inputs: its inputs' values.
        outputs: how many outputs it has.
        hide: those that it refuses to compute.
        forward: the forward operator of a backward one.
        forward_attrs: that one's attributes.
        donor: that one's inputs, from which MXNet infers the gradients' shapes.
        numpy: whether shapes are NumPy's, where () is a number.
        seen: values of some of them, else zeros.
    """
    key = tuple(Tensor(a.shape, str(a.dtype)) for a in inputs)
    more = tuple(sorted((forward_attrs or {}).items()))
    own = tuple(sorted(attrs.items()))
    with mx.util.np_shape(numpy):
        executor, arrays = _bound(op, own, key, outputs, hide, forward, more, tuple(donor), numpy)
        for k, array in enumerate(inputs):
            mx.nd.array(array, dtype=array.dtype).copyto(arrays[f"x{k}"])
        for k, array in (seen or {}).items():
            mx.nd.array(array, dtype=array.dtype).copyto(arrays[f"f{k}"])
        results = iter(executor.forward(is_train=True))
        return [None if k in hide else next(results).asnumpy() for k in range(outputs)]


def run_imperatively(
    case: Case, attrs: Mapping[str, str], inputs: Sequence[Array], gradients: Sequence[Tensor]
) -> list[Array]:
    """The outputs of an operator that cannot be a node of a graph.

    Args:
        case: what it is.
        attrs: its attributes.
        inputs: its inputs' values.
        gradients: its outputs, for a backward operator.
    """
    with mx.util.np_shape(case.numpy):
        arrays = [mx.nd.array(a, dtype=a.dtype) for a in inputs]
        like = [*gradients, *(Tensor(arrays[k].shape, arrays[k].dtype) for k in case.shaped)]
        out = [mx.nd.zeros(t.shape, dtype=t.dtype) for t in like]
        out = arrays[:1] if case.in_place else out
        texts = list(attrs), list(attrs.values())
        handle = _operator(case.op).value
        result = _imperative_invoke(handle, arrays, *texts, out or None, False, True)
        return [o.asnumpy() for o in result]


def _operator(name: str) -> ctypes.c_void_p:
    """The handle of a registered operator."""
    handle = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(name.encode(), ctypes.byref(handle)))
    return handle


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
    numpy: bool,
) -> tuple[Any, dict[str, Any]]:
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
        "attrs": {"mxnet_version": ["int", 10901], "is_np_shape": ["int", int(numpy)]},
    }
    symbol = mx.sym.load_json(json.dumps(graph))
    auxiliary = set(symbol.list_auxiliary_states())
    named = {n: a for n, a in arrays.items() if n in set(symbol.list_arguments())}
    states = {n: a for n, a in arrays.items() if n in auxiliary}
    with _environment(_AS_IT_IS):
        executor = symbol.bind(mx.cpu(), named, grad_req="null", aux_states=states)
    return executor, arrays


def _node(op: str, name: str, attrs: Mapping[str, str], inputs: Iterable[int]) -> dict[str, Any]:
    return {"op": op, "name": name, "attrs": dict(attrs), "inputs": [[i, 0, 0] for i in inputs]}


def _variable(name: str) -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": []}


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

"""Runs one node of MXNet, forward or backward."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet._ctypes.ndarray import _imperative_invoke
from mxnet.base import _LIB, check_call
from mxnet.ndarray.ndarray import array as dense_array  # nd.array has SciPy warn

from tofu.config import MXNET_ENVIRONMENT
from tofu.lang.example_calls import Case, Shape
from tofu.mx.extension import environment
from tofu.mx.graphs import custom

__all__ = [
    "Array",
    "Forward",
    "NodeCall",
    "Tensor",
    "inferred",
    "quiet",
    "run_imperatively",
    "run_node",
    "settle",
    "sorted_attrs",
    "visible_outputs",
]

Array = np.ndarray[Any, Any]
# MXNet prints this when an operator written in Python raises; its own error does not say it.
_OF_PYTHON = re.compile(r"Error in CustomOp\.\w+: (.*)", re.DOTALL)
_ERRORS = 16  # of operators that were under way when one failed
# Settings that keep MXNet from rewriting a graph when it binds it: its rewrites lose control
# dependencies, and its subgraph backend, active on cpu(0), rejects them.
_AS_IT_IS = {
    **MXNET_ENVIRONMENT,
    "MXNET_SUBGRAPH_BACKEND": "NONE",
    "MXNET_SUBGRAPH_VERBOSE": "0",
}


@dataclass(frozen=True)
class Tensor:
    """The shape and type of an array, as part of a cache key."""

    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Forward:
    """The forward operator of a backward one.

    Attributes:
        op: the operator.
        attrs: its attributes, sorted.
        donor: its inputs, from which MXNet infers the gradients' shapes.
    """

    op: str
    attrs: tuple[tuple[str, str], ...]
    donor: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class NodeCall:
    """A call of an operator.

    Attributes:
        op: the operator.
        attrs: its attributes, sorted.
        outputs: the number of its outputs.
        hide: outputs that the operator refuses to compute.
        forward: the forward operator of a backward one, else None.
        numpy: whether shapes are NumPy's, where () is a number.
    """

    op: str
    attrs: tuple[tuple[str, str], ...]
    outputs: int
    hide: tuple[int, ...] = ()
    forward: Optional[Forward] = None
    numpy: bool = False


def sorted_attrs(attrs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Attributes as part of a cache key."""
    return tuple(sorted(attrs.items()))


def run_node(
    call: NodeCall, inputs: Sequence[Array], seen: Optional[Mapping[int, Array]] = None
) -> list[Optional[Array]]:
    """Run one node and return its outputs; None for hidden ones.

    Args:
        call: the node.
        inputs: its inputs' values.
        seen: values of some of the donor's inputs; the others are zeros.

    Raises:
        MXNetError: the operator does not run; if written in Python, with its exception.
    """
    key = tuple(Tensor(a.shape, str(a.dtype)) for a in inputs)
    messages = io.StringIO()
    try:
        with mx.util.np_shape(call.numpy), contextlib.redirect_stdout(messages):
            executor, arrays = _bound(call, key)
            for k, array in enumerate(inputs):
                dense_array(array, dtype=array.dtype).copyto(arrays[f"x{k}"])
            for k, array in (seen or {}).items():
                dense_array(array, dtype=array.dtype).copyto(arrays[f"f{k}"])
            results = iter(executor.forward(is_train=True))
            visible = (k not in call.hide for k in range(call.outputs))
            return [next(results).asnumpy() if shows else None for shows in visible]
    except mx.MXNetError as error:
        _bound.cache_clear()  # its arrays would raise this error again
        settle()
        own_error = _OF_PYTHON.search(messages.getvalue())
        if own_error is None:
            raise
        raise mx.MXNetError(own_error.group(1).strip().splitlines()[-1]) from error


def settle() -> None:
    """Wait for all operators, so that no later call gets the error of an earlier one."""
    for _ in range(_ERRORS):
        try:
            mx.nd.waitall()
            return
        except mx.MXNetError:
            continue


def inferred(case: Case) -> Optional[tuple[list[Shape], list[Shape]]]:
    """Shapes that MXNet infers for the inputs and outputs of a case's operator.

    For a backward operator, the shapes of its forward operator. None if MXNet infers no shapes,
    or others than the case's.
    """
    ins = [i.shape for i in case.inputs]
    shapes = {f"x{k}": shape for k, shape in enumerate(ins)}
    try:
        symbol = _forward_symbol(case, [[len(ins), k, 0] for k in range(case.outputs)])
        quiet = contextlib.redirect_stdout(io.StringIO())  # shape inference also prints
        with mx.util.np_shape(case.numpy), quiet, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MXNet warns when it cannot infer shapes
            arguments, outs, states = symbol.infer_shape(**shapes)
    except (mx.MXNetError, ValueError):
        return None
    if arguments is None:
        return (ins, [ins[k] for k in case.shaped]) if case.shaped else None
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    # Some operators overwrite the shapes passed to them.
    return (ins, outs) if dict(zip(names, [*arguments, *states])) == shapes else None


def visible_outputs(case: Case) -> int:
    """The number of visible outputs; for a backward operator, those of its forward operator."""
    return len(_forward_symbol(case, [[len(case.inputs), 0, 0]]).get_internals())


def _forward_symbol(case: Case, heads: Sequence[Sequence[int]]) -> Any:
    """The case's operator alone, or its forward operator."""
    op, attrs = case.op, case.attrs
    if case.forward is not None:
        op = case.forward
        attrs = attrs if case.forward_attrs is None else case.forward_attrs
    nodes = [_variable(f"x{k}") for k in range(len(case.inputs))]
    nodes.append(_node(op, "op", attrs, range(len(nodes))))
    return _symbol(nodes, heads, case.numpy)


def run_imperatively(
    case: Case, attrs: Mapping[str, str], inputs: Sequence[Array], gradients: Sequence[Tensor]
) -> list[Array]:
    """Runs an operator that cannot be a node of a graph, and returns its outputs.

    Args:
        case: its case.
        attrs: its attributes.
        inputs: its inputs' values.
        gradients: its outputs, for a backward operator.
    """
    with mx.util.np_shape(case.numpy):
        arrays = [dense_array(a, dtype=a.dtype) for a in inputs]
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
def _bound(call: NodeCall, inputs: tuple[Tensor, ...]) -> tuple[Any, dict[str, Any]]:
    """An executor for one node, together with its forward operator if it needs one."""
    nodes = [_variable(f"x{k}") for k in range(len(inputs))]
    arrays = {f"x{k}": mx.nd.zeros(t.shape, dtype=t.dtype) for k, t in enumerate(inputs)}
    control = []
    if call.forward is not None:
        first, forward = len(nodes), call.forward
        nodes += [_variable(f"f{k}") for k in range(len(forward.donor))]
        arrays.update({f"f{k}": _blank(t) for k, t in enumerate(forward.donor)})
        forward_inputs = range(first, len(nodes))
        nodes.append(_node(forward.op, "forward", dict(forward.attrs), forward_inputs))
        control = [len(nodes) - 1]
    nodes.append(_node(call.op, "op", dict(call.attrs), range(len(inputs))))
    if control:
        nodes[-1]["control_deps"] = control
    last = len(nodes) - 1
    # The forward operator's output is a head too: some operators do not run otherwise.
    heads = [[last, k, 0] for k in range(call.outputs) if k not in call.hide]
    heads += [[k, 0, 0] for k in control]
    symbol = _symbol(nodes, heads, call.numpy)
    auxiliary = set(symbol.list_auxiliary_states())
    named = {n: a for n, a in arrays.items() if n in set(symbol.list_arguments())}
    states = {n: a for n, a in arrays.items() if n in auxiliary}
    with environment(_AS_IT_IS):
        executor = symbol.bind(mx.cpu(), named, grad_req="null", aux_states=states)
    return executor, arrays


def _blank(tensor: Tensor) -> Any:
    """Zeros, which are safe as indices, or ones, which are safe as divisors."""
    whole = np.dtype(tensor.dtype).kind != "f"
    return (mx.nd.ones if whole else mx.nd.zeros)(tensor.shape, dtype=tensor.dtype)


def _symbol(nodes: Sequence[dict[str, Any]], heads: Sequence[Sequence[int]], numpy: bool) -> Any:
    if any(node["op"] == "Custom" for node in nodes):
        custom.register()
    graph = {
        "nodes": nodes,
        "arg_nodes": [k for k, n in enumerate(nodes) if n["op"] == "null"],
        "heads": heads,
        "attrs": {"mxnet_version": ["int", 10901], "is_np_shape": ["int", int(numpy)]},
    }
    return mx.sym.load_json(json.dumps(graph))


def _node(op: str, name: str, attrs: Mapping[str, str], inputs: Iterable[int]) -> dict[str, Any]:
    return {"op": op, "name": name, "attrs": dict(attrs), "inputs": [[i, 0, 0] for i in inputs]}


def _variable(name: str) -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": []}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence MXNet, which logs every graph that it binds and prints every error."""
    before, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(null)

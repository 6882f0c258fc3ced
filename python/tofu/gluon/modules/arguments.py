"""The arguments of a Module's executor: Gluon's Parameters, and whole arrays for its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
from mxnet import gluon, init, nd
from mxnet.base import MXNetError

from tofu.mx.graphs.infer import infer_shapes, infer_types

__all__ = ["Arguments", "Live", "make_arguments"]


class Live(Sequence[Any]):
    """Arrays that are gathered when they are read, as lists of one array."""

    def __init__(self, reads: Sequence[Callable[[], Any]]) -> None:
        self._reads = list(reads)

    def __len__(self) -> int:
        return len(self._reads)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [[read()] for read in self._reads[index]]
        return [self._reads[index]()]


class Arguments(NamedTuple):
    """The arguments and auxiliary states of an executor.

    Attributes:
        parameters: parameters and auxiliary states by name.
        inputs: data, labels and states by name, whole.
        requests: how the gradients of those inputs that have one are written.
    """

    parameters: dict[str, Any]
    inputs: dict[str, Any]
    requests: dict[str, str]


def make_arguments(
    group: Any, described: Sequence[Any], context: Any, known: Mapping[str, Any]
) -> Arguments:
    """Make the arguments of a Module's executor, filled with zeros.

    Args:
        group: the Module's DataParallelExecutorGroup.
        described: the DataDesc of data and labels.
        context: the script's context.
        known: parameters of another executor, to share.

    Raises:
        MXNetError: shapes or types do not agree, among each other or with shared parameters.
    """
    symbol = group.symbol
    shapes, dtypes = _shapes_and_dtypes(symbol, described)
    trained = {*group.param_names, *symbol.list_auxiliary_states()}
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    parameters, inputs, requests = {}, {}, {}
    for name, shape, dtype in zip(names, shapes, dtypes):
        request = group.grad_req.get(name, "null")
        if name in trained:
            parameters[name] = _parameter(name, shape, dtype, request, context, known.get(name))
            continue
        inputs[name] = nd.zeros(shape, context, dtype)
        if request != "null":
            requests[name] = request
    return Arguments(parameters, inputs, requests)


def _shapes_and_dtypes(symbol: Any, described: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    arguments = set(symbol.list_arguments())
    used = [each for each in described if each.name in arguments]
    shapes, _, aux_shapes = infer_shapes(symbol, {each.name: each.shape for each in used})
    given = {each.name: np.dtype(each.dtype) for each in used}
    attributes = symbol.attr_dict()
    declared = {name for name in given if attributes.get(name, {}).get("__dtype__", "-1") != "-1"}
    types = {name: dtype for name, dtype in given.items() if name not in declared}
    dtypes, _, aux_dtypes = infer_types(symbol, types)
    if shapes is None or dtypes is None:
        raise MXNetError("the shapes or types of data and labels do not give those of all others")
    return [*shapes, *aux_shapes], [*dtypes, *aux_dtypes]


def _parameter(name: str, shape: Any, dtype: Any, request: str, context: Any, known: Any) -> Any:
    """Make a parameter of zeros, unless another executor has one to share."""
    if known is None:
        parameter = gluon.Parameter(name, request, shape, dtype, differentiable=True)
        parameter.initialize(init=init.Zero(), ctx=[context])
        return parameter
    if tuple(known.shape) != tuple(shape):
        raise MXNetError(
            f"argument {name}: found shape {tuple(shape)}, expected {tuple(known.shape)}, that of "
            "the Module with which it is shared"
        )
    return known

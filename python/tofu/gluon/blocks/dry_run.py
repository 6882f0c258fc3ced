"""Finds the graphs that a script trains, without running them (``tofu plan SCRIPT``).

In a dry run, a block that would run partitioned gives zeros in place of its outputs, recorded as
if they were computed; nothing is differentiated or updated. The script goes on until every
Trainer has been asked for a step, so the nets that it trains in turn are all found. Parameters
and their gradients are zeros that take no memory until they are written to, so that a net may be
larger than this machine::

    with DryRun(found.append):
        runpy.run_path("gan.py")        # raises DryRunEnded
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.gluon.session.arrays import classic, shown
from tofu.gluon.session.autograd_hooks import in_graph, record_function
from tofu.gluon.session.session import Session, looking
from tofu.plans import Problem

from . import trace_check
from .block import PartitionedBlock

__all__ = ["DryRun", "DryRunEnded"]

_OUTPUT = "output"
# Calls allowed per block before a Trainer must step (gradient accumulation).
_MOST_CALLS = 16


class DryRunEnded(BaseException):
    """Ends the script when all graphs are found."""


class _Seen(BaseException):
    """Stops before a graph is planned."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem


@contextlib.contextmanager
def _cpu_for_gpus() -> Iterator[None]:
    """Let the CPU stand for the GPUs that a script names, if MXNet sees none."""
    types = mx.Context.devstr2type
    before = dict(types)
    if not mx.context.num_gpus():
        types["gpu"] = types["cpu"]
    try:
        yield
    finally:
        types.update(before)


class DryRun:
    """A context in which blocks give zeros; tofu must be enabled in it.

    Args:
        on_problem: called once with every training graph, named after its block.

    Attributes:
        states: tensors of the parameter's size that the script's Trainers keep for a parameter,
            the most of any; None if there is no Trainer yet.
    """

    def __init__(self, on_problem: Callable[[Problem], None]) -> None:
        self._on_problem = on_problem
        self._hashes: set[str] = set()
        self._calls: Counter[str] = Counter()
        self._known: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()
        self._trainers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._undo = contextlib.ExitStack()
        self.states: Optional[int] = None

    def __enter__(self) -> DryRun:
        self._undo.enter_context(looking(problem=_stop))
        self._undo.enter_context(_cpu_for_gpus())
        seams = [
            (PartitionedBlock, "run", self._run),
            (trace_check, "difference", _without_difference),
            (gluon.Parameter, "_finish_deferred_init", _without_values),
            (gluon.Parameter, "_init_grad", _without_gradient),
            (gluon.Parameter, "cast", _without_copies),
            (gluon.Trainer, "__init__", self._init),
            (gluon.Trainer, "step", self._step),
            (gluon.Trainer, "update", self._step),
            (nd.NDArray, "backward", _nothing),
            (autograd, "backward", _nothing),
            (autograd, "grad", _end),
        ]
        for owner, name, replacement in seams:
            original = getattr(owner, name)
            self._undo.callback(setattr, owner, name, original)
            setattr(owner, name, replacement(original))
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.close()

    def _run(self, original: Any) -> Any:
        def run(
            block: Any, arrays: Sequence[Any], current: Session, **options: Any
        ) -> Optional[list[Any]]:
            graphs = self._known.setdefault(block, {})
            key = _key(arrays)
            if key not in graphs:
                try:
                    results: Optional[list[Any]] = original(block, arrays, current, **options)
                    return results
                except _Seen as seen:
                    graphs[key] = seen.problem.graph
                    self._note(seen.problem)
            self._count(graphs[key])
            return _zeros(block, arrays, graphs[key])

        return run

    def _note(self, problem: Problem) -> None:
        graph = problem.graph
        is_training = any(role.startswith("gradient:") for role in graph.head_roles)
        if is_training and graph.hash not in self._hashes:
            self._hashes.add(graph.hash)
            self._on_problem(problem)

    def _count(self, graph: _core.Graph) -> None:
        """End the script when it trains a graph again; without a Trainer, that is the next step."""
        if autograd.is_recording() and graph.hash in self._hashes:
            self._calls[graph.hash] += 1
            if self._calls[graph.hash] > (_MOST_CALLS if self._trainers else 1):
                raise DryRunEnded

    def _init(self, original: Any) -> Any:
        def init(trainer: Any, *args: Any, **options: Any) -> None:
            original(trainer, *args, **options)
            self._trainers.add(trainer)
            self.states = max(self.states or 0, _states(trainer._optimizer))

        return init

    def _step(self, original: Any) -> Any:
        def step(trainer: Any, *args: Any, **options: Any) -> None:
            self._trainers.add(trainer)
            again = trainer in self._stepped
            self._stepped.add(trainer)
            if self._hashes and (again or len(self._stepped) == len(self._trainers)):
                raise DryRunEnded

        return step


def _states(optimizer: Any) -> int:
    """The tensors that an optimizer keeps for a parameter, beside a copy in higher precision."""
    try:
        state = optimizer.create_state(0, nd.zeros((1, 1)))
    except Exception:  # of the user's own optimizer, which may want other weights
        return 0
    return len(state) if isinstance(state, (list, tuple)) else int(state is not None)


class _Zeros:
    """The initial value of a parameter, as Parameter._init_impl asks for it."""

    def __init__(self, parameter: Any) -> None:
        self._shape, self._dtype = parameter.shape, np.dtype(parameter.dtype)

    def copyto(self, ctx: Any) -> Any:
        """Zeros on a device. A CPU has no memory for them before something is written."""
        numpy = mx.util.is_np_array()
        if ctx != mx.cpu():
            zeros_of = mx.np.zeros if numpy else nd.zeros
            return zeros_of(self._shape, dtype=self._dtype, ctx=ctx)
        zeros = np.zeros(self._shape, self._dtype)
        return nd.from_numpy(zeros, array_cls=mx.np.ndarray if numpy else nd.NDArray)


def _without_values(original: Any) -> Any:
    def finish(parameter: Any) -> None:
        *initializers, data = parameter._deferred_init or (None,)
        is_dense = parameter._stype == "default" and gluon.utils.shape_is_known(parameter.shape)
        if initializers and data is None and is_dense:
            parameter._deferred_init = (*initializers, _Zeros(parameter))
        original(parameter)

    return finish


def _without_gradient(original: Any) -> Any:
    def init(parameter: Any) -> None:
        if parameter.grad_req == "null" or parameter._grad_stype != "default":
            original(parameter)
            return
        zeros = _Zeros(parameter)
        parameter._grad = [zeros.copyto(array.ctx) for array in parameter._data]
        autograd.mark_variables(parameter.list_data(), parameter._grad, parameter.grad_req)

    return init


def _without_copies(original: Any) -> Any:
    def cast(parameter: Any, dtype: Any) -> None:
        if parameter._data is None or parameter._stype != "default":
            original(parameter, dtype)
            return
        parameter._dtype = dtype
        zeros = _Zeros(parameter)
        parameter._data = [zeros.copyto(array.ctx) for array in parameter._data]
        parameter._init_grad()

    return cast


def _stop(problem: Problem) -> None:
    raise _Seen(problem)


def _key(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The key of the graph that a block's call uses."""
    is_recording = autograd.is_recording()
    inputs = (
        (array.shape, array.dtype, is_recording and in_graph(classic(array))) for array in arrays
    )
    return (*inputs, autograd.is_training(), is_recording)


def _zeros(block: PartitionedBlock, arrays: Sequence[Any], graph: _core.Graph) -> list[Any]:
    """The outputs of a call, with their place in autograd's graph but no values."""
    nodes = graph.nodes
    outputs = []
    for (number, output), role in zip(graph.heads, graph.head_roles):
        if role == _OUTPUT:
            shape, dtype = nodes[number].outputs[output]
            outputs.append(nd.zeros(shape, ctx=arrays[0].ctx, dtype=dtype_name(dtype)))
    if autograd.is_recording():
        inputs = [classic(array) for array in arrays]
        inputs = [array for array in inputs if in_graph(array)]
        inputs += [classic(p.data()) for p in block.parameters if p.grad_req != "null"]
        if inputs:
            record_function(inputs, outputs, _no_gradients)
    return shown(outputs, numpy=block.gives_numpy)


def _no_gradients(heads: list[Any], gradients: list[Any], requests: list[int]) -> None:
    """Nothing asks for gradients in a dry run."""


def _nothing(original: Any) -> Any:
    def backward(*args: Any, **options: Any) -> None:
        return None

    return backward


def _end(original: Any) -> Any:
    def grad(*args: Any, **options: Any) -> None:
        raise DryRunEnded

    return grad


def _without_difference(original: Any) -> Any:
    def difference(*args: Any, **options: Any) -> None:
        return None  # zeros differ from the results of the block's code

    return difference

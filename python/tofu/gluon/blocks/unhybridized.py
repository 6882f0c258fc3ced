"""Runs blocks partitioned that were never hybridized.

An outermost HybridBlock, or an nn.Sequential of them, is traced when a script first calls it
while autograd records, and partitioned from then on. Every call looks whether the trace
still holds (tofu.gluon.blocks.attributes). The first call of each signature also runs the block's
own code, not recorded, and compares the results. A block that fails either runs as MXNet
would run it, and the blocks inside it are tried one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Callable, Optional

import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon import HybridBlock, SymbolBlock, nn
from mxnet.gluon import loss as gluon_loss
from mxnet.ndarray import NDArray

from tofu import _core
from tofu.errors import PlanError
from tofu.gluon.session import block_report, messages
from tofu.gluon.session.session import Session, active
from tofu.gluon.session.state import State
from tofu.gluon.training import outputs
from tofu.gluon.training.parameter import check_tileable, is_tiled, untile
from tofu.mx.graphs.infer import infer_shapes, infer_types
from tofu.mx.nnvm import symbol_text

from . import attributes, nesting, trace_check
from .block import PartitionedBlock, untie
from .block_trace import Graph, UntraceableError, trace
from .reach import Reach, of_traced

__all__ = ["forward"]

# The most traces kept per block; an attribute that changes all the time would make more.
_MAX_TRACES = 32
_HOOKS = "a hook watches {}, which tracing would call once; register it on the outermost block"
_RESTLESS = (
    f"its attributes, or globals that it reads, have had more than {_MAX_TRACES} values; pass "
    "what changes in every call as an array"
)

Forward = Callable[..., Any]


class _TracedBlock(PartitionedBlock):
    """A traced block; where the blocks inside it can be tried, its caller tells why it is serial.

    Attributes:
        keeps_reason: whether to keep the reason for the caller instead of warning.
        reason: why its last serial run was one.
    """

    keeps_reason = False
    reason: Optional[str] = None

    def warn_serial(self, reason: str, current: Session) -> None:
        """Warn, or keep the reason."""
        self.reason = reason
        if not self.keeps_reason:
            super().warn_serial(reason, current)


@dataclasses.dataclass(eq=False)
class _Trace:
    """A block's trace, or the reason against one, for certain values of its attributes.

    Attributes:
        key: these values, the nesting of the arguments, and autograd's modes.
        sources: where the code reads other values, which were `values` at the time.
        graph, partitioned: the trace and the block that runs it; None if there is a `reason`.
        check: how a first call is compared, one of ``_VALUES``, ``_PREDICTIONS``, ``_SHAPES``.
        checked: the shapes and types whose first call has been compared.
        reaches: results of ``reach``, by which blocks were hybridized.
    """

    key: list[Any]
    sources: list[attributes.Source]
    values: list[Any]
    graph: Optional[Graph] = None
    partitioned: Optional[_TracedBlock] = None
    reason: Optional[str] = None
    check: str = ""
    checked: set[Any] = dataclasses.field(default_factory=set)
    reaches: dict[tuple[bool, ...], Reach] = dataclasses.field(default_factory=dict)

    def reach(self, inside: Sequence[Any]) -> Reach:
        """The variables that autograd would reach from each output.

        inside: the block and all blocks inside it.
        """
        assert self.graph is not None
        hybridized = tuple(getattr(each, "_active", False) for each in inside)
        if hybridized not in self.reaches:
            self.reaches[hybridized] = of_traced(self.graph.symbol, inside)
        return self.reaches[hybridized]

    def refuse(self, reason: str) -> None:
        """Let the block's own code run from now on."""
        self.graph = self.partitioned = None
        self.reason = reason


@dataclasses.dataclass(eq=False)
class BlockTraces:
    """A block's traces, the last used one first, and the warnings given for it.

    Attributes:
        was_called: whether a block without parameters has been called with tiles before.
        is_whole: whether it runs as MXNet would run it from now on.
    """

    traces: list[_Trace] = dataclasses.field(default_factory=list)
    told: set[str] = dataclasses.field(default_factory=set)
    was_called: bool = False
    is_whole: bool = False

    def is_partitioned(self) -> bool:
        """Whether it has run partitioned."""
        return any(trace.partitioned is not None for trace in self.traces)


# A first call compares results if the graph draws no random numbers, a prediction's results if it
# draws them only in training, or else shapes and types.
_VALUES, _PREDICTIONS, _SHAPES = "values", "predictions", "shapes"


def forward(original: Forward) -> Forward:
    """Wrap HybridBlock.forward and nn.Sequential.forward: run partitioned if a trace exists."""

    def forward(self: Any, x: Any, *args: Any) -> Any:
        session = active()
        if session is None or not _is_candidate(self, (x, *args), session):
            return original(self, x, *args)
        return _run(self, original, (x, *args), session)

    return forward


def _is_candidate(block: Any, args: Sequence[Any], session: Session) -> bool:
    """Whether to look for a trace: the script calls the block with arrays, not hybridized."""
    calls = session.state.depth
    if getattr(block, "_active", False):
        session.state.traces.pop(block, None)
        return False
    if not session.hybridize or not _has_arrays(args):
        return False
    if calls.quiet:
        if not calls.untold:
            calls.handled.add(id(block))
        return False
    if isinstance(block, SymbolBlock) or not _is_whole(block):
        return False
    block_traces = session.state.traces.get(block)
    if autograd.is_recording() or (block_traces is not None and block_traces.is_partitioned()):
        return True
    return not calls.inside and any(map(is_tiled, _parameters(attributes.blocks_in(block))))


def _run(block: Any, original: Forward, args: tuple[Any, ...], session: Session) -> Any:
    state = session.state
    if block in state.blocks:  # was hybridized, which the script has taken back
        with _quietly(state, handled=False):
            return original(block, *args)
    state.depth.handled.add(id(block))
    state.calls.free()
    inside = attributes.blocks_in(block)
    parameters = _parameters(inside)
    if block in state.traces and state.traces[block].is_whole:
        with _quietly(state):
            return original(block, *args)
    has_parameters = any(p.grad_req != "null" or is_tiled(p) for p in parameters)
    if not has_parameters and not (_is_divided(args) and _is_kept(block, state)):
        with _quietly(state):
            return original(block, *args)
    try:
        arrays, pattern = _arrays(args)
        _check_hooks(inside)
        with state.preparing:
            current = _find(block, original, inside, pattern, arrays, state)
        if current.reason is not None:
            raise UntraceableError(current.reason)
        return _run_traced(block, original, args, arrays, current, session)
    except UntraceableError as error:
        if autograd.is_recording() and has_parameters:
            _tell(block, str(error), session)
    state.depth.inside += 1
    try:
        return original(block, *args)
    finally:
        state.depth.inside -= 1


def _run_traced(
    block: Any,
    original: Forward,
    args: tuple[Any, ...],
    arrays: Sequence[Any],
    current: _Trace,
    session: Session,
) -> Any:
    """Return a call's results.

    Raises UntraceableError if the trace computes something else, or cannot be partitioned whole.
    """
    assert current.graph is not None and current.partitioned is not None
    graph, partitioned, state = current.graph, current.partitioned, session.state
    signature = _signature(graph, arrays)
    results = None
    if partitioned.wanted() or _is_divided(arrays):
        first = _First(block, original, args, arrays, session)
        can_be_tiled = _can_be_tiled(partitioned.parameters, arrays)
        partitioned.keeps_reason = can_be_tiled and len(attributes.blocks_in(block)) > 1
        if signature not in current.checked and can_be_tiled:
            if current.check == _SHAPES:
                eager = first.compare_shapes(current)
                current.checked.add(signature)
                return eager
            if type(block).__module__ != gluon_loss.__name__:  # would gather the outputs of a net
                first.compare(current)
            current.checked.add(signature)
        if all(parameter._data is not None for parameter in partitioned.parameters):
            repeat = _repeater(block, original, args, current, session)
            reach = current.reach(attributes.blocks_in(block))
            results = partitioned.run(arrays, session, repeat=repeat, reach=reach)
            if results is None and partitioned.keeps_reason:
                raise UntraceableError(str(partitioned.reason))
    if results is None:
        with _quietly(state):
            return partitioned.run_serially(lambda: original(block, *args))
    graph.apply_effects()
    return nesting.rebuild(graph.outputs, results)


def _repeater(
    block: Any, original: Forward, args: tuple[Any, ...], current: _Trace, session: Session
) -> Optional[Callable[[], Sequence[Any]]]:
    """Return a function that runs a recorded call as MXNet would, for gradients of gradients.

    It returns the call's arrays. From then on the block runs so. None if it draws random numbers.
    """
    if current.check != _VALUES or not autograd.is_recording():
        return None
    train_mode = autograd.is_training()

    def repeat() -> Sequence[Any]:
        name = block.name or type(block).__name__
        reason = "autograd.grad asks for gradients of its gradients"
        messages.check_serial(name, reason, session)
        messages.warn_serial(name, reason)
        session.state.traces[block].is_whole = True
        with _quietly(session.state), autograd.record(train_mode=train_mode):
            arrays, _ = nesting.flatten(original(block, *args))
        return arrays

    return repeat


class _First:
    """The first call of a signature, which checks the trace against the block's code."""

    def __init__(
        self,
        block: Any,
        original: Forward,
        args: tuple[Any, ...],
        arrays: Sequence[Any],
        session: Session,
    ) -> None:
        self._block, self._original, self._args = block, original, args
        self._arrays, self._session = arrays, session

    def compare(self, current: _Trace) -> None:
        """Run code and trace. If they differ, undo the calls and raise UntraceableError."""
        assert current.graph is not None and current.partitioned is not None
        graph, partitioned = current.graph, current.partitioned
        parameters = list(graph.parameters.values())
        tiled = {parameter.name for parameter in parameters if is_tiled(parameter)}
        is_training = autograd.is_training() and current.check == _VALUES
        statistics = set(graph.symbol.list_auxiliary_states())
        saved = _Saved([p for p in parameters if p.name in statistics])
        try:
            eager = self._run_code(is_training=is_training)
            is_trial = autograd.is_recording()
            with autograd.pause(train_mode=is_training):
                results = partitioned.run(self._arrays, self._session, is_trial=is_trial)
        except MXNetError as error:
            if not _is_out_of_memory(error):
                raise
            return  # a block that fits only in parts cannot be compared
        finally:
            saved.restore()
        if results is None:
            return
        text = trace_check.difference(eager, nesting.rebuild(graph.outputs, results))
        partitioned.release_last()
        if text is not None:
            current.refuse(f"its trace computes something else than its code: {text}")
            del results
            for parameter in parameters:
                if is_tiled(parameter) and parameter.name not in tiled:
                    untile(parameter)
            raise UntraceableError(str(current.reason))

    def compare_shapes(self, current: _Trace) -> Any:
        """Run only the code, as the script would, and compare shapes and types with the trace."""
        assert current.graph is not None
        with _quietly(self._session.state):
            results = self._original(self._block, *self._args)
        arrays, pattern = nesting.flatten(results)
        expected = _inferred(current.graph, self._arrays)
        text = trace_check.difference_of_shapes(arrays, pattern, expected, current.graph.outputs)
        if text is not None:
            current.refuse(f"its trace computes something else than its code: {text}")
            _tell(self._block, str(current.reason), self._session)
        return results

    def _run_code(self, *, is_training: bool) -> Any:
        with (
            _quietly(self._session.state, checking=True),
            autograd.pause(train_mode=is_training),
        ):
            return self._original(self._block, *self._args)


class _Saved:
    """The values of running statistics; the first value of those that get one later."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._values: list[tuple[Any, Any]] = []
        self._begun = [p for p in parameters if p._data is None]
        with autograd.pause():
            for parameter in parameters:
                if parameter._data is None:
                    parameter._init_impl = self._noting(parameter)
                else:
                    self._values.append((parameter, parameter.data().asnumpy()))

    def _noting(self, parameter: Any) -> Callable[..., None]:
        def noting(data: Any, ctx_list: Any) -> None:
            self._values.append((parameter, data.asnumpy()))
            type(parameter)._init_impl(parameter, data, ctx_list)

        return noting

    def restore(self) -> None:
        """Set changed statistics back."""
        for parameter in self._begun:
            vars(parameter).pop("_init_impl", None)
        with autograd.pause():
            for parameter, before in self._values:
                if parameter.data().asnumpy().tobytes() != before.tobytes():
                    parameter.set_data(before)


def _quietly(state: State, *, handled: bool = True, checking: bool = False) -> _core.Changed:
    """Run blocks as they are inside this context.

    handled: whether the user need not be warned.
    checking: whether hybridized blocks run as they are, too.
    """
    checking = checking or state.depth.checking
    return _core.Changed(state.depth, quiet=True, untold=not handled, checking=checking)


def _find(
    block: Any,
    original: Forward,
    inside: list[Any],
    pattern: Any,
    arrays: Sequence[Any],
    state: State,
) -> _Trace:
    """Return the trace that holds now; make it if there is none."""
    block_traces: BlockTraces = state.traces.setdefault(block, BlockTraces())
    key = [pattern, autograd.is_training(), autograd.is_recording(), *attributes.read(inside)]
    for candidate in block_traces.traces:
        if candidate.key == key and attributes.read_sources(candidate.sources) == candidate.values:
            if candidate is not block_traces.traces[0]:
                block_traces.traces.remove(candidate)
                block_traces.traces.insert(0, candidate)
            return candidate
    sources = attributes.sources(inside)
    new = _Trace(key, sources, attributes.read_sources(sources))
    if len(block_traces.traces) >= _MAX_TRACES:
        new.refuse(_RESTLESS)
        return new
    try:
        new.graph = trace(block, original, pattern, arrays)
    except UntraceableError as error:
        new.refuse(str(error))
    else:
        new.check = _kind_of_check(new.graph, state)
        new.partitioned = _equal_one(new.graph, block_traces) or _TracedBlock(new.graph)
        block.apply(untie)
    block_traces.traces.insert(0, new)
    return new


def _equal_one(graph: Graph, block_traces: BlockTraces) -> Optional[_TracedBlock]:
    """The block that runs an equal graph, traced in another mode or with other values."""
    text = symbol_text(graph.symbol)
    for candidate in block_traces.traces:
        if (
            candidate.graph is not None
            and candidate.graph._cached_op_args == graph._cached_op_args
            and symbol_text(candidate.graph.symbol) == text
        ):
            return candidate.partitioned
    return None


def _kind_of_check(graph: Graph, state: State) -> str:
    """Choose a check that draws none of the script's random numbers."""
    draws = {_draws(op, attrs, state) for op, attrs in graph.operators()}
    if "always" in draws or graph.reads_recording:
        return _SHAPES
    if "in training" in draws and autograd.is_training():
        return _SHAPES if graph.reads_training else _PREDICTIONS
    return _VALUES


def _draws(op: str, attrs: Any, state: State) -> str:
    """Whether an operator draws random numbers: "never", "always" (or unknown) or "in training"."""
    if op == "Dropout":
        drops = float(attrs.get("p", 0.5)) > 0
        return (
            "never" if not drops else "always" if attrs.get("mode") == "always" else "in training"
        )
    if op == "RNN":
        return "in training" if float(attrs.get("p", 0)) > 0 else "never"
    if op == "LeakyReLU":
        return "in training" if attrs.get("act_type") == "rrelu" else "never"
    return "always" if op == "Custom" or state.backend.is_random(op) else "never"


def _tell(block: Any, reason: str, session: Session) -> None:
    block_traces = session.state.traces.setdefault(block, BlockTraces())
    if reason not in block_traces.told:
        block_report.untraced(block.name or type(block).__name__, reason, session)
        block_traces.told.add(reason)


def _has_arrays(args: Any) -> bool:
    if isinstance(args, (list, tuple)):
        return any(map(_has_arrays, args))
    return isinstance(args, NDArray)


def _is_divided(args: Any) -> bool:
    """Whether there is an output of another block among the arguments that is still tiles."""
    if isinstance(args, (list, tuple)):
        return any(map(_is_divided, args))
    return isinstance(args, NDArray) and outputs.is_divided(args)


def _is_kept(block: Any, state: State) -> bool:
    """Whether a block without parameters is called again: many scripts make a loss per step."""
    block_traces: BlockTraces = state.traces.setdefault(block, BlockTraces())
    was_called, block_traces.was_called = block_traces.was_called, True
    return was_called


def _is_whole(block: Any) -> bool:
    """Whether a block can be traced in one piece: not a Sequential with other blocks in it."""
    if isinstance(block, HybridBlock):
        return True
    return all(
        _is_whole(child) and not getattr(child, "_active", False)
        if isinstance(child, (HybridBlock, nn.Sequential))
        else False
        for child in block._children.values()
    )


def _parameters(inside: Sequence[Any]) -> list[Any]:
    by_id = {id(p): p for block in inside for p in block._reg_params.values()}
    return list(by_id.values())


def _arrays(args: tuple[Any, ...]) -> tuple[list[Any], Any]:
    try:
        return nesting.flatten(args)
    except TypeError as error:
        raise UntraceableError(f"an argument is {error}") from None


def _check_hooks(inside: Sequence[Any]) -> None:
    """Raise UntraceableError for hooks: tracing would call them once, with symbols."""
    for block in inside[1:]:
        if block._forward_hooks or block._forward_pre_hooks:
            raise UntraceableError(_HOOKS.format(block.name))


def _can_be_tiled(parameters: Iterable[Any], arrays: Sequence[Any]) -> bool:
    """Whether the block can run partitioned; if not, its run says why."""
    try:
        for parameter in parameters:
            if not is_tiled(parameter) and parameter._data is not None:
                check_tileable(parameter)
    except PlanError:
        return False
    return all(array.stype == "default" for array in arrays)


def _signature(graph: Graph, arrays: Sequence[Any]) -> Any:
    return (
        *((array.shape, np.dtype(array.dtype).name) for array in arrays),
        *(np.dtype(parameter.dtype).name for parameter in graph.parameters.values()),
    )


def _inferred(graph: Graph, arrays: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Shape and type of each output of a trace."""
    values = dict(zip(graph.input_names, arrays))
    values.update((name, p) for name, p in graph.parameters.items())
    values = {name: values[name] for name in graph.symbol.list_inputs()}
    _, shapes, _ = infer_shapes(graph.symbol, {name: each.shape for name, each in values.items()})
    _, dtypes, _ = infer_types(graph.symbol, {name: each.dtype for name, each in values.items()})
    return list(zip(shapes, map(np.dtype, dtypes)))


def _is_out_of_memory(error: MXNetError) -> bool:
    return "memory" in str(error).lower()

"""A Module's executor, run partitioned.

It has the attributes and methods of ``mx.executor.Executor`` that the Module API uses. Its
arguments are Gluon's Parameters, so they become tiles, and its calls go through
``PartitionedBlock``, as those of a hybridized block do. Values and gradients of parameters are
gathered when something reads them.

Its symbol's graph has the gradients of all parameters, and of the inputs for which the Module asks.
Design: docs/design/0025-modules.md.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
from mxnet import autograd, nd
from mxnet.base import MXNetError

from tofu.gluon.blocks.block import PartitionedBlock
from tofu.gluon.session import messages
from tofu.gluon.session.session import Session, active
from tofu.gluon.training import outputs
from tofu.gluon.training.gradients import arrays_without_memory
from tofu.gluon.training.parameter import is_tiled, untile

from .whole import on_copies, on_parameters

__all__ = ["Mode", "PartitionedExecutor"]


@dataclasses.dataclass
class Mode:
    """How executors that share parameters run.

    Attributes:
        is_whole: whether all run on MXNet's own executors.
    """

    is_whole: bool = False


class PartitionedExecutor:
    """An executor on one context of the script, whose graph runs over the workers.

    Args:
        symbol: the symbol.
        context: the script's context.
        parameters: its parameters and auxiliary states by name.
        inputs: its other arguments by name, whole.
        requests: how the gradients of those inputs that have one are written.
        mode: of the executors with which it shares parameters.
        block: runs it; None makes one.

    Attributes:
        outputs: of the last forward pass; before it, arrays of their shapes without values.
        mode: how it runs.
        monitors: the Monitors that are installed. A forward pass that one of them watches runs
            once more, whole, since it reads every operator's result.
    """

    def __init__(
        self,
        symbol: Any,
        context: Any,
        parameters: Mapping[str, Any],
        inputs: Mapping[str, Any],
        requests: Mapping[str, str],
        mode: Optional[Mode] = None,
        block: Optional[PartitionedBlock] = None,
    ) -> None:
        self._symbol, self._ctx = symbol, context
        self.parameters = dict(parameters)
        self.inputs = dict(inputs)
        self._requests = dict(requests)
        for name, request in requests.items():
            if self.inputs[name].grad is None:
                self.inputs[name].attach_grad(request)
        self.outputs = _outputs_to_come(symbol, context, self)
        self._heads: list[Any] = []
        self.monitors: list[Any] = []
        self._callback: Optional[tuple[Any, bool]] = None
        self._plain: Any = None  # MXNet's executor, on whole parameters
        self._whole: Any = None  # the same, if the last pass ran there
        self._watched: Any = None
        self.mode = Mode() if mode is None else mode
        self._block = self._new_block() if block is None else block

    @property
    def arg_arrays(self) -> list[Any]:
        """All arguments, whole, in the symbol's order."""
        return [self._value(name) for name in self._symbol.list_arguments()]

    @property
    def grad_arrays(self) -> list[Any]:
        """The arguments' gradients, whole; None for those without."""
        return [self._gradient(name) for name in self._symbol.list_arguments()]

    @property
    def aux_arrays(self) -> list[Any]:
        """All auxiliary states, whole."""
        return [self._value(name) for name in self._symbol.list_auxiliary_states()]

    @property
    def arg_dict(self) -> dict[str, Any]:
        """All arguments by name."""
        return dict(zip(self._symbol.list_arguments(), self.arg_arrays))

    @property
    def grad_dict(self) -> dict[str, Any]:
        """The arguments' gradients by name."""
        return dict(zip(self._symbol.list_arguments(), self.grad_arrays))

    @property
    def aux_dict(self) -> dict[str, Any]:
        """The auxiliary states by name."""
        return dict(zip(self._symbol.list_auxiliary_states(), self.aux_arrays))

    @property
    def output_dict(self) -> dict[str, Any]:
        """The outputs by name."""
        return dict(zip(self._symbol.list_outputs(), self.outputs))

    def stay_whole(self, reason: str) -> None:
        """Run on MXNet's own executor from now on, after a warning with the reason.

        Raises:
            ConfigError: a setting forbids that.
        """
        session = active()
        if session is not None:
            self._block.warn_serial(reason, session)
        self.mode.is_whole = True
        for parameter in filter(is_tiled, self.parameters.values()):
            untile(parameter)

    def forward(self, is_train: bool = False) -> list[Any]:
        """Compute the outputs."""
        self._whole = self._watched = None
        session = active()
        mode = autograd.record(True) if is_train else autograd.pause(train_mode=False)
        with mode:
            self._compute(is_train=is_train)
        if session is not None and self._is_watched():
            self._watched = self._watch(session, is_train=is_train)
        return self.outputs

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Compute the gradients of the last forward pass.

        Raises:
            MXNetError: an output is no loss, and its gradient is not given.
        """
        given = [out_grads] if isinstance(out_grads, nd.NDArray) else list(out_grads or ())
        if self._watched is not None:
            self._watched.backward(given, is_train)
        if self._whole is not None:
            self._whole.backward(given, is_train)
        else:
            self._differentiate(given)

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **shapes: Any
    ) -> PartitionedExecutor:
        """Return an executor for inputs of other shapes; it has the same parameters.

        Raises:
            MXNetError: a parameter, or an input without a new shape, would get another shape.
        """
        needed, _, _ = self._symbol.infer_shape(**shapes)
        inputs = {}
        for name, shape in zip(self._symbol.list_arguments(), needed):
            is_same = _shape_of(self, name) == tuple(shape)
            if name not in shapes and not is_same:
                raise MXNetError(
                    f"reshape: argument {name}: found shape {_shape_of(self, name)}, expected "
                    f"{tuple(shape)}, which the inputs' new shapes need; bind the Module again"
                )
            if name in self.inputs:
                present = self.inputs[name]
                inputs[name] = present if is_same else nd.zeros(shape, self._ctx, present.dtype)
        other = PartitionedExecutor(
            self._symbol,
            self._ctx,
            self.parameters,
            inputs,
            self._requests,
            self.mode,
            self._block,
        )
        other.monitors, other._callback = self.monitors, self._callback
        return other

    def copy_params_from(
        self,
        arg_params: Mapping[str, Any],
        aux_params: Optional[Mapping[str, Any]] = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Set parameters and auxiliary states.

        Raises:
            ValueError: there is none of a name, unless that is allowed.
        """
        arguments, auxiliary = self._symbol.list_arguments(), self._symbol.list_auxiliary_states()
        for kind, names, values in (
            ("arguments", arguments, arg_params),
            ("auxiliary states", auxiliary, aux_params or {}),
        ):
            for name, array in values.items():
                if name in names:
                    self._set(name, array)
                elif not allow_extra_params:
                    raise ValueError(f'Find name "{name}" that is not in the {kind}')

    def set_monitor_callback(self, callback: Any, monitor_all: bool = False) -> None:
        """Call a function with every operator's result, computed whole on the script's context."""
        self._callback = callback, monitor_all

    def _new_block(self) -> PartitionedBlock:
        names = self._symbol.list_inputs()
        places = {name: number for number, name in enumerate(self.inputs)}
        arguments = [
            (True, places[name]) if name in places else (False, self.parameters[name])
            for name in names
        ]
        graph = types.SimpleNamespace(
            name=f"module {self._symbol.name or self._symbol.list_outputs()[0]}",
            _cached_graph=(list(self.inputs), self._symbol),
            _cached_op=None,
            _cached_op_args=arguments,
        )
        return PartitionedBlock(graph)

    def _value(self, name: str) -> Any:
        return self.parameters[name].data() if name in self.parameters else self.inputs[name]

    def _gradient(self, name: str) -> Any:
        if name in self.inputs:
            return self.inputs[name].grad
        parameter = self.parameters[name]
        return None if parameter.grad_req == "null" else parameter.grad()

    def _set(self, name: str, array: Any) -> None:
        if name in self.parameters:
            parameter = self.parameters[name]
            parameter.set_data(array.astype(parameter.dtype, copy=False))
        else:
            array.astype(self.inputs[name].dtype).copyto(self.inputs[name])

    def _compute(self, *, is_train: bool) -> None:
        """Compute the outputs, in autograd's present mode."""
        session, results = active(), None
        if session is not None:  # a backward pass is one of the last forward pass
            origins = map(outputs.origin, self.outputs)
            session.state.calls.end({each.serial for each in origins if each is not None})
        self._heads, self.outputs = [], []  # so that their program can run again
        if session is not None and not self.mode.is_whole:
            session.state.calls.free()
            results = self._block.run(list(self.inputs.values()), session)
        if results is None:
            self._block.run_serially(lambda: self._run_whole(is_train=is_train))
            results = self._whole.outputs
        self._heads = [outputs.look(result) for result in results]
        self.outputs = results

    def _run_whole(self, *, is_train: bool) -> None:
        is_divided = any(map(is_tiled, self.parameters.values()))
        if self._plain is None or is_divided:
            self._plain = on_parameters(
                self._symbol, self._ctx, self.parameters, self.inputs, self._requests
            )
        self._whole = self._plain
        self._whole.forward(is_train=is_train)

    def _is_watched(self) -> bool:
        if self._callback is None:
            return False
        return not self.monitors or any(monitor.activated for monitor in self.monitors)

    def _watch(self, session: Session, *, is_train: bool) -> Any:
        """Run the pass once more, whole, for a Monitor."""
        if "monitor" not in session.state.told:
            session.state.told.add("monitor")
            messages.warn(
                f"{self._block.name}: a batch that a Monitor watches is also computed whole on "
                f"{self._ctx}, as the Monitor reads the result of every operator"
            )
        watched = on_copies(self._symbol, self._ctx, self.parameters, self.inputs, self._requests)
        assert self._callback is not None
        watched.set_monitor_callback(*self._callback)
        watched.forward(is_train=is_train)
        return watched

    def _differentiate(self, given: Sequence[Any]) -> None:
        if any(head.token is None for head in self._heads):  # the pass was for prediction
            with autograd.record(train_mode=False):
                self._compute(is_train=False)
        missing = [number for number in self._block.head_gradients_read() if number >= len(given)]
        if missing:
            raise MXNetError(
                f"{self._block.name}: backward: output {self._symbol.list_outputs()[missing[0]]} "
                "is no loss, so its head gradient is required; pass out_grads to backward(), or "
                "make it a loss with make_loss"
            )
        # A loss ignores the gradient of its output, but a backward pass starts at one.
        ignored = [nd.ones((1,), ctx=self._ctx)] * (len(self._heads) - len(given))
        outputs.differentiate(self._heads, [*given, *ignored])


def _outputs_to_come(symbol: Any, context: Any, executor: PartitionedExecutor) -> list[Any]:
    """Arrays that have an executor's outputs' shapes, and memory once something writes there."""
    known = {name: _shape_of(executor, name) for name in symbol.list_arguments()}
    _, shapes, _ = symbol.infer_shape(**known)
    return arrays_without_memory(
        [types.SimpleNamespace(shape=s, context=context, dtype=np.float32) for s in shapes]
    )


def _shape_of(executor: PartitionedExecutor, name: str) -> tuple[int, ...]:
    value = executor.parameters.get(name)
    return tuple((executor.inputs[name] if value is None else value).shape)

"""Partitioned computations in MXNet's autograd graph; gradients stay on their workers.

MXNet allocates all gradients of a recorded function on one context. A partitioned
computation has inputs on many contexts (its parameters' tiles), so it is recorded as

    tiles on worker 0 ──> gate 0 ──token──┐
    tiles on worker 1 ──> gate 1 ──token──┼──> the computation ──> outputs
    inputs of the script ─────────────────┘

Tokens are single numbers. In the backward pass, the computation keeps the tiles'
gradients, and each gate hands its worker's gradients to MXNet, which writes or adds them
as the parameters' ``grad_req`` says. This needs an MXNet array and a copy for every
gradient. So gradients that are overwritten bypass the gates: the computation delivers
them itself (tofu.gluon.training.gradients).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Callable, NamedTuple, Optional

from mxnet import nd
from mxnet.base import MXNetError
from mxnet.ndarray import NDArray
from mxnet.util import is_np_shape, np_shape

from tofu.errors import GradientError, InternalError
from tofu.gluon.session.autograd_hooks import (
    NULL,
    Function,
    inputs_of,
    record_function,
    write_gradient,
)
from tofu.gluon.session.backward_calls import BackwardCalls, variable

from .outputs import HeadGradient

__all__ = ["Bypass", "Order", "Recording"]

# Maps head gradients (None for heads that the backward call does not reach) to the gradients of the
# inputs and of the tiles (None for those that it does not reach from there), and to a function that
# delivers the other gradients, given the recording's number. The gradients of an input that stays
# tiles, and of heads in ``slots``, are tiles, too.
Differentiate = Callable[
    [list[Any]], tuple[Sequence[Optional[Any]], Sequence[Optional[Any]], Callable[[int], None]]
]

_TURN_S = 1.0  # between a callback's checks whether its backward call has ended
# Seconds to wait for gates, which may never run after an error.
_PATIENCE_S = 5.0


class Order(NamedTuple):
    """The place of a recording among those of one backward call.

    Attributes:
        group: recordings of a group differentiate one after the other, the latest first, so that
            what they do to running statistics is the same in every run; None: in any order.
        lead: identifies the first input if it is a variable of the script's, or None.
    """

    group: Optional[Hashable] = None
    lead: Optional[Hashable] = None


class Bypass(NamedTuple):
    """Gradients that do not go through autograd.

    Attributes:
        slots: for each input that is the token of a block's output, the collector of its
            gradient; None for other inputs.
        heads: for each output, the collector of its gradient and the layout there; the outputs
            are then tokens. None: autograd computes the head gradients.
    """

    slots: Sequence[Optional[HeadGradient]] = ()
    heads: Optional[Sequence[tuple[HeadGradient, Any]]] = None


_ANY_ORDER, _NO_BYPASS = Order(), Bypass()


class Recording:
    """One partitioned computation in autograd's graph, until its last backward pass.

    Args:
        calls: the session's backward calls.
        inputs: arrays on the script's context to differentiate by.
        tiles: arrays on any contexts whose gradients MXNet is to write or add.
        outputs: fresh arrays on the script's context.
        differentiate: the backward pass. Its function that delivers gradients is called if the
            sentinel's gradient is requested, as by every ``backward``.
        order: its place among other recordings.
        bypass: gradients that do not go through autograd.

    Attributes:
        repeat: computes the outputs once more, by operators that autograd records one by one; None
            if they could be others.
    """

    def __init__(
        self,
        calls: BackwardCalls,
        inputs: Sequence[Any],
        tiles: Sequence[Any],
        outputs: Sequence[Any],
        differentiate: Differentiate,
        order: Order = _ANY_ORDER,
        bypass: Bypass = _NO_BYPASS,
    ) -> None:
        self.serial = next(calls.serials)
        self.group, self.lead = order
        self.repeat: Optional[Callable[[], Sequence[Any]]] = None
        self.arrived = threading.Event()
        self._calls = calls
        self._turn = threading.Event()
        self._differentiate = differentiate
        self._num_inputs = len(inputs)
        self._error: Optional[Exception] = None
        self._tile_gradients: Sequence[Optional[Any]] = ()
        self._open_gates: set[int] = set()
        self._closed = threading.Event()
        self._closed.set()
        self._ran = self._has_ended = False
        self._is_abandoned = False
        self._slots = list(bypass.slots) or [None] * len(inputs)
        self._heads = bypass.heads
        # Backward calls that went through here, and callbacks that pushed for one.
        self._asked = self._answered = 0
        self._context = outputs[0].context
        self._scalars = is_np_shape()  # a thread's own, and MXNet calls back on others
        self._function = self._record(list(inputs), tiles, outputs)
        calls.watch(self)

    def finished(self) -> bool:
        """Whether no further backward pass can come and all gradients are handed over.

        True once the graph is gone or a backward pass ran that did not retain it. At that
        point gates may still be about to run on MXNet's threads; this waits for them.
        """
        return self._is_over() and self._closed.wait(_PATIENCE_S)

    def let_go(self) -> None:
        """Drop the program once no further backward pass can come.

        The script may hold the outputs, and with them this recording, for much longer.
        """
        if self._is_over() and self._closed.is_set():
            self._differentiate, self.repeat = _over, None

    def end(self) -> None:
        """Count on no further backward pass, whoever holds the outputs."""
        self._has_ended = True

    def _is_over(self) -> bool:
        may_run = not self._has_ended and (not self._ran or self._probe._fresh_grad)
        if may_run and not self._function.dropped():
            return False
        return all(slot is None or slot.is_empty() for slot in self._slots)

    def triggered(self) -> bool:
        """Whether a backward call went through this recording since the last query."""
        if not self._sentinel._fresh_grad:
            return False
        self._sentinel._fresh_grad = False
        self._asked += 1
        return True

    def sentinel_in(self, inputs: Collection[str]) -> Optional[Any]:
        """Return the variable that represents this computation, if a graph reads it.

        inputs: the names of the graph's variables.
        """
        return self._sentinel if inputs_of(self._sentinel) & set(inputs) else None

    def proceed(self) -> None:
        """Let the callback push the backward pass."""
        self._turn.set()

    def abandon(self) -> None:
        """Let the backward pass, if it is still to come, do nothing: its call was interrupted.

        It would change running statistics after the script has gone on.
        """
        with self._calls.pushing:
            self._is_abandoned = self._asked > self._answered

    def settle(self) -> None:
        """Wait until gates have taken the gradients that the next call overwrites."""
        self._closed.wait(_PATIENCE_S)

    def forget_heads(self) -> None:
        """Drop the parts of readers: they are used, or left by a backward call that failed."""
        for slot, _ in self._heads or ():
            slot.clear()

    def wait(self) -> None:
        """Wait until the backward pass is pushed; raise its error, if any."""
        try:
            self._sentinel_gradient.wait_to_read()
        except MXNetError:
            if self._error is None:
                raise
        finally:
            self.arrived.clear()
            self._answered = self._asked
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _record(self, inputs: list[Any], tiles: Sequence[Any], outputs: Sequence[Any]) -> Function:
        context = self._context
        # A backward call marks a variable's gradient as fresh at once, so the sentinel's mark
        # tells whether the call went through here. The sentinel is a separate input, so its
        # gradient waits for nothing else. The probe's mark disappears with the graph. No
        # gradient is computed for the probe: that would wait for this recording, and MXNet
        # might run it in one bunch with an operator that another recording waits for.
        self._sentinel, self._sentinel_gradient = variable(context, "write")
        self._probe = nd.identity(variable(context, "null")[0])
        self._probe._fresh_grad = True
        # MXNet visits the recordings that read one variable from the latest to the earliest.
        self._links = [] if self.group is None else [self._calls.link(self.group, context)]
        by_context: dict[Any, list[int]] = {}
        for index, tile in enumerate(tiles):
            by_context.setdefault(tile.context, []).append(index)
        tokens = []
        for gate, (worker, indices) in enumerate(by_context.items()):
            token = nd.zeros((1,), ctx=worker)
            record_function([tiles[i] for i in indices], [token], self._gate(gate, indices))
            tokens.append(token.as_in_context(context))
        extra = [*self._links, *tokens, self._probe, self._sentinel]
        return record_function([*inputs, *extra], outputs, self._backward)

    def _backward(self, heads: list[Any], gradients: list[Any], requests: list[int]) -> None:
        with np_shape(self._scalars or None):
            self._differentiate_once(heads, gradients, requests)

    def _differentiate_once(
        self, heads: list[Any], gradients: list[Any], requests: list[int]
    ) -> None:
        try:
            if self._calls.closed:
                raise GradientError(
                    "backward: this graph was recorded before tofu.disable(), which made its "
                    "parameters whole again; expected backward before disable. Record it again"
                )
            try:
                head_gradients = self._head_gradients(heads)
                self.arrived.set()
                self._take_turn()
                with self._calls.pushing:
                    input_gradients, tile_gradients = self._differentiated(head_gradients, requests)
            finally:
                self.forget_heads()
            values = [*input_gradients, *[None] * (len(gradients) - self._num_inputs)]
            gates = requests[self._num_inputs + len(self._links) : -2]
            self._ran = True
            open_gates = {i for i, request in enumerate(gates) if request != NULL}
            _wait_for(value for value, request in zip(values, requests) if request != NULL)
            if open_gates:
                _wait_for(tile_gradients)
                self._tile_gradients, self._open_gates = tile_gradients, open_gates
                self._closed.clear()
            for target, value, request in zip(gradients, values, requests):
                write_gradient(target, value, request)
        except Exception as error:
            if self._calls.closed:  # no call waits; the script gets it with the results
                raise
            self._error = error  # `wait` raises it in the script's backward call

    def _head_gradients(self, heads: list[Any]) -> list[Any]:
        """The head gradients of autograd or of the slots, computed."""
        if self._heads is None:
            # Only operators that an input gradient depends on keep the head gradients alive.
            head_gradients: list[Any] = [head.copy() for head in heads]
        else:
            head_gradients = [slot.take(layout) for slot, layout in self._heads]
        for head in head_gradients:
            _wait_for([head] if head is None or isinstance(head, NDArray) else head.arrays)
        return head_gradients

    def _differentiated(
        self, heads: list[Any], requests: list[int]
    ) -> tuple[Sequence[Optional[Any]], Sequence[Optional[Any]]]:
        """Push the backward pass unless its call has ended; return gradients of inputs and tiles.

        Gradients of inputs that are tokens go to their slots; nothing reads a token's gradient.
        """
        if self._is_abandoned:
            self._is_abandoned = False
            return [None] * self._num_inputs, ()
        input_gradients, tile_gradients, deliver = self._differentiate(heads)
        if requests[-1] != NULL:  # the sentinel's
            self._answered += 1
            deliver(self.serial)
        for slot, value, request in zip(self._slots, input_gradients, requests):
            if slot is not None and value is not None and request != NULL:
                slot.add(self.serial, value)
        pairs = zip(self._slots, input_gradients)
        direct = [value if slot is None else None for slot, value in pairs]
        return direct, tile_gradients

    def _take_turn(self) -> None:
        """Wait until the backward call lets this callback proceed, or has ended."""
        while self._calls.must_take_turns() and not self._turn.wait(_TURN_S):
            pass
        self._turn.clear()

    def _gate(self, gate: int, indices: Sequence[int]) -> Callable[..., None]:
        def backward(_heads: list[Any], gradients: list[Any], requests: list[int]) -> None:
            tile_gradients = self._tile_gradients  # empty after an error, which `wait` raises
            with np_shape(self._scalars or None):
                for index, target, request in zip(indices, gradients, requests):
                    value = tile_gradients[index] if tile_gradients else None
                    write_gradient(target, value, request)
            self._open_gates.discard(gate)
            if not self._open_gates:
                self._tile_gradients = ()
                self._closed.set()

        return backward


def _over(_heads: list[Any]) -> Any:
    raise InternalError("MXNet asks for a backward pass after the last one")


def _wait_for(values: Iterable[Optional[Any]]) -> None:
    """Wait until the values are computed; raise an operator's error.

    The values are about to be copied into the callback's results. If MXNet meets an error
    there that is not of one of its own classes (such as oneDNN's), it drops the callback,
    and operators that wait for its results wait forever.
    """
    for value in values:
        if value is not None:
            value.wait_to_read()

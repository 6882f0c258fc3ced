"""Partitioned computations in MXNet's autograd graph, gradients staying on their workers.

MXNet allocates the gradients of one recorded function on one context. A partitioned
computation has inputs on many (its parameters' tiles), so it is recorded as

    tiles on worker 0 ──> gate 0 ──token──┐
    tiles on worker 1 ──> gate 1 ──token──┼──> the computation ──> outputs
    inputs of the script ─────────────────┘

Tokens are single numbers. Backward, the computation keeps the tiles' gradients,
and each gate hands those of its worker to MXNet, which writes or adds them as the
parameters' ``grad_req`` says. That needs memory of MXNet's for every gradient, and copies. So
gradients that are to be overwritten do not take this way: the computation delivers them
(tofu.gluon.gradients).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Callable, Optional

from mxnet import nd
from mxnet.base import MXNetError

from tofu.errors import GradientError

from .autograd_hooks import (
    NULL,
    Function,
    inputs_of,
    record_function,
    write_gradient,
)
from .backward_calls import BackwardCalls, variable

__all__ = ["Recording"]

# From head gradients to gradients of the inputs and of the tiles, None for zeros, and what
# delivers the other gradients, given the recording's number.
Differentiate = Callable[
    [list[Any]], tuple[Sequence[Optional[Any]], Sequence[Optional[Any]], Callable[[int], None]]
]

_TURN_S = 1.0  # how often a callback looks whether its backward call has ended
# How long to wait for gates that may never run, an error having come before.
_PATIENCE_S = 5.0


class Recording:
    """One partitioned computation in the graph, from its forward pass to its last backward.

    Args:
        calls: the session's backward calls.
        inputs: arrays on the script's context whose gradients are wanted.
        tiles: arrays on any contexts whose gradients MXNet is to write or add.
        outputs: fresh arrays on the script's context.
        differentiate: the backward pass. What delivers gradients is called where the
            sentinel's is asked for, as by every ``backward``.
        group: recordings of a group differentiate one after the other, the latest first,
            so that what they do to running statistics is the same in every run.
        lead: what tells a variable of the script's that no other input comes before, or None.
    """

    def __init__(
        self,
        calls: BackwardCalls,
        inputs: Sequence[Any],
        tiles: Sequence[Any],
        outputs: Sequence[Any],
        differentiate: Differentiate,
        group: Optional[Hashable] = None,
        lead: Optional[Hashable] = None,
    ) -> None:
        self.serial = next(calls.serials)
        self.group = group
        self.lead = lead
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
        self._ran = False
        self._is_abandoned = False
        # Backward calls that went through here, and callbacks that pushed for one.
        self._asked = self._answered = 0
        self._context = outputs[0].context
        self._function = self._record(list(inputs), tiles, outputs)
        calls.watch(self)

    def finished(self) -> bool:
        """Whether no backward pass can come any more, and all gradients are handed over.

        So it is once the graph is gone, or a backward pass ran that did not retain it. Its
        gates may be about to run then, on MXNet's threads: they are waited for.
        """
        if not self._function.dropped() and (not self._ran or self._probe._fresh_grad):
            return False
        return self._closed.wait(_PATIENCE_S)

    def triggered(self) -> bool:
        """Whether a backward call went through here since the last time this was asked."""
        if not self._sentinel._fresh_grad:
            return False
        self._sentinel._fresh_grad = False
        self._asked += 1
        return True

    def sentinel_in(self, inputs: Collection[str]) -> Optional[Any]:
        """A variable of autograd's that stands for this computation, if a graph reads it.

        inputs: names of that graph's variables.
        """
        return self._sentinel if inputs_of(self._sentinel) & set(inputs) else None

    def proceed(self) -> None:
        """Let the backward pass be pushed."""
        self._turn.set()

    def abandon(self) -> None:
        """Let the backward pass, if it is still to come, do nothing: its call was interrupted.

        It would change running statistics after the script has gone on.
        """
        with self._calls.pushing:
            self._is_abandoned = self._asked > self._answered

    def wait(self) -> None:
        """Return when the backward pass is pushed; raise what went wrong in it."""
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
        # Backward marks a variable's gradient as fresh at once: that tells whether it came
        # through here. As an input of its own its gradient waits for nothing else. The
        # probe's mark goes with the graph. Nothing is computed for the probe: that would wait for
        # this recording, and MXNet might run it in one bunch with what another one waits for.
        self._sentinel, self._sentinel_gradient = variable(context, "write")
        self._probe = nd.identity(variable(context, "null")[0])
        self._probe._fresh_grad = True
        # MXNet goes through the recordings that read one variable from the latest to the first.
        self._links = [] if self.group is None else [self._calls.link(self.group, context)]
        by_context: dict[Any, list[int]] = {}
        for index, tile in enumerate(tiles):
            by_context.setdefault(tile.context, []).append(index)
        tokens = []
        for gate, (worker, indices) in enumerate(by_context.items()):
            token = nd.zeros((1,), ctx=worker)
            record_function([tiles[i] for i in indices], [token], self._gate(gate, indices))
            tokens.append(token.as_in_context(context))
        own = [*self._links, *tokens, self._probe, self._sentinel]
        return record_function([*inputs, *own], outputs, self._backward)

    def _backward(self, heads: list[Any], gradients: list[Any], requests: list[int]) -> None:
        try:
            if self._calls.closed:
                raise GradientError(
                    "backward: this graph was recorded before tofu.disable(), which has made "
                    "its parameters whole again; expected backward first. Record it again"
                )
            # Only what an input gradient depends on keeps the head gradients alive.
            own = [head.copy() for head in heads]
            for head in own:
                head.wait_to_read()
            self.arrived.set()
            self._take_turn()
            with self._calls.pushing:
                of_inputs, tile_gradients = self._differentiated(own, requests)
            values = [*of_inputs, *[None] * (len(gradients) - self._num_inputs)]
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
            if self._calls.closed:  # nothing waits: the script sees it when it reads a result
                raise
            self._error = error  # for `wait` to raise where the script sees it

    def _differentiated(
        self, heads: list[Any], requests: list[int]
    ) -> tuple[Sequence[Optional[Any]], Sequence[Optional[Any]]]:
        """Push the backward pass, unless its call has ended: the gradients of inputs and tiles."""
        if self._is_abandoned:
            self._is_abandoned = False
            return [None] * self._num_inputs, ()
        of_inputs, tile_gradients, deliver = self._differentiate(heads)
        if requests[-1] != NULL:  # the sentinel's
            self._answered += 1
            deliver(self.serial)
        return of_inputs, tile_gradients

    def _take_turn(self) -> None:
        """Return when the backward call lets this callback proceed, or has ended."""
        while self._calls.must_take_turns() and not self._turn.wait(_TURN_S):
            pass
        self._turn.clear()

    def _gate(self, gate: int, indices: Sequence[int]) -> Callable[..., None]:
        def backward(_heads: list[Any], gradients: list[Any], requests: list[int]) -> None:
            found = self._tile_gradients  # empty after an error, which `wait` raises
            for index, target, request in zip(indices, gradients, requests):
                write_gradient(target, found[index] if found else None, request)
            self._open_gates.discard(gate)
            if not self._open_gates:
                self._tile_gradients = ()
                self._closed.set()

        return backward


def _wait_for(values: Iterable[Optional[Any]]) -> None:
    """Return when the values are computed; raise what an operator threw.

    They are about to be copied into results of the callback. When MXNet finds an error there
    that is none of its own classes (oneDNN's), it loses the callback, and what waits for its
    results waits for ever.
    """
    for value in values:
        if value is not None:
            value.wait_to_read()

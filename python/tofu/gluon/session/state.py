"""The mutable state of the Gluon layer while tofu is on, in one object.

A session owns it, from ``enable`` to ``disable``. Functions that replace MXNet's call
``session.active()`` to get it; all others get it from their caller or from a tiled
parameter.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Optional, Protocol

from tofu.planner.lookers import Lookers

from . import backend
from .backward_calls import BackwardCalls
from .living import Living

__all__ = ["Parts", "State", "WholeArray"]

# Parameter -> the tiles of each part of its gradient, and their layout.
Parts = dict[Any, list[tuple[list[Any], Any]]]


class WholeArray(Protocol):
    """A whole array that the script got for tiles, to be kept equal to them.

    Attributes:
        owner: returns the parameter that has the tiles; None once it is gone.
    """

    owner: Callable[[], Optional[Any]]

    def take_gradient(self) -> Optional[list[Any]]:
        """The tiles of the gradient that a backward call has computed for the array, or None."""

    def before_backward(self) -> None:
        """Synchronize before a backward pass."""

    def expect_gradient(self) -> None:
        """Prepare for a backward call that may compute the array's gradient, once all are equal."""

    def after_backward(self) -> None:
        """Synchronize after a backward pass."""

    def flush(self) -> None:
        """Write the array back into its tiles."""

    def refresh(self) -> None:
        """Read the tiles into the array if the script still holds it."""


class _Depth(threading.local):
    """The calls of blocks in progress on one thread.

    Attributes:
        level: the number of calls that have not returned.
        touched: whether one of them uses trainable parameters eagerly.
        partitioned: blocks that were partitioned in these calls, to be reported.
        untraced: texts about blocks in these calls that cannot be traced, to be reported.
        quiet: whether blocks that were never hybridized run their own code.
        untold: whether the user is still to be warned of these.
        checking: whether hybridized blocks run as MXNet runs them, too.
        inside: the number of running blocks that were never hybridized and are not partitioned.
        setup_seconds: spent on setting up partitioned blocks since the last message.
        handled: ids of blocks that tofu.gluon.blocks.unhybridized has taken care of.
        peeking: whether ``data`` of a tiled parameter may return any array.
    """

    level = 0
    touched = peeking = False
    quiet = untold = checking = False
    inside = 0
    setup_seconds = 0.0

    def __init__(self) -> None:
        self.partitioned: list[Any] = []
        self.untraced: list[tuple[str, str]] = []
        self.handled: set[int] = set()


class _Errors(threading.local):
    """MXNet's last error on one thread.

    Attributes:
        missing: text to append to it.
        is_named: whether the caller names the failed operator, so readers need not search.
    """

    missing = ""
    is_named = False


class State:
    """The state of one session.

    Attributes:
        blocks: HybridBlock -> its PartitionedBlock.
        traces: block that was never hybridized -> its tofu.gluon.blocks.unhybridized.BlockTraces.
        preparing: held while a block is traced or planned, and its parameters are divided.
        eager: blocks that the user was warned of.
        depth: calls of blocks, by thread.
        tiled: all tiled parameters.
        changing: held while tiles change or a whole array is made equal to them.
        views: the whole arrays handed out for tiles.
        read: parameters whose gradients the script has read before they were tiled.
        trainers: Trainers with optimizer states on the workers.
        running: held while a program's forward pass is pushed, and its inputs must stay.
        calls: recordings and the backward calls that go through them.
        collected: the gradients that recordings deliver to a call of autograd.grad, or None.
        told: reasons for plain fetches that the user was warned of.
        partitioned: whether anything was partitioned.
        first_step: reports of partitioned blocks, with seconds of set-up; None after the step.
        plan_matched: whether a training graph had a saved plan.
        plan_missing: whether the user was told of a graph without a saved plan.
        absent_pins: the pins of tensors that no training graph has; None before the first graph.
        tensor_names: those of all training graphs, if there are absent pins.
        unstepped: the Trainers that have not stepped yet.
        errors: MXNet's last error, by thread.
        ran: the programs that have run since errors were last cleared.
        gathered: which outputs the script has read since a program ran: program -> number of
            the output -> its name for errors, and where it was gathered.
        footprints: pool of programs -> the memory of one of them, if there is a limit.
        lookers: callbacks that see what the session plans.
        runs_python: whether a partitioned graph has operators written in Python (Custom).
        undo: functions that restore MXNet, called from last to first.
    """

    def __init__(self) -> None:
        self.blocks: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.traces: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.preparing = threading.RLock()
        self.eager: weakref.WeakSet[Any] = weakref.WeakSet()
        self.depth = _Depth()
        self.tiled = Living()
        self.changing = threading.RLock()
        self.views: set[WholeArray] = set()
        self.read: weakref.WeakSet[Any] = weakref.WeakSet()
        self.trainers = Living()
        self.running = threading.RLock()
        self.calls = BackwardCalls()
        self.collected: Optional[Parts] = None
        self.told: set[str] = set()
        self.partitioned = False
        self.first_step: Optional[list[tuple[Any, float]]] = []
        self.plan_matched = self.plan_missing = False
        self.absent_pins: Optional[set[str]] = None
        self.tensor_names: set[str] = set()
        self.unstepped = Living()
        self.errors = _Errors()
        self.ran = Living()
        self.gathered: weakref.WeakKeyDictionary[Any, dict[int, tuple[str, Any]]] = (
            weakref.WeakKeyDictionary()
        )
        self.footprints: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.lookers = Lookers()
        self.runs_python = False
        self.undo: list[Callable[[], None]] = []
        self._backend: Optional[backend.Backend] = None

    @property
    def backend(self) -> backend.Backend:
        """The functions of other layers; by default tofu's own, imported at first use."""
        if self._backend is None:
            self._backend = backend.own()
        return self._backend

    @backend.setter
    def backend(self, value: backend.Backend) -> None:
        self._backend = value

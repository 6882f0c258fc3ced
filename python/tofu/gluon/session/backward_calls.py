"""Backward calls that return when their callbacks have pushed their work.

MXNet runs the callbacks of recordings on its own threads. A backward call waits for the
callbacks that push work. Otherwise a later write to a parameter, such as an optimizer's,
could overtake the backward pass that reads it, and then wait for itself.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import sys
import threading
import weakref
from collections.abc import Collection, Hashable, Sequence
from typing import Any, Callable, Optional, Protocol

from mxnet import autograd, nd
from mxnet.base import _LIB, MXNetError, check_call

from .autograd_hooks import free_dropped
from .living import Living

__all__ = ["BackwardCalls", "Recorded", "in_operator", "variable"]

# Seconds to insist on the order of recordings. MXNet's engine runs operators in bunches
# and may be unable to keep the order: the head gradients of a later recording can share a
# bunch with an operator that waits for an earlier one.
_PATIENCE_S = 0.5
# The modules of MXNet whose functions its engine calls.
_CALLED_BY_ENGINE = ("mxnet.operator", "mxnet.autograd")


class Recorded(Protocol):
    """A recording whose backward callback pushes work to the engine.

    Attributes:
        serial: grows with every recording.
        group: recordings of one group push one after the other; None: the order does not
            matter.
        lead: identifies its first input if that is a variable; None for a computed one.
        arrived: set when the callback is ready to push.
    """

    serial: int
    group: Optional[Hashable]
    lead: Optional[Hashable]
    arrived: threading.Event

    def triggered(self) -> bool:
        """Whether the backward call that just returned went through this recording."""

    def proceed(self) -> None:
        """Let the callback push."""

    def abandon(self) -> None:
        """Make the callback deliver nothing, because its call has already ended."""

    def settle(self) -> None:
        """Wait until the gradients of an earlier call are handed over."""

    def forget_heads(self) -> None:
        """Drop gradients that a failed backward call may have left for this recording."""

    def wait(self) -> None:
        """Wait until the callback has pushed; raise its error, if any."""

    def let_go(self) -> None:
        """Drop the data of backward passes if no further one can come."""

    def end(self) -> None:
        """Count on no further backward pass."""


class BackwardCalls:
    """Runs the backward calls of a session one at a time, and tracks their recordings.

    Attributes:
        lock: held during a call.
        pushing: held while a callback pushes. Two callbacks must not interleave their
            updates of running statistics, and a call must not be abandoned between the
            check for that and the delivery.
        serials: the source of serial numbers for recordings.
        closed: whether the session has ended.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.pushing = threading.Lock()
        self.serials = itertools.count()
        self.closed = False
        self._recorded = Living()
        self._caller: Optional[int] = None  # the thread of an ordered backward call
        self._links: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

    def recorded(self) -> list[Any]:
        """The recordings that a backward call may go through."""
        return list(self._recorded)

    def watch(self, recorded: Recorded) -> None:
        """Make backward calls wait for this recording's callback."""
        self._recorded.add(recorded)

    def end(self, serials: Collection[int]) -> None:
        """Count on no further backward call through the recordings of these numbers."""
        for recording in self.recorded():
            if recording.serial in serials:
                recording.end()

    def free(self) -> None:
        """Free the data of recordings that no backward call will reach.

        Does nothing while another thread's backward call frees graphs.
        """
        free_dropped()
        if self.lock.acquire(blocking=False):
            try:
                for recording in self.recorded():
                    recording.let_go()
            finally:
                self.lock.release()

    def must_take_turns(self) -> bool:
        """Whether a callback has to wait until it may proceed.

        It must not wait if MXNet's naive engine calls back on the caller's own thread.
        """
        return self._caller is not None and self._caller != threading.get_ident()

    def link(self, group: Hashable, context: Any) -> Any:
        """Return the variable that all recordings of a group read."""
        links = self._links.setdefault(group, {})
        if context not in links:
            links[context] = variable(context, "write")[0]
        return links[context]

    def run(
        self,
        backward: Callable[..., int],
        args: Sequence[Any],
        before: Callable[[], None],
        after: Callable[[], None],
    ) -> int:
        """Call ``MXAutogradBackwardEx``, which every backward call in MXNet's Python uses.

        Args:
            backward: the function of MXNet's library.
            args: its arguments.
            before: called before it.
            after: called after it, once the callbacks have pushed their work.
        """
        num_variables, results = args[3], args[8]
        with self.lock:
            before()
            for recorded in self.recorded():
                recorded.settle()
                recorded.forget_heads()
            # autograd.grad (with variables) marks no recording that it reaches.
            self._caller = None if num_variables else threading.get_ident()
            triggered: list[Recorded] = []
            try:
                status = backward(*args)
                self._find_triggered(triggered)
                self.release(triggered)
            except BaseException:  # an interrupt: MXNet's threads must not wait forever
                self._find_triggered(triggered)
                for recorded in triggered:
                    recorded.abandon()
                for recorded in self.recorded():
                    recorded.proceed()
                raise
            finally:
                self._caller = None
            if status == 0:
                if num_variables and len(self._recorded):
                    self._wait_for_results(num_variables, results)
                after()
        return status

    def _find_triggered(self, triggered: list[Recorded]) -> None:
        """Append the recordings that a backward call has reached since the last query."""
        for recording in self.recorded():
            if recording.triggered():
                triggered.append(recording)

    def release(self, recordings: Sequence[Recorded]) -> None:
        """Let the recordings of a backward call proceed; raise the first error of any."""
        triggered = _in_order(recordings)
        sizes = collections.Counter(recorded.group for recorded in triggered)
        ordered = [r for r in triggered if r.group is not None and sizes[r.group] > 1]
        for recorded in triggered:
            if recorded not in ordered:
                recorded.proceed()
        errors = []
        for recorded in ordered:
            in_order = recorded.arrived.wait(_PATIENCE_S)
            recorded.proceed()
            if in_order:
                errors.append(_error_of(recorded))
                triggered.remove(recorded)
        errors += map(_error_of, triggered)
        for error in filter(None, errors):
            raise error

    def _wait_for_results(self, count: int, arrays: Any) -> None:
        handles = arrays._obj
        failures: list[Exception] = []
        for i in range(count):
            try:
                check_call(_LIB.MXNDArrayWaitToRead(ctypes.c_void_p(handles[i])))
            except MXNetError as error:
                failures.append(error)
        # A callback's own error says more than the missing results that follow from it.
        for failure in [*map(_error_of, self.recorded()), *failures]:
            if failure is not None:
                raise failure


def in_operator() -> bool:
    """Whether MXNet runs an operator written in Python on this thread.

    Such an operator's code may run a backward pass itself. That backward call is not the
    script's, and must not wait for the script's call, which may wait for the operator.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals.get("__name__") in _CALLED_BY_ENGINE


def variable(context: Any, request: str) -> tuple[Any, Any]:
    """Return a variable of one element, with the given gradient request, and its gradient."""
    value, gradient = nd.zeros((1,), ctx=context), nd.zeros((1,), ctx=context)
    autograd.mark_variables([value], [gradient], request)
    return value, gradient


def _in_order(recordings: Sequence[Recorded]) -> list[Recorded]:
    """The recordings in the order in which MXNet would run their backward passes.

    MXNet computes the gradient of one variable after the other, in the order in which recordings
    first read them; for each variable it runs the recordings that read it, latest first. All
    recordings of a group read the group's variable, but the first may read one of its own earlier.
    """
    latest_first = sorted(recordings, key=lambda recorded: recorded.serial, reverse=True)
    earliest = {recorded.group: recorded for recorded in latest_first}
    leads = collections.Counter(recorded.lead for recorded in recordings)
    leading = [r for r in earliest.values() if r.lead is not None and leads[r.lead] == 1]
    return [*leading, *(recorded for recorded in latest_first if recorded not in leading)]


def _error_of(recorded: Recorded) -> Optional[Exception]:
    try:
        recorded.wait()
    except Exception as error:
        return error
    return None

"""Orders a pass's calls: calls that need no exchange run first, so more tiles move together.

When the next call waits for tiles of other ranks, calls shortly after it may be ready: gradients of
weights, or the other projections of an attention layer. They run before the exchange, and their
outputs go along with it. All ranks find the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from tofu.torch.module_trace import Entry
from tofu.torch.redistribution import Placement

__all__ = ["WINDOW", "Made", "arranged"]

# Number of calls that a call may overtake; its outputs stay alive longer.
WINDOW = 48


class Made(Protocol):
    """An output of a call."""

    @property
    def entry(self) -> Entry:
        """The tensor."""

    @property
    def made(self) -> Placement:
        """The placement in which the call makes it."""

    @property
    def kept(self) -> Placement:
        """The placement in which it is kept."""


class _Call(Protocol):
    @property
    def inputs(self) -> Sequence[tuple[Entry, Placement, Any]]:
        """Tensors and the placements in which they are read."""

    @property
    def outputs(self) -> Sequence[Made]:
        """The call's outputs."""


Call = TypeVar("Call", bound=_Call)


def arranged(calls: Sequence[Call], window: int = WINDOW) -> list[Call]:
    """Reorders calls so that they need few exchanges.

    Args:
        calls: in an order in which they can run.
        window: number of calls to look ahead; 1: their order stays.
    """
    entries = {out.entry for call in calls for out in call.outputs}
    state = _State(entries)
    left = list(calls)
    order: list[Call] = []
    while left:
        if state.waits(left[0]):
            ready = list(state.ready(left[:window]))
            order += ready
            taken = {id(call) for call in ready}
            left = [call for call in left if id(call) not in taken]
            state.exchange(left[:window])
        order.append(left.pop(0))
        state.run(order[-1])
    return order


class _State:
    """Tracks which tiles of a pass exist.

    Args:
        made: the tensors that the pass makes.
    """

    def __init__(self, entries: set[Entry]) -> None:
        self._made = entries
        self._known: set[Entry] = set()  # tensors made so far
        self._there: set[tuple[Entry, Placement]] = set()

    def waits(self, call: _Call) -> bool:
        """Whether a call reads tiles of this pass that have to be exchanged first."""
        return any(
            entry in self._made and (entry, place) not in self._there
            for entry, place, _ in call.inputs
        )

    def ready(self, calls: Sequence[Call]) -> Iterator[Call]:
        """The calls that can run now and read a tensor of this pass."""
        for call in calls:
            chained = any(entry in self._made for entry, _, _ in call.inputs)
            if chained and not self.waits(call):
                self.run(call)
                yield call

    def run(self, call: _Call) -> None:
        """Note a call's outputs."""
        for out in call.outputs:
            self._known.add(out.entry)
            self._there.add((out.entry, out.made))

    def exchange(self, calls: Sequence[_Call]) -> None:
        """Note that an exchange delivers the tiles that these calls read."""
        for call in calls:
            for entry, place, _ in call.inputs:
                if entry in self._known:
                    self._there.add((entry, place))

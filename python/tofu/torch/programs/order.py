"""Orders a pass's calls, so that more tiles move together, and while calls run.

When the next call waits for tiles of other ranks, calls shortly after it may be ready: gradients of
weights, or the other projections of an attention layer. They run first. Those whose outputs a call
waits for go before the exchange, so that these travel together; the others, and calls shortly
before that the exchange does not need, run while it is under way. All ranks find the same order.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from tofu.torch.programs.rank_graph import Group

__all__ = ["WINDOW", "arranged"]

# Number of calls that a call may overtake, or let pass; tiles stay alive longer.
WINDOW = 48


def arranged(
    calls: Sequence[Group],
    fetches: Mapping[str, Group],
    window: int = WINDOW,
    late: Container[str] = (),
) -> list[Group]:
    """Reorders calls so that they need few exchanges, and some run during each.

    Args:
        calls: in an order in which they can run.
        fetches: all fetches by name.
        window: number of calls to look ahead, and back; 1: their order stays.
        late: the names of calls that overtake no other, as memory is kept for them.
    """
    state = _State({call.name for call in calls}, fetches)
    left = list(calls)
    order: list[Group] = []
    begin = 0  # of the calls that may run while the next exchange does
    while left:
        if state.waits(left[0]):
            ready = list(state.ready([c for c in left[:window] if c.name not in late]))
            taken = {call.name for call in ready}
            left = [call for call in left if call.name not in taken]
            sources = state.exchange(left[:window])
            recent = max(begin, len(order) - window)
            before, beside = state.parted([*order[recent:], *ready], sources)
            order[recent:] = [*before, *beside]
            begin = len(order) if before else begin
        order.append(left.pop(0))
        state.ran.add(order[-1].name)
    return order


class _State:
    """Tracks which calls of a pass ran, and which regions have been exchanged.

    Args:
        own: the names of the pass's calls.
        fetches: all fetches by name.

    Attributes:
        ran: the calls that ran.
    """

    def __init__(self, own: set[str], fetches: Mapping[str, Group]) -> None:
        self.ran: set[str] = set()
        self._own = own
        self._fetches = fetches
        self._there: set[str] = set()
        self._makers: dict[str, frozenset[str]] = {}

    def _makers_of(self, name: str) -> frozenset[str]:
        """The calls of the pass that make the tiles that a fetch assembles, or a call itself."""
        if name not in self._fetches:
            return frozenset([name] if name in self._own else [])
        if name not in self._makers:
            makers = (self._makers_of(read) for read in self._fetches[name].reads)
            self._makers[name] = frozenset().union(*makers)
        return self._makers[name]

    def _is_there(self, name: str) -> bool:
        """Whether a tile or region exists; what takes no message exists once its sources do."""
        makers = self._makers_of(name)
        if not makers or name in self._there:
            return True
        if name in self._fetches and self._fetches[name].received_bytes:
            return False
        return makers <= self.ran

    def waits(self, call: Group) -> bool:
        """Whether a call reads something of this pass that does not exist yet."""
        return not all(self._is_there(read) for read in call.reads)

    def ready(self, calls: Sequence[Group]) -> Iterator[Group]:
        """The calls that can run now and read a tensor of this pass."""
        for call in calls:
            if any(map(self._makers_of, call.reads)) and not self.waits(call):
                self.ran.add(call.name)
                yield call

    def exchange(self, calls: Sequence[Group]) -> set[str]:
        """Note that an exchange delivers the regions that calls read; returns their makers."""
        names = {name for call in calls for name in call.reads if name in self._fetches}
        names = {name for name in names - self._there if self._makers_of(name) <= self.ran}
        self._there |= names
        return set().union(*map(self._makers_of, names))

    def parted(self, calls: Sequence[Group], names: set[str]) -> tuple[list[Group], list[Group]]:
        """Parts calls into those that some calls are, or need, and those that can run later.

        Args:
            calls: in an order in which they can run.
            names: the names of the calls that are needed.
        """
        needed = set(names)
        for call in reversed(calls):
            if call.name in needed:
                needed.update(*map(self._makers_of, call.reads))
        before = [call for call in calls if call.name in needed]
        return before, [call for call in calls if call.name not in needed]

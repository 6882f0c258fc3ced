"""Batches the fetches of a pass: tiles that can wait or start early travel with others.

An exchange costs a message to every rank, however small it is. So a fetch whose result nothing
needs yet, such as a gradient's, waits for a fetch that is needed; and a fetch that is needed soon,
such as a parameter's, goes along with it. Waiting and early tiles take memory, so a limit applies.
A batch starts as soon as its tiles are there, and calls run until one needs it; a fetch that would
make it start later, and is not needed soon, waits for the next.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from tofu.torch.graphs.aten_strategies import computes_nothing
from tofu.torch.graphs.module_graph import operator_name
from tofu.torch.graphs.traced import Entry, Operator
from tofu.torch.programs.order import WINDOW

__all__ = ["BATCH_BYTES", "Task", "batched", "reordered", "started"]

# The most bytes that a rank keeps waiting, or receives early.
BATCH_BYTES = 4 << 20


@dataclass
class Task:
    """A fetch, and when it can happen.

    Attributes:
        name: the fetch's name.
        bytes: bytes that a rank keeps while the fetch waits, and receives.
        ready: number of the call that makes what it reads; -1: it exists from the start.
        due: number of the call that needs the result; the number of calls: the end of the pass.
        after: the fetches that make what it reads.
        messages: the messages that it joins, as `Group.senders` or as pairs of ranks.
        frees: whether a rank may keep less once it is done, as after the sum of a gradient. A
            region for an operator is seldom smaller than its source, so it comes when it is needed.
    """

    name: str
    bytes: int
    ready: int
    due: int
    after: tuple[Task, ...] = ()
    messages: frozenset[tuple[int, int]] = frozenset([(0, 1)])
    frees: bool = True


def batched(
    tasks: Sequence[Task], count: int, limit: int = BATCH_BYTES
) -> list[list[tuple[Task, ...]]]:
    """The fetches to exchange together before each of `count` calls, and after the last one.

    Args:
        tasks: the fetches, each after those that make what it reads.
        count: the number of calls.
        limit: most bytes that may wait, and most that may come early.
    """
    for task in reversed(tasks):
        for before in task.after:
            before.due = min(before.due, task.due)
    by_call: dict[int, list[Task]] = {}
    due: dict[int, list[Task]] = {}
    for task in tasks:
        by_call.setdefault(task.ready + 1, []).append(task)
        due.setdefault(task.due, []).append(task)
    waiting: list[Task] = []
    freed_bytes = 0  # of the waiting ones
    left = {id(task) for task in tasks}
    batches: list[list[tuple[Task, ...]]] = []
    for number in range(count + 1):
        arrived = by_call.get(number, [])
        waiting += arrived
        freed_bytes += sum(map(_freed_bytes, arrived))
        batches.append([])
        while True:
            needed = [task for task in due.get(number, []) if id(task) in left]
            if not needed and freed_bytes <= limit:
                break
            batch = _batch(waiting, needed, left, limit)
            if not batch:
                break
            batches[-1].append(tuple(batch))
            freed_bytes -= sum(map(_freed_bytes, batch))
            left -= {id(task) for task in batch}
            waiting = [task for task in waiting if id(task) in left]
    return batches


def started(batches: Sequence[Sequence[tuple[Task, ...]]]) -> list[list[tuple[Task, ...]]]:
    """Moves each batch to the first call before which its exchange can start.

    One exchange runs at a time, so that a rank holds the messages of one: it ends when a call needs
    it, or when the next must start. Batches without a message stay.
    """
    moved: list[list[tuple[Task, ...]]] = [[] for _ in batches]
    place: dict[int, int] = {}
    free = 0
    for number, joined in enumerate(batches):
        for batch in joined:
            start = number
            if any(task.bytes for task in batch):
                made = (place[id(before)] for task in batch for before in task.after)
                start = max(min(free, number), *(task.ready + 1 for task in batch), *made)
                free = min(task.due for task in batch)
            place.update((id(task), start) for task in batch)
            moved[start].append(batch)
    return moved


def _freed_bytes(task: Task) -> int:
    """The bytes that a rank keeps while the fetch waits, if it may keep less afterwards."""
    return task.bytes if task.ready >= 0 and task.frees else 0


def _batch(
    waiting: Sequence[Task], needed: Sequence[Task], left: set[int], limit: int
) -> list[Task]:
    """The fetches to exchange now; none if no call needs one."""
    can = [task for task in waiting if not any(id(before) in left for before in task.after)]
    if not needed:
        held = [task for task in can if task.ready >= 0 and task.frees]
        return held if sum(map(_freed_bytes, held)) > limit else []
    needed_ids = {id(task) for task in needed}
    batch = [task for task in can if id(task) in needed_ids]
    sent = frozenset().union(*(task.messages for task in batch if task.bytes))
    soon = needed[0].due + WINDOW
    ready = max((task.ready for task in can if task.due <= soon and task.bytes), default=-1)
    size = 0
    for task in sorted(can, key=lambda task: task.due):
        if id(task) in needed_ids or task.bytes == 0:  # without a message there is no hurry
            continue
        if task.due > soon and task.ready > ready:  # it would delay the others
            continue
        if not task.messages <= sent:  # it would add a message, which later tasks could share
            continue
        size += task.bytes
        if size > limit:
            break
        batch.append(task)
    return batch


def reordered(operators: Sequence[Operator], fetching: Container[str] = ()) -> list[Operator]:
    """Reorders a pass: views of existing tensors first, movements of its results last.

    A parameter's or a gradient's exchange can then go with others, although operators read it
    through a transpose.

    Args:
        operators: in an order in which they can run.
        fetching: the names of those that receive what they read. They stay where they are, as
            a view that comes first would hold what it receives until the view is used.
    """
    own_names = {operator.name for operator in operators}
    needed: set[Entry] = set()
    middle, last = [], []
    for operator in reversed(operators):
        outputs = {Entry(operator.name, k) for k in range(len(operator.outputs))}
        moves = computes_nothing(operator_name(operator)) and operator.inputs
        if moves and not outputs & needed:
            last.append(operator)
        else:
            middle.append(operator)
            needed |= {entry for _, entry in operator.inputs}
    first = []
    for operator in reversed(middle):
        is_view = operator.target.is_view and computes_nothing(operator_name(operator))
        if operator.name in fetching or not is_view:
            continue
        if not any(entry.node in own_names for _, entry in operator.inputs):
            first.append(operator)
            own_names.remove(operator.name)
    names = {operator.name for operator in first}
    return [*first, *(o for o in reversed(middle) if o.name not in names), *reversed(last)]

"""Checks many operators in separate processes, which MXNet may crash.

If a process dies, it is restarted without the call that killed it, and the call is reported.
The verdict on an operator depends only on the seed, not on the number of processes or on
other operators.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, Optional

from tofu.verify.check.operator import SEARCH, Finding, Verdict, check_operator, described_in

__all__ = ["check_all"]

_TIME_LIMIT_S = 60.0  # for one call of an operator
_PATIENCE_S = 5.0  # between two checks of the processes
_CRASHES = 8  # crashes after which an operator is given up


@dataclasses.dataclass
class _Task:
    op: str
    avoid: list[str] = dataclasses.field(default_factory=list)


class _Worker:
    """A process, its current operator, and the call that it reported last."""

    def __init__(self, seed: int, quick: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self.process = context.Process(target=_serve, args=(child_pipe, seed, quick), daemon=True)
        self.process.start()
        child_pipe.close()
        self.task: _Task
        self.step = ""
        self.given = 0
        self.heard_s = time.monotonic()

    def give(self, task: _Task) -> None:
        """Start work on an operator."""
        self.task, self.step = task, ""
        self.given += 1
        self.heard_s = time.monotonic()
        self.pipe.send((task.op, tuple(task.avoid)))

    def is_silent(self) -> bool:
        """Whether its call takes so long that it is considered stuck."""
        return time.monotonic() - self.heard_s > _TIME_LIMIT_S

    def stop(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.kill()
        self.process.join()


def check_all(
    ops: Iterable[str], seed: int, *, processes: int = 2, quick: bool = False
) -> Iterator[Verdict]:
    """The verdicts on operators, in the order in which they are reached.

    Args:
        ops: their names.
        seed: seeds shapes and values.
        processes: number of parallel processes.
        quick: whether to run only a sample of the calls.
    """
    tasks = deque(_Task(op) for op in ops)
    workers = [_Worker(seed, quick) for _ in range(min(processes, len(tasks)))]
    busy: dict[Any, _Worker] = {}
    try:
        for worker in workers:
            worker.give(tasks.popleft())
            busy[worker.pipe] = worker
        while busy:
            ready = wait(list(busy), timeout=_PATIENCE_S)
            silent = [p for p, w in busy.items() if p not in ready and w.is_silent()]
            for pipe in list[Any]([*ready, *silent]):
                worker = busy[pipe]
                message = None if pipe in silent else _receive(pipe)
                worker.heard_s = time.monotonic()
                if isinstance(message, str):
                    worker.step = message
                    continue
                del busy[pipe]
                verdict = message
                if message is None:
                    verdict = _lost(worker, tasks, seed)
                    workers[workers.index(worker)] = worker = _Worker(seed, quick)
                if tasks:
                    worker.give(tasks.popleft())
                    busy[worker.pipe] = worker
                if verdict is not None:
                    yield verdict
    finally:
        for worker in workers:
            worker.stop()


def _receive(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _lost(worker: _Worker, tasks: deque[_Task], seed: int) -> Optional[Verdict]:
    """Queue the operator again without the call that crashed the process, or give it up.

    If the process has checked other operators before, one of them may be the cause. Then the
    operator is tried once more, as the first one in a new process.
    """
    worker.stop()
    task = worker.task
    if worker.given == 1 or worker.step.endswith(SEARCH):
        task.avoid.append(worker.step)
    if worker.step and len(task.avoid) < _CRASHES:
        tasks.appendleft(task)
        return None
    verdict = Verdict(task.op)
    detail = (
        f"a call took more than {_TIME_LIMIT_S:.0f} s, or MXNet ended the process "
        f"{len(task.avoid)} times"
    )
    command = f"tofu verify {task.op} --seed {seed}{described_in()}"
    verdict.skipped.append(Finding(task.op, worker.step, "", detail, command))
    return verdict


def _serve(pipe: Connection, seed: int, quick: bool) -> None:
    """Check operators from the pipe until it is closed; runs in the process."""
    from tofu.verify.calls.operator_calls import cases_by_operator

    cases = cases_by_operator()
    served = 0
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):  # MXNet logs every graph that it binds, and prints every error
        os.dup2(null, descriptor)
    while True:
        try:
            op, avoid = pipe.recv()
        except EOFError:
            return
        verdict = check_operator(op, cases[op], seed, pipe.send, avoid, quick)
        if served and (verdict.false or verdict.skipped):
            return  # an earlier operator may have caused the error: try again alone
        served += 1
        pipe.send(verdict)

"""Runs C++ computations on side threads, while the main thread continues with the next ones.

    with side_threads() as start:
        wait = start(lambda: _core.partition(plan))
        ...
        partitioned = wait()

Only C++ that releases Python's lock runs faster so. MXNet must not be called there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tofu import _core
from tofu.plans.problem import Start

__all__ = ["most_at_once", "side_threads"]

_MOST = 4  # each computation holds a graph of all workers


def most_at_once() -> int:
    """The number of computations that run at once: one for each core that the process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, _MOST)


@contextlib.contextmanager
def side_threads() -> Iterator[Start]:
    """Provide threads until the end of the context, which ends their computations at once."""
    threads = _core.SideThreads()
    pool = ThreadPoolExecutor(most_at_once(), "tofu-side", initializer=threads.join)
    try:
        yield lambda run: pool.submit(run).result
    finally:
        threads.end()
        pool.shutdown(cancel_futures=True)

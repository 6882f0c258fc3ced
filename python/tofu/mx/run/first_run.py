"""Runs an executor's forward half where memory may not suffice: one operator at a time.

MXNet allocates an executor's memory when operators first write it, on the workers' threads.
If several workers run out of memory at once, their errors race: the engine keeps them in lists
and pointers without locks (``AddToGlobalExceptions`` and ``var_exception`` in
src/engine/threaded_engine.h of 1.9.1), and the process may crash instead of raising an error. So
where an executor needs most of the free memory, the first forward runs its operators one after
another. What was allocated once is there in later runs. The backward half runs as always: MXNet
calls for it on a thread that must not wait for the engine.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Sequence

import mxnet as mx

from tofu import _core

from .extension import run_part

__all__ = ["free_bytes", "is_memory_scarce", "run_one_by_one"]

# MXNet rounds sizes up, and operators need temporary memory that no plan contains.
_SHARE = 0.8
_TOTAL = re.compile(r"^Total (\d+) MB allocated$", re.MULTILINE)


def is_memory_scarce(
    executor: mx.executor.Executor, graph: _core.Graph, contexts: Sequence[mx.Context]
) -> bool:
    """Whether an executor of a graph may need more memory than is free on its contexts."""
    free = _SHARE * free_bytes(contexts)
    if graph.tensor_bytes <= free:  # the executor's text would take a moment
        return False
    found = _TOTAL.search(executor.debug_str())
    return found is None or (int(found[1]) + 1) * 2**20 > free


def free_bytes(contexts: Sequence[mx.Context]) -> int:
    """Memory that is free on all contexts together, taken as divided equally."""
    if contexts[0].device_type == "gpu":
        of_gpus = (mx.context.gpu_memory_info(context.device_id)[0] for context in contexts)
        return len(contexts) * int(min(of_gpus))
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":") for line in file)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        with open("/proc/self/statm", encoding="ascii") as file:
            free = min(free, limit - int(file.read().split()[0]) * resource.getpagesize())
    return free


def run_one_by_one(executor: mx.executor.Executor, begin: int, end: int, *, is_train: bool) -> None:
    """Run the nodes `begin` up to but excluding `end`, each after the one before has finished.

    Raises:
        MXNetError: of the first operator that fails; none behind it has run.
    """
    for number in range(begin, end):
        run_part(executor, number, number + 1, is_train=is_train)
        mx.nd.waitall()

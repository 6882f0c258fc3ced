"""Runs executors for the first time where memory may not suffice: one operator at a time.

MXNet allocates an executor's memory when operators first write it, on the workers' threads.
If several workers run out of memory at once, their errors race: the engine keeps them in lists
and pointers without locks (``AddToGlobalExceptions`` and ``var_exception`` in
src/engine/threaded_engine.h of 1.9.1), and the process may crash instead of raising an error. So
if executors need most of the free memory, their operators first run one after another. Memory
that was allocated once stays allocated in later runs.
"""

from __future__ import annotations

import math
import re
import resource
from collections.abc import Sequence
from typing import Optional

import mxnet as mx

from tofu import _core
from tofu.mx.extension import run_part

from .fault import nodes_of

__all__ = ["free_bytes", "is_memory_scarce", "run_one_by_one"]

# MXNet rounds sizes up, and operators need temporary memory that no plan contains.
_SHARE = 0.8
_TOTAL = re.compile(r"^Total (\d+) MB allocated$", re.MULTILINE)


def is_memory_scarce(
    bound: Sequence[tuple[mx.executor.Executor, _core.Graph]], contexts: Sequence[mx.Context]
) -> bool:
    """Whether executors, given with their graphs, may need more memory than their contexts have."""
    free = _SHARE * free_bytes(contexts)
    if sum(graph.tensor_bytes for _, graph in bound) <= free:  # executors' texts take a moment
        return False
    totals = [_TOTAL.search(executor.debug_str()) for executor, _ in bound]
    return sum((int(each[1]) + 1) * 2**20 if each else math.inf for each in totals) > free


def free_bytes(contexts: Sequence[mx.Context]) -> int:
    """Memory that is free on all contexts together, assuming that each needs an equal share."""
    if contexts[0].device_type == "gpu":
        free_of_each = (mx.context.gpu_memory_info(each.device_id)[0] for each in contexts)
        return len(contexts) * int(min(free_of_each))
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":") for line in file)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        with open("/proc/self/statm", encoding="ascii") as file:
            free = min(free, limit - int(file.read().split()[0]) * resource.getpagesize())
    return free


def run_one_by_one(
    executor: mx.executor.Executor, begin: int = 0, end: Optional[int] = None, *, is_train: bool
) -> None:
    """Run the nodes `begin` up to but excluding `end`, each after the one before has finished.

    Args:
        executor: the executor.
        begin: the number of the first node.
        end: the number of the node to stop before; None runs all.
        is_train: whether operators behave as in training.

    Raises:
        MXNetError: an operator failed; no later one has run.
    """
    for number in range(begin, len(nodes_of(executor)) if end is None else end):
        run_part(executor, number, number + 1, is_train=is_train)
        mx.nd.waitall()

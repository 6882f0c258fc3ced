"""Shares of tiles for the devices of a mixed machine: faster devices get larger tiles.

The search itself cuts equal tiles. Its cuts then get shares, by how fast each device computes this
graph; a simulated step corrects them: a device whose memory does not suffice gets less, one that
computes for less time than others more (docs/design/0021).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Callable

from tofu import _core
from tofu.analysis.work import node_work

if TYPE_CHECKING:
    from tofu.plans.simulated_step import Simulation

__all__ = ["Shares", "device_speeds", "refined_shares", "shares_of"]

# [step][part], as in Parts.
Shares = tuple[tuple[int, ...], ...]

_FINE = 1000  # the sum of a step's shares
_ALIKE = 0.01  # shares that differ by less are equal
_TRIES = 4
_ROOM = 0.97  # of a device's memory, to aim at
_DAMPED = 0.7  # share of a difference that one try makes up for: not everything scales


def device_speeds(table: _core.StrategyTable, machine: _core.Machine, workers: int) -> list[float]:
    """Each device's speed: the number of parts of all operators that it computes in a second.

    Args:
        table: of the graph.
        machine: with a device for each worker.
        workers: their number, which is also that of the parts.
    """
    calls = _core.OperatorCalls(table.graph)
    works = list(map(node_work, calls.nodes))
    kind_seconds: dict[str, float] = {}
    for device in range(workers):
        kind = machine.kind_of(device)
        if kind not in kind_seconds:
            kind_seconds[kind] = machine.seconds_of(calls, works, workers, device)
    seconds = [max(kind_seconds[machine.kind_of(device)], 1e-12) for device in range(workers)]
    return [1 / each for each in seconds]


def shares_of(parts: Sequence[int], loads: Sequence[float]) -> Shares:
    """The shares of each step's parts, which are the sums of their workers' loads.

    Args:
        parts: the number of parts of each step.
        loads: each worker's load, in relation to the others.

    Returns:
        () for a step whose parts are alike; nothing if all are.

    >>> shares_of((2, 2), (3, 3, 1, 1))
    ((750, 250), ())
    """
    sums = [[0.0] * count for count in parts]
    for digits, load in zip(itertools.product(*map(range, parts)), loads):
        for step, digit in zip(sums, digits):
            step[digit] += load
    shares = []
    for step in sums:
        counts = [max(1, round(_FINE * part / sum(step))) for part in step]
        shares.append(() if max(counts) <= (1 + _ALIKE) * min(counts) else tuple(counts))
    return tuple(shares) if any(shares) else ()


def refined_shares(
    parts: Sequence[int],
    kinds: Sequence[str],
    speeds: Sequence[float],
    simulate: Callable[[Shares], Simulation],
) -> Iterator[Shares]:
    """Yield shares, each better informed than those before by their simulated step.

    Args:
        parts: the number of parts of each step.
        kinds: of each worker's device; those of a kind have the same loads.
        speeds: of each worker's device.
        simulate: the step of a plan with such shares.
    """
    loads = list(speeds)
    tried: set[Shares] = set()
    for _ in range(_TRIES):
        shares = shares_of(parts, loads)
        if not shares or shares in tried:
            return
        tried.add(shares)
        simulation = simulate(shares)
        yield shares
        loads = _corrected(loads, kinds, simulation)


def _corrected(loads: Sequence[float], kinds: Sequence[str], simulation: Simulation) -> list[float]:
    """New loads of the workers, from the time and memory of a step with these loads."""
    parts = [load / sum(loads) for load in loads]
    limits = [
        part * _ROOM * worker["memory_bytes"] / worker["allocated_bytes"]
        for part, worker in zip(parts, simulation.workers)
    ]
    if simulation.fits:
        busy = [max(worker["seconds"]["compute"], 1e-12) for worker in simulation.workers]
        mean = sum(busy) / len(busy)
        parts = [part * (mean / seconds) ** _DAMPED for part, seconds in zip(parts, busy)]
    return _within(_least_of(kinds, parts), _least_of(kinds, limits))


def _least_of(kinds: Sequence[str], values: Sequence[float]) -> list[float]:
    """For each worker the least value of its kind: that of the worker who needs longest or most."""
    least = {kind: min(v for k, v in zip(kinds, values) if k == kind) for kind in kinds}
    return [least[kind] for kind in kinds]


def _within(parts: Sequence[float], limits: Sequence[float]) -> list[float]:
    """Parts that add up to 1, as near to `parts` as `limits` allow.

    >>> _within([1, 1, 2], [1, 1, 0.2])
    [0.4, 0.4, 0.2]
    """
    full: set[int] = set()
    while True:
        rest = 1 - sum(limits[number] for number in full)
        others = sum(part for number, part in enumerate(parts) if number not in full)
        if rest <= 0 or not others:
            return list(limits)
        scaled = [
            limits[number] if number in full else part * rest / others
            for number, part in enumerate(parts)
        ]
        over = {number for number, part in enumerate(scaled) if part > limits[number]} - full
        if not over:
            return scaled
        full |= over

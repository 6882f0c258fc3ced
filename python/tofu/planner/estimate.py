"""Estimates a training step's memory for several numbers of workers, before anything runs.

estimates = list(estimate(problem_for, devices=(Devices(1), Devices(2), Devices(4))))
for each in estimates:
    print(each.workers, each.held_bytes("adam"), each.reason)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Callable, Optional

from tofu.dtypes import dtype_bytes
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.layers import updated_variables
from tofu.plans.problem import FrontEnd, Start, in_turn

from .model import Devices
from .prediction import step_predictor
from .side_threads import most_at_once, side_threads
from .sweep import Measure, Outcome, Trial, begin_trial, begun, sweep

__all__ = [
    "KINDS",
    "OPTIMIZERS",
    "Estimate",
    "Fit",
    "batch_of",
    "estimate",
    "extrapolated_batch",
    "fewest",
    "largest_batches",
]

# Tensors of state that an optimizer keeps for a parameter, each as large as the gradient.
OPTIMIZERS: Mapping[str, int] = {"sgd": 0, "sgd_mom": 1, "adam": 2}
# Kinds of memory of a worker besides the state of an optimizer.
KINDS = ("parameters", "gradients", "activations", "fetch_buffers")
_FLOAT32_BYTES = 4
_MOSTLY_WHOLE = 0.5  # of the bytes of all tensors
_SAVES = 0.99  # of the bytes of fewer workers: less is worth more workers
_MOST_TRIES = 16  # of batch sizes
_LINEAR_TRIES = 4  # before halves are tried, too
_NEAR = 2  # two batches whose ratio is at most this show how memory grows between and beside them


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Memory of the fullest of `workers` workers.

    Attributes:
        workers: the number of workers; 1 is the serial run.
        plan: the plan with the fewest bytes, with its memory; None if there is none.
        reason: why this number of workers is of no use, or why there is no plan; "" if it helps.
        mesh: the sizes of the mesh's dimensions; empty but for modules of PyTorch.
        state_kind: as in FrontEnd.
        step_seconds: the predicted time of a step; None without a machine.
        has_masters: whether the optimizer keeps a float32 copy of each parameter of a smaller
            type, and its state in float32.
    """

    workers: int
    plan: Optional[Plan]
    reason: str = ""
    mesh: tuple[int, ...] = ()
    state_kind: str = FrontEnd.state_kind
    step_seconds: Optional[float] = None
    has_masters: bool = False

    @property
    def devices(self) -> Devices:
        """The workers, or the mesh."""
        return Devices(self.workers, self.mesh)

    @property
    def kinds(self) -> Mapping[str, int]:
        """Bytes by kind, without the optimizer's state."""
        if self.plan is None:
            return {}
        return {kind: self.plan.bytes_per_worker.get(kind, 0) for kind in KINDS}

    def state_bytes(self, optimizer: str) -> int:
        """The bytes of the optimizer's state, and of masters; they are cut as parameters are."""
        kinds = self.plan.bytes_per_worker if self.plan else {}
        unit, (growth, masters) = kinds.get(self.state_kind, 0), self._in_float32
        return int(unit * (OPTIMIZERS[optimizer] * growth + masters))

    @functools.cached_property
    def _in_float32(self) -> tuple[float, float]:
        """The bytes in float32 of a state, and of masters, in parts of those of the parameters."""
        if not self.has_masters or self.plan is None:
            return 1.0, 0.0
        updated = updated_variables(operator.node for operator in self.plan.operators)
        parameters = [tensor for tensor in self.plan.tensors if tensor.node in updated]
        small = [each for each in parameters if dtype_bytes(each.dtype) < _FLOAT32_BYTES]
        total = sum(each.bytes for each in parameters)
        copies = sum(_FLOAT32_BYTES * each.bytes // dtype_bytes(each.dtype) for each in small)
        kept = total - sum(each.bytes for each in small)
        return (kept + copies) / max(total, 1), copies / max(total, 1)

    def held_bytes(self, optimizer: str) -> int:
        """All bytes with the state of an optimizer, one of OPTIMIZERS."""
        return sum(self.kinds.values()) + self.state_bytes(optimizer)

    @property
    def growing_bytes(self) -> int:
        """The bytes that grow with the batch."""
        return self.kinds.get("activations", 0) + self.kinds.get("fetch_buffers", 0)


def estimate(
    problem_for: Callable[[Devices], Problem],
    *,
    devices: Sequence[Devices],
    exact: bool = True,
    time_limit_s: Optional[float] = None,
    machine: str = "",
    has_masters: bool = False,
) -> Iterator[Estimate]:
    """Yield the memory over each number of workers, in ascending order, as soon as it is known.

    Args:
        problem_for: the graph for some devices.
        devices: numbers of workers, or meshes.
        exact: whether to count the memory that MXNet will allocate; else a quick estimate.
        time_limit_s: seconds for each search; None: the default.
        machine: the file or name of a machine that predicts the time of a step; "" for none.
        has_masters: as in Estimate.
    """
    options = SearchOptions(time_limit_s=time_limit_s, machine=machine)
    least: dict[int, Estimate] = {}  # by number of workers: those that hold less than fewer
    rows = sorted(dict.fromkeys(devices), key=lambda each: each.workers)
    trials = (
        _trial(problem_for(each), f"{_workers_text(each)} (row {row} of {len(rows)})", options)
        for row, each in enumerate(rows, 1)
    )
    predict = step_predictor(machine, rows[-1].workers, None) if machine else None
    for outcome, each in zip(sweep(trials, Measure(exact, predict)), rows):
        current = dataclasses.replace(_of_outcome(outcome), mesh=each.mesh, has_masters=has_masters)
        fewer = [other for count, other in least.items() if count < each.workers]
        reason = current.reason or _no_use(current, fewer[-1] if fewer else None)
        current = dataclasses.replace(current, reason=reason)
        if current.plan is not None and not reason:
            least.setdefault(each.workers, current)
        yield current


def _estimating(
    problem: Problem, place: str, *, exact: bool, start: Start, has_masters: bool
) -> Generator[None, None, Estimate]:
    """Search a plan and measure it; yield when either has begun, before waiting for it."""
    wait_for_plan = begin_trial(_trial(problem, place), start)
    yield
    wait_for_memory = begun(*wait_for_plan(), Measure(exact), start)
    yield
    return dataclasses.replace(_of_outcome(wait_for_memory()), has_masters=has_masters)


def _of_outcome(outcome: Outcome) -> Estimate:
    problem = outcome.trial.problem
    return Estimate(
        problem.workers, outcome.plan, outcome.reason, state_kind=problem.front_end.state_kind,
        step_seconds=outcome.step_seconds,
    )  # fmt: skip


def _trial(problem: Problem, place: str, options: Optional[SearchOptions] = None) -> Trial:
    name = _workers_text(Devices(problem.workers))
    return Trial(name, problem, options or SearchOptions(), place=place)


def _workers_text(devices: Devices) -> str:
    return f"{devices} worker{'s' * (devices.workers > 1)}"


def _no_use(current: Estimate, least: Optional[Estimate]) -> str:
    """Explain why fewer workers do as well; "" if they do not."""
    if current.plan is None or least is None:
        return ""
    if current.held_bytes("sgd") <= _SAVES * least.held_bytes("sgd"):
        return ""
    reason = f"holds no less than {_workers_text(least.devices)}"
    if sum(current.plan.replicated_bytes().values()) < _MOSTLY_WHOLE * current.plan.tensor_bytes:
        return reason
    parts = " x ".join(map(str, current.plan.parts))
    return f"{reason}, as most tensors have no dimension for {parts} parts"


# --- limits -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fit:
    """The largest batch that fits.

    Attributes:
        batch: its size; 0: not even the smallest fits.
        estimate: the memory at that batch, or at the smallest tried if none fits.
    """

    batch: int
    estimate: Estimate


def fewest(estimates: Sequence[Estimate], optimizer: str, limit_bytes: int) -> Optional[Estimate]:
    """The fewest workers that stay within a limit, if any do; of their meshes, the cheapest."""
    fitting = (
        (e.workers, e.plan.total_bytes, e)
        for e in estimates
        if e.plan and e.held_bytes(optimizer) <= limit_bytes
    )
    return min(fitting, key=lambda each: each[:2], default=(0, 0, None))[2]


def largest_batches(
    problem_for: Callable[[int, int], Problem],
    starts: Iterable[Estimate],
    batch: int,
    *,
    optimizer: str,
    limit_bytes: int,
    exact: bool = True,
) -> Iterator[tuple[int, Fit]]:
    """Yield numbers of workers and the largest batch whose plan stays within a limit.

    Sizes that the number of workers divides are tried, guided by memory growing nearly
    linearly; below that number, its divisors. The memory of a batch that is yielded was counted;
    that the next one does not fit may be told from the line through two batches near it. The
    memory of several numbers of workers is counted at once.

    Args:
        problem_for: the graph for a number of workers and a batch size.
        starts: the estimates of `batch`, one for each number of workers.
        batch: a batch size.
        optimizer: one of OPTIMIZERS.
        limit_bytes: bytes that a worker may hold.
        exact: as for estimate.
    """
    with contextlib.ExitStack() as threads:
        begin = threads.enter_context(side_threads()) if exact else in_turn

        def estimate_of(
            has_masters: bool, workers: int, size: int
        ) -> Generator[None, None, Estimate]:
            name = f"{_workers_text(Devices(workers))}, batch {size}"
            problem = problem_for(workers, size)
            return _estimating(problem, name, exact=exact, start=begin, has_masters=has_masters)

        expected = 1.0  # of the last number of workers that is known

        def search_of(start: Estimate) -> _BatchSearch:
            estimate_at = functools.partial(estimate_of, start.has_masters, start.workers)
            return _BatchSearch(
                start, _largest(start, batch, optimizer, limit_bytes, expected, estimate_at)
            )

        searches = map(search_of, starts)
        # One more than there are cores: the main thread makes a graph while they are busy.
        active = deque(itertools.islice(searches, most_at_once() + 1 if exact else 1))
        while active:
            for each in active:
                each.go_on()
            while active and active[0].fit is not None:
                done = active.popleft()
                assert done.fit is not None
                linear = extrapolated_batch(done.start, batch, optimizer, limit_bytes)
                if linear and done.fit.batch:
                    expected = done.fit.batch / linear
                yield done.start.workers, done.fit
                active.extend(itertools.islice(searches, 1))


@dataclasses.dataclass
class _BatchSearch:
    """The search for one number of workers, which waits for a plan or its memory between steps."""

    start: Estimate
    steps: Generator[None, None, Fit]
    fit: Optional[Fit] = None

    def go_on(self) -> None:
        """Wait for what was begun, and begin the next, or end."""
        if self.fit is None:
            try:
                next(self.steps)
            except StopIteration as end:
                self.fit = end.value


def _largest(
    start: Estimate,
    batch: int,
    optimizer: str,
    limit_bytes: int,
    expected: float,
    estimate_at: Callable[[int], Generator[None, None, Estimate]],
) -> Generator[None, None, Fit]:
    """Try batch sizes, and return the largest that fits.

    expected: the largest batch, in parts of the one that linear growth from `start` gives.
    """
    unit = start.workers
    seen = {batch: start}

    def fits(size: int) -> Generator[None, None, bool]:
        if size not in seen:
            seen[size] = yield from estimate_at(size)
        current = seen[size]
        return current.plan is not None and current.held_bytes(optimizer) <= limit_bytes

    most, least = 0, 0  # the largest size known to fit, the smallest known not to; 0: none
    if batch % unit == 0:
        most, least = (batch, 0) if (yield from fits(batch)) else (0, batch)
    size = int(extrapolated_batch(start, batch, optimizer, limit_bytes) * expected)
    if size == 0 and not (yield from fits(1)):
        return Fit(0, seen[1])
    for turn in range(_MOST_TRIES):
        if least and least - most <= unit:
            break
        size = max(size // unit * unit, most + unit)
        size = min(size, least - unit) if least else size
        if (yield from fits(size)):
            most = size
        else:
            least = size
        held = {each: e.held_bytes(optimizer) for each, e in seen.items() if e.plan}
        size = _crossing(held, limit_bytes)
        if 0 < most <= size < most + unit and _are_near(_nearest(held, limit_bytes)):
            break
        if turn >= _LINEAR_TRIES and turn % 2:
            size = (most + least) // 2 if least else 2 * most
    smaller = [] if most else [size for size in range(unit - 1, 0, -1) if unit % size == 0]
    for size in smaller:
        if (yield from fits(size)):
            most = size
            break
    return Fit(most, seen[most or min(seen)])


def _nearest(held: Mapping[int, int], limit_bytes: int) -> list[int]:
    """The two sizes whose memory is nearest to the limit, or all if there are fewer."""
    return sorted(sorted(held, key=lambda size: abs(held[size] - limit_bytes))[:2])


def _are_near(sizes: Sequence[int]) -> bool:
    return len(sizes) == 2 and sizes[1] <= _NEAR * sizes[0]


def _crossing(held: Mapping[int, int], limit_bytes: int) -> int:
    """The largest size within the limit, on the line through the two sizes nearest to it."""
    nearest = _nearest(held, limit_bytes)
    if len(nearest) < 2:
        return 0
    low, high = nearest
    growth = (held[high] - held[low]) / (high - low)
    return max(low + math.floor((limit_bytes - held[low]) / growth), 0) if growth > 0 else 0


def extrapolated_batch(current: Estimate, batch: int, optimizer: str, limit_bytes: int) -> int:
    """The batch that would fit if its memory grew linearly; 0 if none would."""
    free = limit_bytes - (current.held_bytes(optimizer) - current.growing_bytes)
    return max(free * batch // max(current.growing_bytes, 1), 0)


def batch_of(problem: Problem) -> int:
    """The batch of a graph: the first extent that most of its inputs share; 0 if unknown.

    Inputs are the variables that no step changes.
    """
    graph = problem.graph
    roles = (role.partition(":") for role in graph.head_roles)
    changed = {name for kind, _, name in roles if kind in ("gradient", "aux")}
    extents = [
        node.outputs[0][0][0]
        for node in graph.nodes
        if not node.op and node.outputs[0][0] and node.name.partition(":")[0] not in changed
    ]
    return Counter(extents).most_common(1)[0][0] if extents else 0

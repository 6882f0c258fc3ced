"""Simulates one device that swaps tensors to the host's memory, as section 7.1 defines it.

Operators run in the executor's order. Before one runs, its tensors must be on the device; the
least recently used others make space. A tensor that changed since it was last on the host is
copied there first; a tensor that was only read is dropped. Tensors that the next operators use are
not swapped out, and are copied in while earlier operators run (prefetch). A tensor without further
readers is dropped. The paper does not say how many operators count as next; the simulation takes
the fastest number.

Copies share one bandwidth in both directions, and run one after the other.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence

from tofu import _core
from tofu.analysis.work import node_work
from tofu.dtypes import dtype_bytes

__all__ = ["HOST_BYTES_PER_S", "Swapped", "Tensors", "run_swapping", "simulate_swapping"]

# Between CPU and GPUs, which share it (paper, section 7.1).
HOST_BYTES_PER_S = 10e9
_AHEAD = 4  # operators whose tensors are copied in early
_SOON = (4, 16, 32, 64, 96, 128)  # numbers of operators whose tensors stay, if possible
_UPDATE = "_update"  # ends the names of operators that change a parameter
_STEPS = 2  # until tensors are where a step finds them in every step


@dataclasses.dataclass(frozen=True)
class Swapped:
    """A step of a device that swaps.

    Attributes:
        fits: whether each operator's own tensors fit the device.
        step_seconds: its time.
        compute_seconds: time of the operators alone.
        copy_seconds: time of all copies.
        copied_bytes: bytes copied in both directions.
        memory_bytes: most bytes on the device at once.
    """

    fits: bool
    step_seconds: float
    compute_seconds: float
    copy_seconds: float
    copied_bytes: int
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class Tensors:
    """Tensors that operators touch, by number.

    Attributes:
        sizes: bytes of each tensor.
        kept: tensors that stay from step to step.
        reads, writes: tensors of each operator, in the order in which operators run.
        seconds: time of each operator.
    """

    sizes: Sequence[int]
    kept: frozenset[int]
    reads: Sequence[Sequence[int]]
    writes: Sequence[Sequence[int]]
    seconds: Sequence[float]


def simulate_swapping(
    graph: _core.Graph,
    machine: _core.Machine,
    *,
    bytes_per_s: float,
    alone_seconds: float,
) -> Swapped:
    """Simulate steps of one worker's graph on one device until they repeat; return the last.

    Args:
        graph: of one worker, in the order in which it runs.
        machine: the graph runs on one of its devices.
        bytes_per_s: of copies between this device and the host.
        alone_seconds: a step with memory without end. The time that it takes beyond its operators'
            is that of launching them, and is added to them in equal parts.
    """
    tensors = _tensors_of(graph, machine)
    more = max(0.0, alone_seconds - sum(tensors.seconds)) / max(len(tensors.seconds), 1)
    launched = dataclasses.replace(tensors, seconds=[each + more for each in tensors.seconds])
    return run_swapping(launched, machine.memory_bytes, bytes_per_s)


def run_swapping(
    tensors: Tensors, memory_bytes: int, bytes_per_s: float, soon: Sequence[int] = _SOON
) -> Swapped:
    """Run steps with so much memory until they repeat; return the last.

    soon: numbers of next operators whose tensors stay if possible; the fastest is taken.
    """
    runs = [_run(_Device(tensors, memory_bytes, bytes_per_s, each), tensors) for each in soon]
    return min(runs, key=lambda each: each.step_seconds)


def _run(device: _Device, tensors: Tensors) -> Swapped:
    for _ in range(_STEPS):
        device.step()
    return Swapped(
        device.fits,
        device.step_seconds,
        sum(tensors.seconds),
        device.copied_bytes / device.bytes_per_s,
        device.copied_bytes,
        device.most_bytes,
    )


class _Device:
    """The memory of a device, and the times of its two engines: operators, and copies."""

    def __init__(self, tensors: Tensors, memory_bytes: int, bytes_per_s: float, soon: int) -> None:
        self._tensors = tensors
        self._memory = memory_bytes
        self.bytes_per_s = bytes_per_s
        self._soon = soon
        self._here: collections.OrderedDict[int, None] = collections.OrderedDict()  # oldest first
        self._on_host = set(tensors.kept)
        self._used = 0
        self._computed = 0.0  # when the last operator ended
        self._copied = 0.0  # when the last copy ended
        self._last_use = {
            tensor: number
            for number, touched in enumerate(zip(tensors.reads, tensors.writes))
            for tensor in (*touched[0], *touched[1])
        }
        self.fits = True
        self.step_seconds = 0.0
        self.copied_bytes = 0
        self.most_bytes = 0

    def step(self) -> None:
        """Run every operator once."""
        begin = max(self._computed, self._copied)
        self._computed = self._copied = begin
        self.copied_bytes = 0
        reads, writes = self._tensors.reads, self._tensors.writes
        ends = collections.deque([begin] * (_AHEAD + 1), maxlen=_AHEAD + 1)
        for number, seconds in enumerate(self._tensors.seconds):
            touched = [*reads[number], *writes[number]]
            soon = {
                tensor
                for later in range(number, min(number + self._soon, len(reads)))
                for tensor in (*reads[later], *writes[later])
            }
            # Copies for this operator may run as soon as one some operators before has ended.
            self._copied = max(self._copied, ends[0])
            for tensor in dict.fromkeys(touched):
                self._bring(tensor, set(touched), soon, is_read=tensor in reads[number])
            ready = self._copied if self._waits else 0.0
            self._computed = max(self._computed, ready) + seconds
            ends.append(self._computed)
            self._on_host.difference_update(writes[number])
            self._drop_dead(number, touched)
        self.step_seconds = max(self._computed, self._copied) - begin

    _waits = False

    def _bring(self, tensor: int, touched: set[int], soon: set[int], *, is_read: bool) -> None:
        if tensor in self._here:
            self._here.move_to_end(tensor)
            return
        size = self._tensors.sizes[tensor]
        for keep in (soon | touched, touched):  # tensors that are used soon leave last
            for evicted in [each for each in self._here if each not in keep]:
                if self._used + size <= self._memory:
                    break
                self._send(evicted)
        self.fits = self.fits and self._used + size <= self._memory
        self._here[tensor] = None
        self._used += size
        self.most_bytes = max(self.most_bytes, self._used)
        if is_read and tensor in self._on_host:
            self._copy(size)

    def _send(self, tensor: int) -> None:
        del self._here[tensor]
        self._used -= self._tensors.sizes[tensor]
        if tensor not in self._on_host:
            self._on_host.add(tensor)
            self._copy(self._tensors.sizes[tensor])

    def _copy(self, size: int) -> None:
        self._waits = True
        self._copied += size / self.bytes_per_s
        self.copied_bytes += size

    def _drop_dead(self, number: int, touched: Sequence[int]) -> None:
        self._waits = False
        for tensor in set(touched):
            if tensor in self._tensors.kept or self._last_use[tensor] != number:
                continue
            if tensor in self._here:
                del self._here[tensor]
                self._used -= self._tensors.sizes[tensor]
            self._on_host.discard(tensor)


def _tensors_of(graph: _core.Graph, machine: _core.Machine) -> Tensors:
    numbers: dict[tuple[int, int], int] = {}
    sizes: list[int] = []
    resident = set()
    reads, writes, seconds = [], [], []
    for number, node in enumerate(graph.nodes):
        inputs = [numbers[source] for source in node.sources]
        outputs = []
        for index, (shape, dtype) in enumerate(node.outputs):
            if node.op.endswith(_UPDATE) and index == 0:  # writes its weight
                numbers[number, index] = inputs[0]
            else:
                numbers[number, index] = len(sizes)
                sizes.append(math.prod(shape) * dtype_bytes(dtype))
            outputs.append(numbers[number, index])
        if not node.op:
            resident.update(outputs)
            continue
        if node.op.endswith(_UPDATE):  # and the optimizer's state
            outputs += [each for each in inputs[2:] if each in resident]
        reads.append(inputs)
        writes.append(outputs)
        seconds.append(machine.operator_seconds(node.op, node_work(node)))
    return Tensors(sizes, frozenset(resident), reads, writes, seconds)

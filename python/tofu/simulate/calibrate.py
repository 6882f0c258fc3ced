"""Describes the machine at hand: measures it, and makes the document of a machine file.

The operators are those of training graphs of common networks, at several sizes. Every different
call is measured on its own. Another call takes what the nearest ones by FLOPs and bytes take: at
equal FLOPs, a product with large weights takes ten times as long as one with small ones.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import operator
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

import mxnet as mx

from tofu import _core
from tofu.analysis.work import KINDS
from tofu.errors import TofuError
from tofu.models import Model, build, find, make_rnn, make_wresnet
from tofu.mx.extension import load

from .measure import Engine, engine_seconds, fetch_seconds, node_seconds
from .simulation import WorkRecord, node_work

__all__ = ["MODELS", "Measured", "calibrate", "machine_document", "rate_tables"]

# Models to measure, and the batch sizes of each.
MODELS: tuple[tuple[Callable[[], Model], tuple[int, ...], bool], ...] = (
    (lambda: make_wresnet(50, 1, image=64), (2, 16), False),
    (lambda: make_wresnet(50, 3, image=32), (4,), False),
    (lambda: make_rnn(2, 512, steps=2), (16, 128), False),
    (lambda: make_rnn(1, 1024, steps=2), (32,), False),
    (lambda: find("transformer"), (16, 64), True),
    (lambda: find("mlp"), (32, 256), True),
    (lambda: _wide_mlp(1536), (384,), True),
)
_DEVICES = 64  # contexts that a machine file offers: any number of them share the cores
_COPY_BYTES = tuple(4**power for power in range(5, 13))  # 1 KiB to 16 MiB
_AT_ONCE_BYTES = 4 * 2**20
# Number of calls to measure among calls whose FLOPs and bytes differ by less than a factor.
_CALLS = 2
_BUCKET = 4.0
_SMALLEST_BYTES = 2**10
_FLOPS_PER_BYTE = tuple(4.0**power for power in range(-1, 5))
_NEAR = 1e-3  # as in machine.cc


@dataclasses.dataclass(frozen=True)
class Measured:
    """A call of an operator: its work and its time."""

    op: str
    work: WorkRecord
    seconds: float


def calibrate(
    *,
    models: Optional[Sequence[tuple[Model, int, bool]]] = None,
    progress: Callable[[Sequence[_core.Node]], Iterable[_core.Node]] = iter,
) -> dict[str, Any]:
    """Measure this machine's CPU contexts.

    Args:
        models: model, batch size, whether reduced, of the graphs with the operators; None: MODELS.
        progress: passes on the calls while they are measured.

    Returns:
        The document of a machine file (docs/formats.md).
    """
    load()
    engine = engine_seconds()
    measured = []
    for node in progress(_calls(models)):
        try:
            measured.append(Measured(node.op, node_work(node), node_seconds(node, engine)))
        except (TofuError, mx.MXNetError):  # MXNet cannot run it alone
            continue
    return machine_document(engine, measured, *_at_once(engine), _copies(engine))


def _calls(models: Optional[Sequence[tuple[Model, int, bool]]]) -> list[_core.Node]:
    """The different calls of operators in the models, each once."""
    if models is None:
        models = [
            (model(), batch_size, reduced)
            for model, sizes, reduced in MODELS
            for batch_size in sizes
        ]
    calls: dict[str, _core.Node] = {}
    for model, batch_size, reduced in models:
        for optimizer in ("sgd_mom", "adam"):
            graph = build(model, batch_size, reduced=reduced).training_graph(optimizer=optimizer)
            for node in _core.OperatorCalls(graph).nodes:
                calls.setdefault(repr((node.op, sorted(node.attrs.items()), node.inputs)), node)
    return _sample(calls.values())


def _wide_mlp(hidden: int) -> Model:
    """The reduced MLP with wider layers."""
    model = find("mlp")
    options = {**model.reduced.options, "hidden": hidden, "layers": 2}
    return dataclasses.replace(model, reduced=dataclasses.replace(model.reduced, options=options))


def _sample(nodes: Iterable[_core.Node]) -> list[_core.Node]:
    """Some calls of each operator for every range of FLOPs and bytes, evenly chosen."""
    ranges: dict[tuple[str, str, int, int], list[_core.Node]] = collections.defaultdict(list)
    for node in nodes:
        kind, flops, size = node_work(node)
        if size >= _SMALLEST_BYTES:
            ranges[kind, node.op, _bucket(flops), _bucket(size)].append(node)
    chosen = []
    for calls in ranges.values():
        count = min(len(calls), _CALLS)
        chosen += [calls[(2 * i + 1) * len(calls) // (2 * count)] for i in range(count)]
    return chosen


def _at_once(engine: Engine) -> tuple[int, list[float]]:
    """The number of cores, and how fast each of several workers multiplies matrices."""
    cores = len(os.sched_getaffinity(0))
    graph = build(find("mlp"), 256, reduced=True).training_graph(optimizer=None)
    node = max(graph.nodes, key=lambda each: node_work(each)[1])
    seconds = [node_seconds(node, engine, workers=n) for n in range(1, min(cores, 8) + 1)]
    return cores, [min(1.0, seconds[0] / each) for each in seconds]


def _copies(engine: Engine) -> list[tuple[int, int, float]]:
    """Measures copies: bytes, number of workers that copy at once, and seconds of each."""
    cores = min(len(os.sched_getaffinity(0)), 8)
    alone = [(size, 1, fetch_seconds(size, engine, workers=2)) for size in _COPY_BYTES]
    together = fetch_seconds(_AT_ONCE_BYTES, engine, workers=max(cores, 2))
    return [*alone, (_AT_ONCE_BYTES, max(cores, 2), together)]


# --- the document ---------------------------------------------------------------------------


def machine_document(
    engine: Engine,
    measured: Sequence[Measured],
    cores: int,
    speeds: Sequence[float],
    copies: Sequence[tuple[int, int, float]],
) -> dict[str, Any]:
    """The document of a machine file.

    Args:
        engine: the engine's costs.
        measured: calls of operators.
        cores: the number of cores.
        speeds: speed of each of 1, 2, ... workers, compared with one alone.
        copies: bytes, workers that copy at once, and the seconds of each.
    """
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    alone = [[size, _rounded(size / seconds)] for size, at_once, seconds in copies if at_once == 1]
    together = max(n * size / seconds for size, n, seconds in copies if n > 1)
    return {
        "format": "tofu-machine",
        "version": 1,
        "name": platform.node() or "this machine",
        "sources": [
            f"Measured by tofu calibrate, in processor time, with one thread per worker: "
            f"{_processor()}, {cores} cores, MXNet {mx.__version__}."
        ],
        "measured": True,
        "device": {
            "kind": "cpu",
            "count": _DEVICES,
            "memory_bytes": page * pages,
            "launch_s": _rounded(engine.launch_s),
            "synchronize_s": 0,
            "threads": 1,
            "copy_threads": 1,
            "segments": False,
        },
        "host": {
            "cores": cores,
            "push_s": _rounded(engine.push_s),
            "speed_at_once": [_rounded(speed) for speed in speeds],
        },
        "operators": rate_tables(measured),
        "links": [
            {
                "name": "memory",
                "devices": _DEVICES,
                "latency_s": 0,
                "bytes_per_s": alone,
                "port_bytes_per_s": None,
                "group_bytes_per_s": _rounded(together),
            }
        ],
    }


def rate_tables(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """An entry for every kind of operator, and for every operator of a kind."""
    groups: dict[tuple[str, str], list[Measured]] = collections.defaultdict(list)
    for call in measured:
        kind, _, size = call.work
        if size < _SMALLEST_BYTES:  # only the engine's cost
            continue
        groups[kind, ""].append(call)
        groups[kind, call.op].append(call)
    for kind in KINDS:
        if not groups[kind, ""]:  # as fast as anything
            groups[kind, ""] = list(measured)
    entries = []
    for (kind, op), calls in sorted(groups.items()):
        rows = [[*map(_rounded, (*call.work[1:], call.seconds))] for call in calls]
        rates = {"flops_per_byte": _best_flops_per_byte(rows), "calls": rows}
        entries.append({"kind": kind, **({"op": op} if op else {}), **rates})
    return entries


def _best_flops_per_byte(rows: Sequence[Sequence[float]]) -> float:
    """FLOPs that a byte is worth, chosen so that calls predict each other best.

    Args:
        rows: FLOPs, bytes and seconds of each call.
    """
    logs = [(math.log(max(flops, 1.0)), math.log(max(size, 1.0))) for flops, size, _ in rows]
    rates = {
        flops_per_byte: [math.log((flops + flops_per_byte * size) / s) for flops, size, s in rows]
        for flops_per_byte in _FLOPS_PER_BYTE
    }
    errors = dict.fromkeys(_FLOPS_PER_BYTE, 0.0)
    for call, (x, y) in enumerate(logs):
        weights = [((x - f) ** 2 + (y - b) ** 2 + _NEAR) ** -2 for f, b in logs]
        weights[call] = 0.0
        for flops_per_byte, call_rates in rates.items():
            mean = sum(map(operator.mul, weights, call_rates)) / (sum(weights) or 1.0)
            errors[flops_per_byte] += abs(mean - call_rates[call]) * rows[call][2]
    return min(errors, key=errors.__getitem__)


def _bucket(amount: float) -> int:
    return math.floor(math.log(max(amount, 1.0), _BUCKET))


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _processor() -> str:
    lines = _cpu_lines()
    return next((name for name in lines if name), platform.machine())


def _cpu_lines() -> Iterator[str]:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                yield line.partition(":")[2].strip()

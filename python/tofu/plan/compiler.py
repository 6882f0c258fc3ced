"""From a training graph to the graphs that MXNet binds: the C++ passes, in order.

``compile_graph`` plans, partitions and splits into phases; ``plan_graph`` only plans, and
``Problem`` is what it takes to do so.
With a dump directory every pass leaves a readable file there, numbered in the order
in which the passes ran.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable, Optional

from tofu.analysis.strategy_table import strategy_table
from tofu.errors import ConfigError, PlanError

from .options import Pins, SearchOptions, check_pins, tensor_names
from .plan import DTYPE_BYTES, Plan

__all__ = ["Compiled", "Problem", "compile_graph", "intercept", "observe", "plan_graph", "repeats"]

OnPass = Callable[[str, str], None]

_WORKER = re.compile(r"^worker(\d+)$")
_MULTIFETCH = "_tofu_multifetch"


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A partitioned training graph and what it costs.

    Attributes:
        plan: the plan.
        partitioned: the partitioned graph (JSON, docs/formats.md).
        variables: of the partitioned graph, by name, as that document has them.
        phases: its forward and backward graphs (JSON), to be bound.
        has_backward: whether there is a backward graph.
        serial_bytes: bytes of all tensors of the serial graph.
        bytes_per_worker: bytes of all tensors on each worker, fetched regions included.
        fetched_bytes: what workers fetch from each other in a step.
        shared_bytes: what they would fetch besides if no two operators shared a fetch.
    """

    plan: Plan
    partitioned: str
    variables: Mapping[str, Any]
    phases: str
    has_backward: bool
    serial_bytes: int
    bytes_per_worker: tuple[int, ...]
    fetched_bytes: int
    shared_bytes: int

    def summary(self) -> dict[str, Any]:
        """The numbers a run reports, as JSON-able values."""
        return {
            "workers": self.plan.workers,
            "parts": list(self.plan.parts),
            "bytes_per_step": self.fetched_bytes,
            "shared_bytes": self.shared_bytes,
            "bytes_per_worker": list(self.bytes_per_worker),
            "serial_bytes": self.serial_bytes,
            "search_seconds": self.plan.search_seconds,
            "status": self.plan.status,
        }


@dataclasses.dataclass(frozen=True)
class Problem:
    """A graph to plan.

    Attributes:
        name: what a reader knows it by.
        graph: training graph, NNVM JSON with shapes and dtypes.
        table: strategy table of that graph.
        workers: number of workers.
    """

    name: str
    graph: str
    table: str
    workers: int

    def undescribed(self) -> dict[str, str]:
        """The operators that the table has no row for, each with the reason, "" if none is."""
        nodes, rows = json.loads(self.graph)["nodes"], json.loads(self.table)["nodes"]
        bare = [n["op"] for n, row in zip(nodes, rows) if row < 0 and n["op"] != "null"]
        reasons = strategy_table(self.graph)[1] if bare else {}
        return {op: reasons.get(op, "") for op in bare}


def compile_graph(
    graph_json: str,
    table_json: str,
    *,
    workers: int,
    pins: Optional[Pins] = None,
    options: Optional[SearchOptions] = None,
    saved: Optional[str] = None,
    fetch: str = "plain",
    joint: bool = False,
    dump_dir: Optional[Path] = None,
) -> Compiled:
    """Plan, partition and split a training graph.

    Args:
        graph_json: training graph, NNVM JSON with shapes and dtypes.
        table_json: strategy table of that graph.
        workers: number of workers, at least 1.
        pins: tensor to the dimension cut at each step, fixed beforehand; those of
            `options` apply to the others.
        options: how to search; None: as by default.
        saved: the plan to use in place of a search, or None.
        fetch: one of config.FETCHES.
        joint: whether one executor may run both halves, which takes less memory. A graph that
            draws random numbers is split all the same: its forward half could not be run
            again for a second backward pass.
        dump_dir: where every pass leaves a readable file, or None.

    Raises:
        GraphError: the graph or the table cannot be read.
        PlanError: a pin does not fit the graph.
        ConfigError: the saved plan does not fit the graph.
    """
    from tofu import _core

    for interceptor in _interceptors:
        interceptor(graph_json, table_json, workers)
    on_pass = _dumper(dump_dir)
    plan_json = saved
    if plan_json is None:
        options = options or SearchOptions()
        plan_json = _plan_json(graph_json, table_json, workers, pins or {}, options, on_pass)
    try:
        partitioned = _core.partition(
            graph_json, table_json, plan_json, fetch=fetch, on_pass=on_pass
        )
    except PlanError as error:
        if saved is None:
            raise
        raise ConfigError(f"the saved plan cannot be used: {error}") from None
    graph, divided = json.loads(graph_json), json.loads(partitioned)
    compiled = Compiled(
        plan=Plan.from_json(plan_json),
        partitioned=partitioned,
        variables=divided["variables"],
        phases=_core.phases(
            partitioned, joint=joint and repeats(graph, table_json), on_pass=on_pass
        ),
        has_backward=any(head["role"] != "output" for head in divided["heads"]),
        serial_bytes=sum(_entry_bytes(graph)),
        bytes_per_worker=_bytes_per_worker(divided, workers),
        fetched_bytes=divided["fetched_bytes"],
        shared_bytes=divided["shared_bytes"],
    )
    for observer in _observers:
        observer(compiled)
    return compiled


def plan_graph(
    problem: Problem,
    options: Optional[SearchOptions] = None,
    *,
    dump_dir: Optional[Path] = None,
) -> Plan:
    """Plan a training graph that is not going to be run.

    Raises:
        GraphError: the graph or the table cannot be read.
        PlanError: an option does not fit the graph.
    """
    text = _plan_json(
        problem.graph, problem.table, problem.workers, {}, options or SearchOptions(),
        _dumper(dump_dir),
    )  # fmt: skip
    return Plan.from_json(json.dumps({"model": problem.name, **json.loads(text)}))


Interceptor = Callable[[str, str, int], None]
Observer = Callable[[Compiled], None]
_interceptors: list[Interceptor] = []
_observers: list[Observer] = []


@contextlib.contextmanager
def intercept(interceptor: Interceptor) -> Iterator[None]:
    """Call `interceptor` with graph, table and workers before compile_graph plans, in this context.

    What it raises ends compile_graph; ``tofu plan`` stops a script that way.
    """
    _interceptors.append(interceptor)
    try:
        yield
    finally:
        _interceptors.remove(interceptor)


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call `observer` with everything that compile_graph makes inside this context."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _plan_json(
    graph_json: str,
    table_json: str,
    workers: int,
    pins: Pins,
    options: SearchOptions,
    on_pass: Optional[OnPass],
) -> str:
    from tofu import _core

    fixed = {name: list(cuts) for name, cuts in pins.items()}
    if options.pins:
        check_pins(options.pins, tensor_names(graph_json))
        fixed = {**{name: list(cuts) for name, cuts in options.pins}, **fixed}
    return _core.plan(
        graph_json, table_json, workers=workers, pins=fixed, on_pass=on_pass, **options.arguments()
    )


def _dumper(directory: Optional[Path]) -> Optional[OnPass]:
    if directory is None:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    taken = (int(path.name.split("-", 1)[0]) for path in directory.glob("[0-9]*-*.txt"))
    count = max(taken, default=0)

    def on_pass(name: str, text: str) -> None:
        nonlocal count
        count += 1
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        (directory / f"{count:03d}-{slug}.txt").write_text(text, encoding="utf-8")

    return on_pass


def repeats(graph: Mapping[str, Any], table_json: str) -> bool:
    """Whether a training graph computes the same again: no operator of it is random."""
    table = json.loads(table_json)
    described = zip(graph["nodes"], table["nodes"])
    rows = [table["rows"][row] if row >= 0 else None for node, row in described if _is_op(node)]
    return all(row is not None and not row["random"] for row in rows)


def _is_op(node: Mapping[str, Any]) -> bool:
    return bool(node["op"] != "null")


def _entry_bytes(graph: Mapping[str, Any]) -> list[int]:
    shapes, dtypes = graph["attrs"]["shape"][1], graph["attrs"]["dtype"][1]
    return [math.prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in zip(shapes, dtypes)]


def _bytes_per_worker(partitioned: Mapping[str, Any], workers: int) -> tuple[int, ...]:
    """All tensors of a worker, and what MXNet's copies bring to it from others.

    With MultiFetch, copies bring single numbers.
    """
    graph = partitioned["graph"]
    sizes, first = _entry_bytes(graph), graph["node_row_ptr"]
    totals = list(partitioned["fetched_bytes_per_worker"])
    if any(node["op"] == _MULTIFETCH for node in graph["nodes"]):
        totals = [0] * workers
    for node, begin, end in zip(graph["nodes"], first, first[1:]):
        match = _WORKER.match(node.get("attrs", {}).get("__ctx_group__", ""))
        if match:
            totals[int(match.group(1))] += sum(sizes[begin:end])
    return tuple(totals)

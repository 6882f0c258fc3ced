"""The systems that section 7.1 of the paper compares, simulated on a machine.

    found = simulate_system("swap", find("rnn-6-4k"), "p2.8xlarge", batch_size=512)
    found.samples_per_second

tofu: this project.
time: the same, with the objective time: the plan whose simulated step is shortest.
ideal: one device with memory without end; its throughput, once per device.
smallbatch: one device, with a batch that fits; its throughput, once per device.
swap: one device that keeps least recently used tensors in the host's memory (_swapping.py); its
    throughput, once per device, which share the bandwidth to the host.
placement: the layers of one graph, placed on the devices in turn.
dataparallel: the mode data-parallel of the search.

All but tofu, time and dataparallel leave MXNet's memory planner its defaults, as they run without
tofu. Everything is simulated; nothing runs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Optional, TypeVar

from _swapping import HOST_BYTES_PER_S, simulate_swapping

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import ConfigError
from tofu.models import Model, build
from tofu.mx.graphs.lower.fused_norm import refined
from tofu.mx.model.mxnet_programs import MXNET
from tofu.planner.search import search
from tofu.plans import Problem, SearchOptions
from tofu.plans.layers import layer_of
from tofu.plans.machine_files import read_machine
from tofu.plans.simulated_step import Simulation
from tofu.simulate.simulation import simulate_graph, simulate_plan, step_graph

__all__ = [
    "SYSTEMS",
    "Outcome",
    "Plans",
    "layer_devices",
    "place_layers",
    "promising",
    "simulate_system",
]

Device = TypeVar("Device")

SYSTEMS = ("tofu", "time", "ideal", "smallbatch", "swap", "placement", "dataparallel")
FOR_TIME = "time"
OPTIMIZER = "sgd_mom"  # with a history, as the paper counts: three times the weights
_BACKWARD = "_backward_"
_FAR = 1.3  # an estimate of memory is wrong by at most this factor
_UPDATE = "_update"  # ends the names of operators that change a parameter

# Plans by batch size, number of workers, search mode, and whether BatchNorms stay whole.
Plans = dict[tuple[int, int, str, bool], _core.Plan]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A system's simulated training step.

    Attributes:
        system, model, batch_size, devices: the simulated case.
        fits: whether it fits the devices' memory; if not, the numbers are those of larger devices.
        samples_per_second: of all devices together.
        step_seconds: of one step.
        compute_seconds, fetch_seconds, waiting_seconds: of the slowest device: computing (with
            the host's work for it), moving bytes, and neither. Moving may overlap computing.
        memory_bytes: of the fullest device.
        simulated: True; a measured outcome says False.
    """

    system: str
    model: str
    batch_size: int
    devices: int
    fits: bool
    samples_per_second: float
    step_seconds: float
    compute_seconds: float
    fetch_seconds: float
    waiting_seconds: float
    memory_bytes: int
    simulated: bool = True


def simulate_system(
    system: str,
    model: Model,
    machine: str,
    *,
    batch_size: Optional[int] = None,
    largest_batch: Optional[int] = None,
    devices: Optional[int] = None,
    reduced: bool = False,
    mode: str = "tofu",
    fetch: str = "multifetch",
    plans: Optional[Plans] = None,
) -> Outcome:
    """Simulate a training step of a model under a system.

    Args:
        system: one of SYSTEMS.
        model: the model.
        machine: a machine file or name.
        batch_size: examples per step; None: the largest that fits, halved from largest_batch,
            which "ideal" has.
        largest_batch: None: the model's own.
        devices: number of devices; None: all.
        reduced: whether to take the small version of the model.
        mode: of the search, for "tofu".
        fetch: how workers fetch, for "tofu", "time" and "dataparallel".
        plans: of this model, kept for further calls; None: no plans are kept.

    Raises:
        ConfigError: there is no such system, or the machine has fewer devices.
    """
    all_devices = read_machine(machine).devices
    count = all_devices if devices is None else devices
    if not 1 <= count <= all_devices:
        raise ConfigError(f"{count} devices: {machine} has {all_devices}, expected at most that")
    run = _Run(system, model, machine, count, reduced, mode, fetch, {} if plans is None else plans)
    simulate = run.runs().get(system)
    if simulate is None:
        raise ConfigError(f"system {system!r}: expected one of {', '.join(SYSTEMS)}")
    largest = largest_batch or model.batch_size
    if batch_size is not None or system == "ideal":
        return simulate(batch_size or largest)
    sizes = [largest >> halved for halved in range(largest.bit_length())]
    outcome = None
    for size in promising(sizes, run.estimate, _FAR * run.machine.memory_bytes):
        outcome = simulate(size)
        if outcome.fits:
            break
    assert outcome is not None
    return outcome


def promising(
    sizes: Sequence[int], estimate: Callable[[int], float], limit_bytes: float
) -> Iterator[int]:
    """The batch sizes whose estimate is within the limit, and the last size.

    Args:
        sizes: batch sizes, each half of its predecessor.
        estimate: a worker's memory; costs seconds. Half the batch needs at least half the memory.
        limit_bytes: the largest estimate allowed.
    """
    last = sizes[-1]
    least = estimate(last)
    for size in sizes[:-1] if least <= limit_bytes else ():
        if least <= limit_bytes:
            least = estimate(size)
        if least <= limit_bytes:
            yield size
        least /= 2
    yield last


@dataclasses.dataclass(frozen=True)
class _Run:
    system: str
    model: Model
    machine_name: str
    devices: int
    reduced: bool
    mode: str
    fetch: str
    plans: Plans

    @functools.cached_property
    def machine(self) -> _core.Machine:
        return read_machine(self.machine_name)

    def estimate(self, batch_size: int) -> float:
        """Estimates the least memory that a worker needs."""
        if self.system == "swap":
            return 0
        if self.system == "placement":
            return self._plan(batch_size, 1).memory_bytes / self.devices
        workers = 1 if self.system == "smallbatch" else self.devices
        mode = "data-parallel" if self.system == "dataparallel" else self.mode
        return self._plan(batch_size, workers, mode).memory_bytes

    def runs(self) -> dict[str, Callable[[int], Outcome]]:
        return {
            "tofu": lambda size: self._partitioned(size, self.mode),
            "time": lambda size: self._partitioned(size, FOR_TIME),
            "dataparallel": lambda size: self._partitioned(size, "data-parallel"),
            "ideal": lambda size: self._alone(size, unlimited=True),
            "smallbatch": lambda size: self._alone(size, unlimited=False),
            "swap": self._swapping,
            "placement": self._placed,
        }

    def _plan(self, batch_size: int, workers: int, mode: str = "tofu") -> _core.Plan:
        """A plan; of the mode FOR_TIME, the default mode's for the objective time."""
        # MXNet binds a whole BatchNorm only where it copies no tensor of it.
        keeps_norms = self.fetch != "plain" and workers > 1
        key = batch_size, workers, mode, keeps_norms
        if key not in self.plans:
            built = build(self.model, batch_size, reduced=self.reduced)
            graph_of = built.training_graphs(optimizer=OPTIMIZER)

            def prepare(fused: Collection[str] = ()) -> _core.StrategyTable:
                return strategy_table(graph_of(fused))[0]

            refine = functools.partial(refined, prepare) if keeps_norms else None
            problem = Problem(self.model.name, prepare(), workers, refine, front_end=MXNET)
            options = SearchOptions(mode=mode)
            if mode == FOR_TIME:
                options = SearchOptions(objective="time", machine=self.machine_name)
            self.plans[key] = search(problem, options, fetch=self.fetch).plan
        return self.plans[key]

    def _outcome(self, batch_size: int, simulation: Simulation, *, copies: int = 1) -> Outcome:
        slowest = max(simulation.workers, key=lambda worker: float(worker["busy_seconds"]))
        seconds = slowest["seconds"]
        memory = max(worker["allocated_bytes"] for worker in simulation.workers)
        return Outcome(
            self.system,
            self.model.name,
            batch_size,
            self.devices,
            memory <= self.machine.memory_bytes,
            copies * batch_size / simulation.step_seconds,
            simulation.step_seconds,
            seconds["compute"] + seconds["host"],
            seconds["links"],
            slowest["waiting_seconds"],
            memory,
        )

    def _partitioned(self, batch_size: int, mode: str) -> Outcome:
        plan = self._plan(batch_size, self.devices, mode)
        simulation = simulate_plan(plan, self.machine, fetch=self.fetch)
        return self._outcome(batch_size, simulation)

    def _alone(self, batch_size: int, *, unlimited: bool) -> Outcome:
        plan = self._plan(batch_size, 1)
        simulation = simulate_plan(plan, self.machine, fetch="plain", is_stock=True)
        outcome = self._outcome(batch_size, simulation, copies=self.devices)
        return dataclasses.replace(outcome, fits=True) if unlimited else outcome

    def _placed(self, batch_size: int) -> Outcome:
        graph, updates = step_graph(self._plan(batch_size, 1), self.machine, fetch="plain")
        placed = place_layers(graph, self.devices)
        simulation = simulate_graph(
            placed,
            updates,
            self.machine,
            workers=self.devices,
            fetch="plain",
            is_stock=True,
        )
        return self._outcome(batch_size, simulation)

    def _swapping(self, batch_size: int) -> Outcome:
        graph, updates = step_graph(self._plan(batch_size, 1), self.machine, fetch="plain")
        alone = simulate_graph(
            graph, updates, self.machine, workers=1, fetch="plain", is_stock=True
        )
        swapped = simulate_swapping(
            graph,
            self.machine,
            bytes_per_s=HOST_BYTES_PER_S / self.devices,
            alone_seconds=alone.step_seconds,
        )
        return Outcome(
            self.system,
            self.model.name,
            batch_size,
            self.devices,
            swapped.fits,
            self.devices * batch_size / swapped.step_seconds,
            swapped.step_seconds,
            swapped.compute_seconds,
            swapped.copy_seconds,
            swapped.step_seconds - swapped.compute_seconds,
            swapped.memory_bytes,
        )


def place_layers(graph: _core.Graph, devices: int) -> _core.Graph:
    """The graph of one worker with its layers on the devices in turn, as group2ctx does.

    A layer includes its backward operators and updates. Each layer's operators run in the graph's
    order; layers on one device do not wait for each other.
    """
    nodes = [
        {"op": node.op or "null", "name": node.name, "inputs": node.sources} for node in graph.nodes
    ]
    parameters = _updated(nodes)
    groups = [f"worker{device}" for device in layer_devices(nodes, parameters, range(devices))]
    return graph.placed(groups, _chains(nodes, _layers(nodes, parameters)))


def layer_devices(
    nodes: Sequence[Mapping[str, Any]], parameters: Sequence[str], devices: Sequence[Device]
) -> list[Device]:
    """The device of every node if layers take turns.

    A layer is an operator that has parameters. Other operators are placed where their first input
    is computed, data where they are read.

    Args:
        nodes: of a graph or a symbol, in NNVM's JSON.
        parameters: their names, in the order of the layers.
        devices: at least one.
    """
    turns: dict[str, Device] = {}
    for name in parameters:
        turns.setdefault(layer_of(name, is_variable=True), devices[len(turns) % len(devices)])
    return [turns.get(layer, devices[0]) for layer in _layers(nodes, parameters)]


def _layers(nodes: Sequence[Mapping[str, Any]], parameters: Iterable[str]) -> list[str]:
    """The layer with which every node is placed; "": the first."""
    layer_names = {layer_of(name, is_variable=True) for name in parameters}
    layers: list[str] = []
    for node in nodes:
        is_variable = node["op"] == "null"
        layer = layer_of(_plain(node), is_variable=is_variable)
        if layer not in layer_names:
            before = () if is_variable else (layers[source] for source, *_ in node["inputs"])
            layer = next((found for found in before if found), "")
        layers.append(layer)
    for number, node in enumerate(nodes):
        for source, *_ in node["inputs"]:
            layers[source] = layers[source] or layers[number]
    return layers


def _chains(nodes: Sequence[Mapping[str, Any]], layers: Sequence[str]) -> list[list[int]]:
    """The control dependencies of each operator: on those before it in its layer.

    Otherwise all gradients of a weight, one for each timestep, would exist before they are added.
    A backward operator cannot have such a dependency; the next other operator then has it.
    """
    before: dict[str, list[int]] = {}
    control_deps: list[list[int]] = [[] for _ in nodes]
    for number, node in enumerate(nodes):
        if node["op"] == "null":
            continue
        earlier = before.setdefault(layers[number], [])
        if not node["op"].startswith(_BACKWARD):
            control_deps[number] = list(earlier)
            earlier.clear()
        earlier.append(number)
    return control_deps


def _plain(node: Mapping[str, Any]) -> str:
    """A node's name without its worker."""
    return str(node["name"]).rpartition("@")[0] or str(node["name"])


def _updated(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the parameters, in the order of the graph."""
    numbers = {node["inputs"][0][0] for node in nodes if node["op"].endswith(_UPDATE)}
    return [_plain(nodes[number]) for number in sorted(numbers)]

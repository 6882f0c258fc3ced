"""The systems of section 7.1, simulated: swapping on graphs by hand, others on reduced models."""

import json
import types

import pytest

from tofu.errors import ConfigError
from tofu.models import find
from tofu.plans.machine_files import read_machine

scripts = types.SimpleNamespace()
NAME = "p2.8xlarge"
MACHINE = read_machine(NAME)


@pytest.fixture(scope="module", autouse=True)
def _scripts(import_script):
    """Imports the modules under test."""
    scripts.systems, scripts.swapping = map(import_script, ("_simulated_systems", "_swapping"))
    assert set(import_script("_training").SYSTEMS) == set(scripts.systems.SYSTEMS)


def chain(sizes, *, kept=(), seconds=1.0):
    """Operator i reads tensor i and writes tensor i + 1."""
    count = len(sizes) - 1
    return scripts.swapping.Tensors(
        sizes, frozenset(kept), [[i] for i in range(count)], [[i + 1] for i in range(count)],
        [seconds] * count,
    )  # fmt: skip


def test_nothing_is_copied_where_everything_fits():
    found = scripts.swapping.run_swapping(chain([10, 10, 10, 10], kept=[0]), 1000, bytes_per_s=1.0)
    assert (found.fits, found.copied_bytes, found.step_seconds) == (True, 0, 3.0)
    assert found.memory_bytes == 30  # a tensor without further readers is dropped


def test_an_operator_that_does_not_fit():
    assert not scripts.swapping.run_swapping(chain([10, 10], kept=[0]), 19, bytes_per_s=1.0).fits


def weights(*, changed, memory):
    """Ten operators, each of which reads, and may change, its own weight."""
    reads = [[i] for i in range(10)]
    writes = [[i] if changed else [] for i in range(10)]
    tensors = scripts.swapping.Tensors([100] * 10, frozenset(range(10)), reads, writes, [0.0] * 10)
    return scripts.swapping.run_swapping(tensors, memory, bytes_per_s=100.0, soon=[4])


def test_what_is_only_read_is_copied_out_never_what_changes_is():
    assert weights(changed=False, memory=1000).copied_bytes == 0
    read_only = weights(changed=False, memory=500)
    assert read_only.copied_bytes == 10 * 100  # in: least recently used misses every time
    assert weights(changed=True, memory=500).copied_bytes == 2 * 10 * 100
    assert read_only.step_seconds == pytest.approx(10.0)


def test_copies_run_ahead_of_operators():
    """If copying a weight and running an operator both take a second, nearly all copies hide."""
    reads = [[i] for i in range(10)]
    tensors = scripts.swapping.Tensors(
        [100] * 10, frozenset(range(10)), reads, [[]] * 10, [1.0] * 10
    )
    found = scripts.swapping.run_swapping(tensors, 500, bytes_per_s=100.0)
    assert found.copy_seconds == pytest.approx(10.0)
    assert 10.0 < found.step_seconds < 13.0


def test_variables_stay_from_step_to_step(monkeypatch):
    monkeypatch.setattr(scripts.swapping, "node_work", lambda node: None)
    machine = types.SimpleNamespace(operator_seconds=lambda op, work: 1.0)

    def node(op, *sources):
        return types.SimpleNamespace(op=op, sources=sources, outputs=[((4, 2), 0)])

    x, weight, state = node(""), node(""), node("")
    nodes = [x, weight, state, node("relu", (0, 0)), node("sgd_mom_update", (1, 0), (3, 0), (2, 0))]
    tensors = scripts.swapping._tensors_of(types.SimpleNamespace(nodes=nodes), machine)
    assert tensors.kept == {0, 1, 2}
    assert tensors.writes == [[3], [1, 2]], "an update writes its weight and its state"


@pytest.mark.parametrize(
    "system", ["tofu", "time", "ideal", "smallbatch", "swap", "placement", "dataparallel"]
)
def test_every_system_on_a_reduced_rnn(system):
    found = scripts.systems.simulate_system(
        system, find("rnn-6-4k"), NAME, batch_size=8, reduced=True
    )
    assert found.simulated
    assert found.fits
    assert found.step_seconds > 0
    assert found.compute_seconds > 0
    copies = MACHINE.devices if system in ("ideal", "smallbatch", "swap") else 1
    assert found.samples_per_second == pytest.approx(copies * 8 / found.step_seconds)
    if system in ("tofu", "time", "dataparallel", "placement"):
        assert found.fetch_seconds > 0


# For wresnet-50-4 the plans are found in a minute.
@pytest.mark.whole(but=1)
@pytest.mark.parametrize(
    ("name", "batch_size", "fetch"),
    [
        ("mlp", 8, "multifetch"),
        ("wresnet-50-4", 32, "plain"),
        ("wresnet-50-4", 32, "multifetch"),
    ],
)
def test_a_plan_for_time_is_faster(name, batch_size, fetch):
    tofu, time = (
        scripts.systems.simulate_system(
            system, find(name), NAME, batch_size=batch_size, reduced=True, fetch=fetch
        )
        for system in ("tofu", "time")
    )
    assert time.step_seconds < tofu.step_seconds


def test_swapping_is_never_faster_than_memory_without_end():
    ideal, swap = (
        scripts.systems.simulate_system(system, find("rnn-6-4k"), NAME, batch_size=8, reduced=True)
        for system in ("ideal", "swap")
    )
    assert swap.samples_per_second <= ideal.samples_per_second * 1.000001


@pytest.mark.parametrize(
    ("memory", "wanted", "asked"),
    [
        ({1: 11}, [1], [1]),  # not even one example
        ({1: 1, 8: 10}, [8, 4, 2, 1], [1, 8, 4, 2]),
        ({1: 1, 8: 21, 4: 11, 2: 9}, [2, 1], [1, 8, 2]),  # 4 needs more than half of 21
        ({1: 1, 8: 100}, [1], [1, 8]),
    ],
)
def test_only_batches_that_may_fit_are_planned(memory, wanted, asked):
    calls = []

    def estimate(size):
        calls.append(size)
        return memory.get(size, 10)

    assert list(scripts.systems.promising([8, 4, 2, 1], estimate, 10)) == wanted
    assert calls == asked


def test_the_largest_batch_comes_first_and_is_the_ideal_ones():
    model = find("rnn-6-4k")
    plans = {}
    for system in ("ideal", "smallbatch", "tofu"):
        found = scripts.systems.simulate_system(
            system, model, NAME, largest_batch=16, reduced=True, plans=plans
        )
        assert (found.batch_size, found.fits) == (16, True)
    assert set(plans) == {
        (batch, workers, "tofu", workers == 8) for batch in (1, 16) for workers in (1, 8)
    }


@pytest.mark.parametrize("fetch", ["plain", "multifetch"])
def test_batch_norms_stay_whole_as_in_a_run(fetch):
    plans = {}
    scripts.systems.simulate_system(
        "tofu", find("wresnet-50-4"), NAME, batch_size=2, devices=2, reduced=True, fetch=fetch,
        plans=plans,
    )  # fmt: skip
    (plan,) = plans.values()
    norms = {node.op for node in plan.table.graph.nodes if "BatchNorm" in node.op}
    assert bool(norms) == (fetch == "multifetch")


def test_layers_are_placed_in_turn():
    from tofu.analysis.strategy_table import strategy_table
    from tofu.models import build
    from tofu.planner.search import search_plan
    from tofu.plans import SearchOptions
    from tofu.simulate.simulation import step_graph

    graph = build("rnn-6-4k", 8, reduced=True).training_graph(optimizer="sgd_mom")
    plan = search_plan(strategy_table(graph)[0], 1, {}, SearchOptions(), None)
    placed = scripts.systems.place_layers(step_graph(plan, MACHINE, fetch="plain")[0], 2)
    where = {node.name.rpartition("@")[0]: node.attrs["__ctx_group__"] for node in placed.nodes}
    cells = {where[name] for name in where if "lstm0_" in name and "weight" in name}
    assert len(cells) == 1
    assert set(where.values()) == {"worker0", "worker1"}
    first, second = (where[f"rnn_lstm{layer}_i2h_weight"] for layer in (0, 1))
    assert first != second
    nodes = json.loads(placed.to_json())["nodes"]
    numbers = {
        layer: [
            number
            for number, node in enumerate(nodes)
            if node["op"] != "null" and node["name"].startswith(f"rnn_{layer}_")
        ]
        for layer in ("lstm0", "lstm1", "dense0")
    }
    waited_for = {before for node in nodes for before in node.get("control_deps", [])}
    for layer, own in numbers.items():
        waits = {before for number in own for before in nodes[number].get("control_deps", [])}
        others = {n for other, members in numbers.items() if other != layer for n in members}
        assert not waits & others, "layers on one device must not wait for each other"
        last = max(n for n in own if not nodes[n]["op"].startswith("_backward_"))
        assert {number for number in own if number < last} <= waited_for


def test_unknown_systems_and_too_many_devices():
    with pytest.raises(ConfigError, match="expected one of tofu"):
        scripts.systems.simulate_system("magic", find("rnn-6-4k"), NAME, batch_size=8, reduced=True)
    with pytest.raises(ConfigError, match="9 devices"):
        scripts.systems.simulate_system("tofu", find("rnn-6-4k"), NAME, devices=9)


@pytest.mark.parametrize("system", ["ideal", "tofu"])
def test_a_net_that_draws_random_numbers(system):
    """A separate graph draws Dropout's numbers before the training graph runs."""
    found = scripts.systems.simulate_system(
        system, find("alexnet"), NAME, batch_size=8, reduced=True
    )
    assert found.fits
    assert found.compute_seconds > 0


def test_only_tofu_changes_mxnets_memory_planner():
    from tofu.analysis.strategy_table import strategy_table
    from tofu.models import build
    from tofu.planner.search import search_plan
    from tofu.plans import SearchOptions
    from tofu.simulate.simulation import simulate_plan

    def allocated(workers, *, is_stock):
        graph = build("rnn-6-4k", 8, reduced=True).training_graph(optimizer="sgd_mom")
        plan = search_plan(strategy_table(graph)[0], workers, {}, SearchOptions(), None)
        found = simulate_plan(plan, MACHINE, fetch="multifetch", is_stock=is_stock)
        return max(worker["allocated_bytes"] for worker in found.workers)

    for system, workers, stock in (("smallbatch", 1, True), ("tofu", 8, False)):
        found = scripts.systems.simulate_system(
            system, find("rnn-6-4k"), NAME, batch_size=8, reduced=True
        )
        assert found.memory_bytes == allocated(workers, is_stock=stock)
        assert found.memory_bytes != allocated(workers, is_stock=not stock)


def test_swapping_keeps_what_a_good_number_of_operators_use_soon():
    """With memory for 36 of 40 weights used in turn, the least recently used is needed soonest."""
    reads = [[i] for i in range(40)] * 4
    tensors = scripts.swapping.Tensors(
        [100] * 40, frozenset(range(40)), reads, [[]] * 160, [0.0] * 160
    )
    few, many = (
        scripts.swapping.run_swapping(tensors, 3600, bytes_per_s=100.0, soon=[n]) for n in (4, 32)
    )
    assert few.copied_bytes > 2 * many.copied_bytes
    assert scripts.swapping.run_swapping(tensors, 3600, bytes_per_s=100.0) == many

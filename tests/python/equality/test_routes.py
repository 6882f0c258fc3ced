"""Runs whose regions and sums cross a slow link once for each host equal a serial run."""

import json

import numpy as np
import pytest

import tofu
from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.gluon.session.session import looking
from tofu.models import build, find
from tofu.planner.search import search_plan
from tofu.plans import SearchOptions
from tofu.plans.file import read
from tofu.plans.machine_files import machine_text, read_machine
from tofu.simulate.simulation import simulate_plan

from .models import CASES, train

STEPS = 3


@pytest.fixture
def two_hosts(tmp_path):
    """A machine file by number of workers: half of them on each host; fetches cost no launch."""

    def write(workers):
        document = json.loads(machine_text("2x8v100"))
        document["device"].update(count=workers, launch_s=0.0, synchronize_s=0.0)
        document["host"]["push_s"] = 0.0
        fast, slow = document["links"]
        fast.update(devices=workers // 2, latency_s=0.0)
        slow.update(devices=workers, latency_s=0.0)
        path = tmp_path / f"two-hosts-{workers}.json"
        path.write_text(json.dumps(document))
        return str(path)

    return write


def train_routed(model, dtype, workers, machine, **options):
    compiled = []
    tofu.enable(workers=workers, device="cpu", machine=machine, **options)
    try:
        with looking(compiled=compiled.append):
            found = train(CASES[model], dtype, STEPS)
    finally:
        tofu.disable()
    return found, compiled[0]


def assert_equal_runs(found, serial, tolerance):
    """Compare the losses and weights of two runs."""
    (losses, weights), (expected, expected_weights) = found, serial
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize(
    ("model", "workers", "options"),
    [
        ("mlp", 4, {"search": "equalchop"}),
        ("mlp", 8, {"objective": "bytes"}),
        ("residual_cnn", 4, {"objective": "bytes"}),
        ("residual_cnn", 8, {"search": "equalchop"}),
        ("lstm", 4, {"allow_replication": True}),
    ],
)
def test_a_run_over_two_hosts_equals_the_serial_one(
    model, workers, options, dtype, tolerance, two_hosts
):
    serial = train(CASES[model], dtype, STEPS)
    found, compiled = train_routed(model, dtype, workers, two_hosts(workers), **options)
    assert json.loads(compiled.plan.to_json())["routes"]
    assert compiled.relayed_bytes > 0
    assert_equal_runs(found, serial, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize(
    ("model", "workers", "options"),
    [
        ("mlp", 4, {"search": "data-parallel"}),
        ("mlp", 8, {"search": "data-parallel"}),
        ("residual_cnn", 4, {"search": "data-parallel"}),
        ("residual_cnn", 8, {"objective": "bytes"}),
        ("lstm", 4, {"search": "data-parallel"}),
    ],
)
@pytest.mark.parametrize("fetch", ["multifetch", "plain"])
def test_sums_added_up_within_hosts_equal_the_serial_ones(
    model, workers, options, fetch, dtype, tolerance, two_hosts
):
    serial = train(CASES[model], dtype, STEPS)
    found, compiled = train_routed(
        model, dtype, workers, two_hosts(workers), fetch=fetch, **options
    )
    sums = json.loads(compiled.plan.to_json())["output_routes"]
    assert any(route["partial"] for route in sums)
    assert_equal_runs(found, serial, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
@pytest.mark.parametrize(
    ("model", "workers", "options"),
    [
        ("mlp", 8, {"search": "zero-1"}),
        ("residual_cnn", 4, {"search": "zero-2"}),
        ("lstm", 8, {"allow_replication": True}),
    ],
)
def test_outputs_gathered_within_hosts_equal_the_serial_ones(
    model, workers, options, dtype, tolerance, two_hosts
):
    serial = train(CASES[model], dtype, STEPS)
    found, compiled = train_routed(model, dtype, workers, two_hosts(workers), **options)
    outputs = json.loads(compiled.plan.to_json())["output_routes"]
    assert any(not route["partial"] for route in outputs) == ("search" not in options)
    # Trainers copy updated tensors directly.
    assert not any(route["node"].endswith("_update") for route in outputs)
    assert_equal_runs(found, serial, tolerance)


def simulated_bytes(plan, machine):
    found = simulate_plan(plan, read_machine(machine), fetch="multifetch")
    sizes = {"NVLink": 0, "InfiniBand": 0}
    for link in found.links:
        sizes[link["name"]] += link["bytes"]
    return sizes


def test_the_simulation_and_the_report_count_what_crosses_the_slow_link(two_hosts):
    graph = build(find("mlp"), 64, reduced=True).training_graph(optimizer="sgd")
    table = strategy_table(graph)[0]
    direct = _core.plan(table, workers=8, mode="equalchop")
    machine = two_hosts(8)
    routed = search_plan(table, 8, {}, SearchOptions(mode="equalchop", machine=machine), None)
    found, reported = json.loads(routed.to_json()), json.loads(direct.to_json())
    assert found["routes"]
    assert found["operators"] == reported["operators"]
    before, after = simulated_bytes(direct, machine), simulated_bytes(routed, machine)
    assert after["InfiniBand"] < before["InfiniBand"]
    predicted = {link["name"]: link["bytes"] for link in found["predicted"]["links"]}
    assert predicted["InfiniBand"] < before["InfiniBand"]
    relayed = found["predicted"]["relayed_bytes"]
    assert sum(predicted.values()) == found["total_bytes"] + relayed


def test_a_saved_plan_keeps_its_routes(two_hosts, tmp_path):
    path = tmp_path / "routed.plan"
    plan = tofu.plan("mlp", workers=8, search="equalchop", machine=two_hosts(8))
    plan.save(path)
    (saved,) = read(path).read_plans()
    assert json.loads(plan.to_json())["routes"] == list(saved.routes) != []
    assert f"{len(saved.routes):,} inputs cross slow links once" in str(plan)


def test_the_simulation_counts_one_sum_of_each_host(two_hosts):
    graph = build(find("mlp"), 64, reduced=True).training_graph(optimizer="sgd")
    table = strategy_table(graph)[0]
    machine = two_hosts(8)
    direct = _core.plan(table, workers=8, mode="data-parallel")
    options = SearchOptions(mode="data-parallel", machine=machine)
    routed = search_plan(table, 8, {}, options, None)
    found = json.loads(routed.to_json())
    assert found["output_routes"]
    assert "routes" not in found
    predicted = {link["name"]: link["bytes"] for link in found["predicted"]["links"]}
    before, after = simulated_bytes(direct, machine), simulated_bytes(routed, machine)
    assert after == predicted
    # Before, each worker fetches 4 terms of an eighth, and 4 eighths; after, a sum of a quarter.
    assert 4 * after["InfiniBand"] == before["InfiniBand"]
    assert sum(after.values()) == sum(before.values()) == found["total_bytes"]


def test_a_saved_plan_keeps_the_routes_of_its_sums(two_hosts, tmp_path):
    path = tmp_path / "routed.plan"
    plan = tofu.plan("mlp", workers=8, search="data-parallel", machine=two_hosts(8))
    plan.save(path)
    (saved,) = read(path).read_plans()
    assert json.loads(plan.to_json())["output_routes"] == list(saved.output_routes) != []
    assert f"{len(saved.output_routes):,} outputs cross slow links once" in str(plan)

"""Simulated steps of nets whose random numbers a separate executor draws first."""

import json

import pytest

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.models import build, find
from tofu.plans.machine_files import read_machine
from tofu.simulate.simulation import simulate_graph, simulate_plan, step_graphs

from ..equality.mixed_machine import mixed_machine

MACHINE = read_machine("p3.16xlarge")


def plan_of(model, workers, optimizer="sgd_mom"):
    graph = build(find(model), 8, reduced=True).training_graph(optimizer=optimizer)
    return _core.plan(strategy_table(graph)[0], workers=workers)


def total(found, name):
    return sum(worker["seconds"][name] for worker in found.workers)


def test_a_step_includes_all_its_executors():
    workers = 2
    plan = plan_of("transformer", workers)  # which has Dropout
    draws, step = step_graphs(plan, MACHINE, fetch="plain")
    first, second = (
        simulate_graph(*each, MACHINE, workers=workers, fetch="plain") for each in (draws, step)
    )
    found = simulate_plan(plan, MACHINE, fetch="plain")
    assert found.operations == first.operations + second.operations
    assert found.step_seconds == pytest.approx(first.step_seconds + second.step_seconds)
    assert found.script_seconds == pytest.approx(first.script_seconds + second.script_seconds)
    assert total(found, "compute") == pytest.approx(
        total(first, "compute") + total(second, "compute")
    )
    for worker, alone in zip(found.workers, second.workers):
        assert worker["busy_seconds"] + worker["waiting_seconds"] == pytest.approx(
            found.step_seconds
        )
        assert worker["allocated_bytes"] == alone["allocated_bytes"]
    assert sum(link["bytes"] for link in found.links) == pytest.approx(
        sum(link["bytes"] for each in (first, second) for link in each.links)
    )
    assert found.critical_path["length"] == sum(
        each.critical_path["length"] for each in (first, second)
    )
    assert max(each["begin"] for each in found.critical_path["longest"]) < found.step_seconds


def test_updates_are_simulated_where_random_numbers_are_drawn_first():
    alone = simulate_plan(plan_of("transformer", 2, None), MACHINE, fetch="multifetch")
    updated = simulate_plan(plan_of("transformer", 2), MACHINE, fetch="multifetch")
    assert updated.step_seconds > alone.step_seconds


def test_a_net_without_random_numbers_has_one_executor():
    assert len(step_graphs(plan_of("mlp", 2), MACHINE, fetch="plain")) == 1


@pytest.mark.parametrize(("memory", "fits"), [(1 << 34, True), (1 << 10, False)])
def test_every_worker_has_to_fit_its_own_device(tmp_path, memory, fits):
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps(mixed_machine(1, memory=memory)))
    machine = read_machine(str(path))
    found = simulate_plan(plan_of("mlp", 2), machine, fetch="plain")
    assert [each["memory_bytes"] for each in found.workers] == [machine.memory_of(0), memory]
    assert found.fits is fits

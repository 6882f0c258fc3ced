"""Plans for time are predicted and simulated, and the fastest one is chosen."""

import dataclasses
import itertools
import json

import pytest

from tofu import config
from tofu.config import OBJECTIVES
from tofu.errors import ConfigError, PlanError
from tofu.mx.model.sources import from_model
from tofu.planner.search import plan_graph, search, search_plan
from tofu.plans import Plan, SearchOptions
from tofu.plans.machine_files import read_machine
from tofu.plans.render.text import render_text
from tofu.simulate.simulation import simulate_plan

TIME = SearchOptions(objective="time", machine="2x8v100")


@pytest.fixture(scope="module")
def problem():
    return from_model("mlp", batch_size=64, optimizer="sgd", workers=16)


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("allow_replication", [False, True])
def test_the_chosen_plan_is_never_slower_than_the_one_for_bytes(problem, allow_replication):
    chosen = search(problem, dataclasses.replace(TIME, allow_replication=allow_replication))
    simulated = dict(chosen.simulated_ns)
    assert set(simulated) >= {"time", "bytes"}
    assert ("time, all operators split" in simulated) is allow_replication
    assert all(ns > 0 for ns in simulated.values())
    assert round(chosen.simulation.step_seconds * 1e9) == min(simulated.values())
    # Replicated, the plan for time saves many small fetches over a slow link.
    assert (simulated["time"] < simulated["bytes"]) is allow_replication


# Each of these was slower than the plan of another mode while only plans for time and for bytes
# were simulated.
@pytest.mark.parametrize(
    ("model", "allow_replication"), [("mlp", False), ("mlp", True), ("alexnet", False)]
)
def test_the_chosen_plan_is_at_least_as_fast_as_every_rivals(model, allow_replication):
    options = SearchOptions(
        objective="time", machine="p2.8xlarge", allow_replication=allow_replication
    )
    case = from_model(model, batch_size=512, optimizer="sgd", workers=8)
    chosen = search(case, options)
    machine = read_machine(options.machine)
    modes = ["recursion", "equalchop", "soybean", "spartan", "allrow-greedy", "icml18", "flat"]
    for mode in modes + ["mesh-tensorflow", "data-parallel"] * allow_replication:
        for objective in OBJECTIVES:
            rival = dataclasses.replace(
                options, mode=mode, objective=objective, allow_replication=False
            )
            plan = search_plan(case.table, case.workers, {}, rival)
            step = simulate_plan(plan, machine, fetch="plain")
            assert chosen.simulation.step_seconds <= step.step_seconds, (mode, objective)


def test_a_mode_that_the_user_chose_has_no_rivals(problem):
    chosen = search(problem, dataclasses.replace(TIME, mode="equalchop"))
    assert set(chosen.simulated_ns) == {"time", "bytes"}


def test_what_does_not_fit_is_not_chosen(problem, monkeypatch):
    from tofu.simulate import simulation

    simulate = simulation.simulate_plan
    limits = itertools.chain([1, 1 << 40], itertools.repeat(1))

    def limited(*args, **options):
        found, limit = simulate(*args, **options), next(limits)
        workers = [{**worker, "memory_bytes": limit} for worker in found.workers]
        return dataclasses.replace(found, workers=workers)

    monkeypatch.setattr(simulation, "simulate_plan", limited)
    chosen = search(problem, TIME)
    assert chosen.options.objective == "bytes"
    assert chosen.simulated_ns["time"] < 0 < chosen.simulated_ns["bytes"]


def test_the_document_and_the_text_tell_time_links_and_choice(problem):
    plan = search(problem, TIME).read()
    assert plan == Plan.from_json(plan.to_json())
    document = json.loads(plan.to_json())
    assert document["objective"] == "time"
    assert document["chosen"] in ("time", "bytes")
    predicted = document["predicted"]
    assert [link["name"] for link in predicted["links"]] == ["NVLink", "InfiniBand"]
    relayed = predicted.get("relayed_bytes", 0)
    assert bool(relayed) == bool(plan.routes)
    assert sum(link["bytes"] for link in predicted["links"]) == plan.total_bytes + relayed
    text = render_text(plan)
    assert "predicted on 2x8v100" in text
    assert "over InfiniBand" in text
    assert "chosen by simulation: the plan for" in text


def test_a_plan_for_bytes_is_the_same_with_a_machine(problem):
    plain = plan_graph(problem, SearchOptions())
    predicted = plan_graph(problem, SearchOptions(machine="2x8v100"))
    assert predicted.tensors == plain.tensors
    assert predicted.predicted is not None
    assert "lower_bound_ns" not in predicted.predicted
    assert predicted.quality() == plain.quality()


def test_the_search_for_time_minimises_the_prediction(problem):
    found = plan_graph(problem, TIME).predicted
    other = plan_graph(problem, SearchOptions(machine="2x8v100")).predicted
    assert found["lower_bound_ns"] <= found["step_ns"] <= other["step_ns"]
    assert found["links"][1]["bytes"] < other["links"][1]["bytes"]


def test_a_damaged_prediction_is_refused(problem):
    document = json.loads(plan_graph(problem, TIME).to_json())
    document["predicted"]["fetch_ns"] = -1
    with pytest.raises(PlanError, match="damaged"):
        Plan.from_json(json.dumps(document))


def test_too_few_devices(problem):
    with pytest.raises(ConfigError, match="8 devices, expected at least 16"):
        search(problem, dataclasses.replace(TIME, machine="p2.8xlarge"))


def test_time_needs_a_machine(problem):
    with pytest.raises(PlanError, match="needs a machine"):
        plan_graph(problem, SearchOptions(objective="time"))
    with pytest.raises(ConfigError, match="TOFU_MACHINE"):
        config.Config.from_environment({"TOFU_OBJECTIVE": "time"})
    with pytest.raises(ConfigError, match="'bytes' or 'time'"):
        config.Config.from_environment({"TOFU_OBJECTIVE": "speed"})
    found = config.Config.from_environment({"TOFU_OBJECTIVE": "time", "TOFU_MACHINE": "8xh100"})
    assert (found.objective, found.machine) == ("time", "8xh100")

"""ZeRO's stages as plans: data parallelism, with optimizer states, gradients or parameters cut.

docs/plans.md has the table. Bytes and memory are counted here from shapes alone.
"""

import math

import pytest

pytest.importorskip("mxnet")

from tofu.mx.model.memory import with_memory
from tofu.mx.model.sources import from_model
from tofu.planner.search import plan_graph
from tofu.plans import SearchOptions

BATCH = 64
BYTES = 4
STATES = 2  # states of Adam for each parameter
CUT = (("*_weight", (0,)), ("*_bias", (0,)))


@pytest.fixture(scope="module", params=[2, 4], ids=["2 workers", "4 workers"])
def problem(request):
    return from_model("mlp", batch_size=BATCH, optimizer="adam", workers=request.param)


def sizes(problem):
    """The bytes of each parameter."""
    return {
        node.name: math.prod(node.outputs[0][0]) * BYTES
        for node in problem.graph.nodes
        if node.attrs.get("__tofu_role__") == "parameter"
    }


def planned(problem, mode, pins=()):
    return plan_graph(problem, SearchOptions(mode, pins=pins))


def of_parameters(plan):
    kinds = plan.bytes_per_worker
    return kinds["parameters"], kinds["gradients"], kinds["optimizer_state"]


def test_without_a_stage_every_worker_holds_everything(problem):
    plan, whole = planned(problem, "data-parallel"), sum(sizes(problem).values())
    assert of_parameters(plan) == (whole, whole, STATES * whole)
    # Each gradient is reduced in pieces, which all workers then gather.
    assert plan.total_bytes == 2 * (problem.workers - 1) * whole


def test_the_first_stage_cuts_states(problem):
    plan, whole = planned(problem, "zero-1"), sum(sizes(problem).values())
    assert of_parameters(plan) == (whole, whole, STATES * whole // problem.workers)
    # New values are gathered, as well as gradients.
    assert plan.total_bytes == 3 * (problem.workers - 1) * whole


def test_the_second_stage_cuts_gradients_and_states(problem):
    plan, whole = planned(problem, "zero-2"), sum(sizes(problem).values())
    workers = problem.workers
    assert of_parameters(plan) == (whole, whole // workers, STATES * whole // workers)
    assert plan.total_bytes == 2 * (workers - 1) * whole


@pytest.mark.parametrize("mode", ["zero-3", "data-parallel"], ids=["mode", "pins"])
def test_the_third_stage_cuts_parameters_gradients_and_states(problem, mode):
    plan = planned(problem, mode, CUT if mode == "data-parallel" else ())
    each = sizes(problem)
    whole, workers = sum(each.values()), problem.workers
    assert of_parameters(plan) == (
        whole // workers, whole // workers, STATES * whole // workers
    )  # fmt: skip
    # Parameters are gathered for the forward pass, weights for the backward pass, too; gradients
    # are reduced.
    again = sum(size for name, size in each.items() if name.endswith("_weight"))
    assert plan.total_bytes == (workers - 1) * (2 * whole + again)


@pytest.mark.parametrize("mode", ["zero-1", "zero-2"])
def test_what_updates_move_is_part_of_what_workers_really_fetch(problem, mode):
    plan = with_memory(problem, planned(problem, mode), "multifetch")
    assert plan.fetched_bytes == plan.total_bytes


def test_terms_of_gradients_do_not_pile_up(problem):
    plan = with_memory(problem, planned(problem, "zero-2"), "multifetch")
    largest = max(sizes(problem).values())
    # One term is alive at a time, and the next layer's if the planner cannot reuse its memory.
    assert plan.bytes_per_worker["activations"] < 2 * largest
    assert sum(sizes(problem).values()) > 4 * largest

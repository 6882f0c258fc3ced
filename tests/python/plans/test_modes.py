"""The paper's rivals against tofu, on small versions of all kinds of models."""

import math

import pytest

from tofu import _core, models
from tofu.analysis.strategy_table import strategy_table
from tofu.plans import Plan

# One of each factory: wide ResNets and RNNs differ in size only, which is reduced here.
NAMES = (
    "mlp",
    "rnn-4-8k",
    "wresnet-50-4",
    "vgg-16",
    "alexnet",
    "densenet-121",
    "transformer",
    "gpt-24",
)
RIVALS = ("recursion", "allrow-greedy", "spartan", "equalchop", "icml18")


@pytest.fixture(scope="module", params=NAMES)
def graph(request):
    """A reduced model."""
    return models.build(request.param, reduced=True).training_graph(optimizer="sgd")


@pytest.fixture(scope="module")
def planned(graph):
    """A function from keyword arguments to the plan of a reduced model."""
    table, _ = strategy_table(graph)

    def search(**options):
        plan = _core.plan(table, **options)
        return Plan.of(plan, bytes_per_worker=plan.estimate_memory()).document()

    return search


def test_every_model_has_a_factory_here():
    here = {models.find(name).factory for name in NAMES}
    assert here == {model.factory for model in models.MODELS.values()}


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_no_rival_is_cheaper(planned, workers):
    cost = planned(workers=workers)["total_bytes"]
    for mode in RIVALS:
        plan = planned(workers=workers, mode=mode)
        assert plan["total_bytes"] >= cost, mode
        assert plan["mode"] == mode
        assert plan["lower_bound_bytes"] <= plan["total_bytes"]


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_whole_weights_are_beaten_by_replication(planned, workers):
    plan = planned(workers=workers, allow_replication=True)
    rival = planned(workers=workers, mode="data-parallel")
    # In data parallelism, all workers compute operators without a batch, without any fetch;
    # here only element-wise ones.
    assert plan["total_bytes"] <= 1.01 * rival["total_bytes"]
    assert rival["bytes_per_worker"]["parameters"] >= plan["bytes_per_worker"]["parameters"]


@pytest.mark.parametrize("workers", [2, 8])
def test_data_parallelism_reduces_each_gradient_once(graph, planned, workers):
    """A reduce-scatter and a gather send 2 (k - 1) bytes for each; only batch norms add some."""
    parameters = [n for n in graph.nodes if n.attrs.get("__tofu_role__") == "parameter"]
    size = 4 * sum(math.prod(node.outputs[0][0]) for node in parameters)
    sent = planned(workers=workers, mode="data-parallel")["total_bytes"]
    assert sent == pytest.approx(2 * (workers - 1) * size, rel=0.04)


@pytest.mark.parametrize("name", NAMES)
def test_no_formula_of_parallel_data_sends_less(name):
    """Gradients are reduced and gathered; ZeRO's third stage and FSDP gather parameters besides.

    A batch norm's statistics are four vectors, so that values are those of the whole batch. A
    causal mask and positions are made in parts. The batch divides evenly, as rows are folded
    with it.
    """
    graph = models.build(name, reduced=True, batch_size=24).training_graph(optimizer="sgd")
    table, _ = strategy_table(graph)
    shapes = {n.name: n.outputs[0][0] for n in graph.nodes}
    parameters = [n.name for n in graph.nodes if n.attrs.get("__tofu_role__") == "parameter"]
    size = 4 * sum(math.prod(shapes[each]) for each in parameters)
    norms = [each for each in parameters if "batchnorm" in each and "gamma" in each]
    statistics = 4 * 4 * sum(math.prod(shapes[each]) for each in norms)
    words = shapes.get("tokens", shapes.get("source", (0, 0)))[1]
    for workers in (2, 3, 4, 6, 8):
        least = (workers - 1) * min(2 * (size + statistics), 3 * size)
        sent = _core.plan(table, workers=workers, allow_replication=True).total_bytes
        assert sent <= least + (workers - 1) * 4 * words * (words + 1), workers


def test_the_default_plan_is_the_proven_optimum(planned):
    plan = planned(workers=4)
    step = planned(workers=4, mode="recursion")
    flat = planned(workers=4, mode="flat")
    assert step["lower_bound_bytes"] <= plan["lower_bound_bytes"] == flat["total_bytes"]
    assert plan["status"] == "optimal"
    for each in (plan, step, flat):
        assert (each["status"] == "optimal") == (each["gap"] == 0)


def test_all_steps_at_once_are_bounded_by_the_plan(planned):
    plan = planned(workers=4)
    flat = planned(workers=4, mode="flat")
    assert plan["lower_bound_bytes"] <= flat["total_bytes"] <= plan["total_bytes"]

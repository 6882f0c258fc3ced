"""The memory model, compared with MXNet's own plan to the MiB that it prints."""

import json

import mxnet as mx
import pytest

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.config import FETCHES
from tofu.errors import GraphError
from tofu.models import build
from tofu.mx import extension
from tofu.mx.memory import executor_memory
from tofu.mx.run import executor

from .arrays import empty_variables

# Reduced models with batches so large that tensors are of full size: nothing is allocated.
MODELS = {"wresnet-50-4": 4096, "rnn-6-4k": 65536, "gpt-24": 16384}


def planned(graph, workers, match_range, *, search=False):
    contexts = [mx.cpu(worker) for worker in range(workers)]
    settings = {
        extension.MATCH_RANGE: str(match_range),
        extension.SEARCH_MATCH_RANGE: str(int(search)),
    }
    arrays = empty_variables(graph, contexts)
    return executor_memory.planned_mib(
        executor.bind("test", graph, contexts, arrays, planner=settings)
    )


@pytest.fixture(scope="module", params=sorted(MODELS))
def training(request):
    return build(request.param, MODELS[request.param], reduced=True).training_graph()


def serial(training):
    """The training graph on one worker, in MXNet's own order."""
    graph = json.loads(training.to_json())
    for node in graph["nodes"]:
        node["control_deps"] = []
        node.setdefault("attrs", {})["__ctx_group__"] = "worker0"
    return _core.Graph(json.dumps(graph))


def plan_of(training, workers):
    return _core.plan(strategy_table(training)[0], workers=workers)


@pytest.mark.parametrize(("match_range", "search"), [(0, False), (16, False), (16, True)])
@pytest.mark.parametrize("workers", [1, 3, 4])
def test_prediction_is_what_mxnet_plans(training, workers, match_range, search):
    graph = serial(training)
    if workers > 1:
        graph = _core.partition(plan_of(training, workers)).in_order()
    predicted = executor_memory.predict(
        graph, workers=workers, match_range=match_range, search_match_range=search
    )
    actual = planned(graph, workers, match_range, search=search)
    assert actual > 50
    assert predicted.planned_bytes / 2**20 == pytest.approx(actual, rel=0.01, abs=1)
    assert all(
        live <= allocated
        for live, allocated in zip(predicted.live_per_worker, predicted.bytes_per_worker)
    )


# Other families of models; the three above are compared serially and under more settings.
FAMILIES = {
    "alexnet": 512,
    "densenet-121": 64,
    "mlp": 2**18,
    "transformer": 8192,
    "vgg-16": 4096,
    **MODELS,
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_is_predicted_as_it_runs(name):
    training = build(name, FAMILIES[name], reduced=True).training_graph(optimizer=None)
    plan = plan_of(training, 2)
    graphs = {"serial": serial(training)}
    for fetch in FETCHES:
        step = _core.schedule(_core.partition(plan, fetch=fetch), joint=True)
        *draws, graphs[fetch] = step.graphs
        graphs.update({f"random numbers for {fetch}": graph for graph in draws})
    for kind, graph in graphs.items():
        workers = 1 if kind == "serial" else 2
        predicted = executor_memory.predict(graph, workers=workers, search_match_range=True)
        actual = planned(graph, workers, 16, search=True)
        assert actual > (5 if kind.startswith("random") else 50)
        assert predicted.planned_bytes / 2**20 == pytest.approx(actual, rel=0.01, abs=1), kind


@pytest.mark.parametrize("batches", [(1, 2**12), (2**12, 1)])
def test_a_rule_does_not_depend_on_the_graphs_before_it(batches, monkeypatch):
    """A layer has an input too small to matter in one graph, and a larger batch in another."""
    monkeypatch.setattr(executor_memory, "_rules", {})

    def rule(batch):
        data, weight = ((batch, 1024), 0), ((32, 1024), 0)
        attrs = {"num_hidden": "32", "no_bias": "True", "flatten": "True"}
        inputs = (((batch, 32), 0), data, weight)
        return executor_memory._rule(
            executor_memory._Operator("_backward_FullyConnected", attrs, inputs, (data, weight))
        )

    found = {batch: rule(batch) for batch in batches}
    assert (1, 0, False) in found[2**12][0] and (1, 0, False) not in found[1][0]


def test_copies_of_a_layer_have_its_types():
    """BatchNorm's parameters are in float32 beside data in float16; MXNet refuses others."""
    extension.load()
    data, channels = ((256, 64, 4, 4), 2), ((64,), 0)
    inputs, outputs = (data, *[channels] * 4), (data, channels, channels)
    layer = executor_memory._Operator("BatchNorm", {"fix_gamma": "False"}, inputs, outputs)
    assert executor_memory._candidates(layer) == [(0, 0)]
    assert executor_memory._Probe(layer).rule() == ([], [])


def test_our_fetches_are_not_planned_in_place_and_not_tried():
    """Each fetch has other attributes, so trying all took most of a simulation's time."""
    extension.load()
    spec = (
        "dtype=0 shape=128,256 sources=256,128;256,128; "
        "pieces=0@0,0>0,0:128,128;1@0,0>0,128:128,128"
    )
    tiles = (((256, 128), 0), ((256, 128), 0))
    fetch = executor_memory._Operator("_tofu_multifetch", {"spec": spec}, tiles, (((128, 256), 0),))
    assert executor_memory._candidates(fetch) == [(0, 0), (1, 0)]
    assert executor_memory._Probe(fetch).rule() == ([], []), "what is assumed of all fetches"
    training = build("mlp", 2, reduced=True).training_graph(optimizer=None)
    graph = _core.partition(plan_of(training, 2), fetch="multifetch").graph
    assert any(node.op == fetch.op for node in graph.nodes)
    assert not any(node.op.startswith("_tofu_") for node in _core.OperatorUses(graph).nodes)


def test_control_dependencies_save_most_of_an_rnns_memory():
    training = build("rnn-6-4k", 2, reduced=True).training_graph(optimizer=None)
    parts = _core.partition(plan_of(training, 2))
    live = {}
    for chained, graph in ((False, parts.graph), (True, parts.in_order())):
        live[chained] = max(executor_memory.predict(graph, workers=2).live_per_worker)
    assert live[True] < 0.8 * live[False]


def test_rules_that_do_not_fit_are_refused(training):
    uses = _core.OperatorUses(training)
    with pytest.raises(GraphError, match=r"memory rules: found rule 0 for node .*, expected -1"):
        _core.executor_memory(uses, [])
    rules = [([], [])] * len(uses.nodes)
    assert _core.executor_memory(uses, rules)["planned_bytes"] > 0
    with pytest.raises(GraphError, match=r"memory rules: rule 0 does not fit node"):
        _core.executor_memory(uses, [([(99, 0, False)], []), *rules[1:]])

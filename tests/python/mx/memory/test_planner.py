"""The memory model against what MXNet plans, to the MiB that it prints."""

import json

import mxnet as mx
import pytest

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.config import FETCHES
from tofu.errors import GraphError
from tofu.models import build
from tofu.mx.build.infer import dtype_name
from tofu.mx.memory import planner
from tofu.mx.run import executor, extension

# Reduced models with batches so large that tensors are of full size: nothing is allocated.
MODELS = {"wresnet-50-4": 4096, "rnn-6-4k": 65536, "gpt-24": 16384}


def planned(graph, workers, match_range, *, search=False):
    contexts = [mx.cpu(worker) for worker in range(workers)]
    first = graph["node_row_ptr"]
    shapes, dtypes = graph["attrs"]["shape"][1], graph["attrs"]["dtype"][1]
    groups = {f"worker{worker}": context for worker, context in enumerate(contexts)}
    arrays = {}
    for node, at in zip(graph["nodes"], first):
        group = node.setdefault("attrs", {}).setdefault("__ctx_group__", "worker0")
        if node["op"] == "null":
            arrays[node["name"]] = mx.nd.empty(shapes[at], groups[group], dtype_name(dtypes[at]))
    settings = {
        extension.MATCH_RANGE: str(match_range),
        extension.SEARCH_MATCH_RANGE: str(int(search)),
    }
    return planner.planned_mib(executor.bind("test", graph, contexts, arrays, planner=settings))


@pytest.fixture(scope="module", params=sorted(MODELS))
def training(request):
    return build(request.param, MODELS[request.param], reduced=True).training_graph()


def without_deps(text):
    graph = json.loads(text)
    for node in graph["nodes"]:
        node["control_deps"] = []
    return graph


@pytest.mark.parametrize(("match_range", "search"), [(0, False), (16, False), (16, True)])
@pytest.mark.parametrize("workers", [1, 3, 4])
def test_prediction_is_what_mxnet_plans(training, workers, match_range, search):
    graph = without_deps(training)
    if workers > 1:
        table, _ = strategy_table(training)
        plan = _core.plan(training, table, workers=workers)
        graph = json.loads(_core.partition(training, table, plan))["graph"]
    read = _core.Graph(json.dumps(graph))
    rules = planner.memory_rules(read)
    predicted = planner.predict(
        read, rules, workers=workers, match_range=match_range, search_match_range=search
    )
    actual = planned(graph, workers, match_range, search=search)
    assert actual > 50
    assert predicted.planned_bytes / 2**20 == pytest.approx(actual, rel=0.01, abs=1)
    assert all(
        live <= allocated
        for live, allocated in zip(predicted.live_per_worker, predicted.bytes_per_worker)
    )


# The other families; the three above are compared serially and under more settings.
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
    table, _ = strategy_table(training)
    plan = _core.plan(training, table, workers=2)
    graphs = {"serial": without_deps(training)}
    for fetch in FETCHES:
        divided = _core.partition(training, table, plan, fetch=fetch)
        graphs[fetch] = json.loads(_core.phases(divided, joint=True))["joint"]["graph"]
    for kind, graph in graphs.items():
        workers = 1 if kind == "serial" else 2
        read = _core.Graph(json.dumps(graph))
        rules = planner.memory_rules(read)
        predicted = planner.predict(read, rules, workers=workers, search_match_range=True)
        actual = planned(graph, workers, 16, search=True)
        assert actual > 50
        assert predicted.planned_bytes / 2**20 == pytest.approx(actual, rel=0.01, abs=1), kind


def test_control_dependencies_save_most_of_an_rnns_memory():
    training = build("rnn-6-4k", 2, reduced=True).training_graph(optimizer=None)
    table, _ = strategy_table(training)
    plan = _core.plan(training, table, workers=2)
    live = {}
    for chained in (False, True):
        parts = _core.partition(training, table, plan, control_deps=chained)
        graph = _core.Graph(json.dumps(json.loads(parts)["graph"]))
        found = planner.predict(graph, planner.memory_rules(graph), workers=2)
        live[chained] = max(found.live_per_worker)
    assert live[True] < 0.8 * live[False]


def test_rules_that_do_not_fit_are_refused(training):
    with pytest.raises(GraphError, match=r"memory rules.*expected an array of"):
        planner.predict(
            _core.Graph(training),
            '{"format": "tofu-memory-rules", "version": 1, "rules": [], "nodes": []}',
        )

"""Bytes of a step by kind: exact for tiles, MXNet's own for the rest."""

import json

import mxnet as mx
import pytest

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.models import build
from tofu.mx.memory import planner
from tofu.mx.memory.step import KINDS, step_memory
from tofu.mx.run import executor

WORKERS = 2


@pytest.fixture(scope="module")
def divided():
    training = build("mlp", 2**16, reduced=True).training_graph(optimizer="adam")
    table, _ = strategy_table(training)
    plan = _core.plan(training, table, workers=WORKERS)
    return _core.partition(training, table, plan, fetch="multifetch")


@pytest.mark.parametrize("joint", [True, False])
def test_kinds_are_tiles_and_what_mxnet_allocates(divided, joint):
    contexts = [mx.cpu(worker) for worker in range(WORKERS)]
    text = _core.phases(divided, joint=joint)
    read, step_graphs = _core.read_step_graphs(divided, text)
    found = step_memory(json.loads(read), step_graphs, contexts)
    phases = json.loads(text)
    assert tuple(found.kinds) == KINDS
    assert sum(found.kinds.values()) == max(found.bytes_per_worker)
    document = json.loads(divided)
    weights = found.kinds["parameters"]
    assert weights == found.kinds["gradients"] == found.kinds["optimizer_state"] / 2 > 0
    graphs = (
        [phases["joint"]["graph"]]
        if joint
        else [phases[h]["graph"] for h in ("forward", "backward")]
    )
    planned = 0
    for graph in graphs:
        first, shapes = graph["node_row_ptr"], graph["attrs"]["shape"][1]
        arrays = {
            node["name"]: mx.nd.empty(shapes[at], contexts[int(node["attrs"]["__ctx_group__"][6:])])
            for node, at in zip(graph["nodes"], first)
            if node["op"] == "null"
        }
        planned += planner.planned_mib(executor.bind("test", graph, contexts, arrays))
    fixed = sum(
        4 * (tile["end"][0] - tile["begin"][0]) * ([*tile["end"], 1][1] - [*tile["begin"], 0][1])
        for variable in document["variables"].values()
        for tile in variable["tiles"]
    )
    assert planned > 20
    # MXNet prints whole MiB, once for each executor.
    assert (sum(found.bytes_per_worker) - fixed) / 2**20 == pytest.approx(planned, rel=0.01, abs=2)

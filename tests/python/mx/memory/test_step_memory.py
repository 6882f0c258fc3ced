"""Bytes of a step by kind: exact for tiles, and MXNet's own figure for all others."""

import math

import mxnet as mx
import pytest

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.models import build
from tofu.mx.graphs.training_graph import training_graph
from tofu.mx.memory import executor_memory
from tofu.mx.memory.step_memory import step_memory
from tofu.mx.run import executor
from tofu.plans.layout import variables_of
from tofu.plans.peak import KINDS

from .arrays import empty_variables

WORKERS = 2


@pytest.fixture(scope="module")
def divided():
    training = build("mlp", 2**16, reduced=True).training_graph(optimizer="adam")
    table, _ = strategy_table(training)
    return _core.partition(_core.plan(table, workers=WORKERS), fetch="multifetch")


@pytest.mark.parametrize("joint", [True, False])
def test_kinds_are_tiles_and_what_mxnet_allocates(divided, joint):
    contexts = [mx.cpu(worker) for worker in range(WORKERS)]
    step = _core.schedule(divided, joint=joint)
    found = step_memory(step, contexts)
    assert tuple(found.kinds) == KINDS
    assert sum(found.kinds.values()) == max(found.bytes_per_worker)
    weights = found.kinds["parameters"]
    assert weights == found.kinds["gradients"] == found.kinds["optimizer_state"] / 2 > 0
    planned = 0
    for graph in step.graphs:
        arrays = empty_variables(graph, contexts)
        planned += executor_memory.planned_mib(executor.bind("test", graph, contexts, arrays))
    fixed = sum(
        4 * math.prod(box.shape)
        for variable in variables_of(step).values()
        for box in variable.layout.boxes
    )
    assert planned > 20
    # MXNet prints whole MiB, once for each executor.
    assert (sum(found.bytes_per_worker) - fixed) / 2**20 == pytest.approx(planned, rel=0.01, abs=2)


@pytest.mark.parametrize("joint", [True, False])
def test_what_is_held_at_the_worst_moment_adds_up(divided, joint):
    step = _core.schedule(divided, joint=joint)
    peak = step_memory(step, [mx.cpu(worker) for worker in range(WORKERS)]).peak
    assert peak is not None
    assert sum(held.bytes for held in peak.held) == max(peak.bytes) == peak.bytes[peak.moment]
    assert peak.allocated_bytes >= max(peak.bytes)
    own = sum(
        4 * math.prod(variable.layout.boxes[peak.worker].shape)
        for variable in variables_of(step).values()
    )
    assert peak.fixed_bytes == own
    nodes = {node.name for graph in step.graphs for node in graph.nodes}
    assert set(peak.nodes) - {""} <= nodes
    assert {held.kind for held in peak.held} <= {"tensor", "fetched", "result"}
    assert any(held.kind == "result" for held in peak.held)
    found = step_memory(step, [mx.cpu(worker) for worker in range(WORKERS)])
    # Apart, the forward half is the fuller one, and has no gradients.
    gradients = found.kinds["gradients"] if joint else 0
    assert peak.between["gradients"][-1] == gradients, "they stay to the end"
    fetched = peak.between["fetch_buffers"][peak.moment]
    assert fetched == found.kinds["fetch_buffers"] > 0 if joint else fetched == 0


@pytest.mark.parametrize("fetch", ["plain", "multifetch"])
def test_copies_between_cpu_contexts_keep_memory_from_use_again(fetch):
    training = build("mlp", 64, reduced=True).training_graph(optimizer=None)
    table, _ = strategy_table(training)
    step = _core.schedule(_core.partition(_core.plan(table, workers=WORKERS), fetch=fetch))
    peak = step_memory(step, [mx.cpu(worker) for worker in range(WORKERS)]).peak
    assert peak.reuses == (fetch == "multifetch")


def _deep(rate):
    """A training step of a deep net with dropout before every layer, over four workers."""
    layers, units, batch = 8, 1024, 2048
    out = mx.sym.var("data")
    parameters = {}
    for layer in range(layers):
        out = mx.sym.FullyConnected(
            mx.sym.Dropout(out, p=rate), num_hidden=units, no_bias=True, name=f"fc{layer}"
        )
        parameters[f"fc{layer}_weight"] = ((units, units), "float32")
    graph = training_graph(
        out,
        inputs={"data": ((batch, units), "float32")},
        parameters=parameters,
        aux={},
        gradients=list(parameters),
        train=True,
    )
    table, _ = strategy_table(graph)
    masks = layers * units * batch * 4 / 4 if rate else 0
    return _core.partition(_core.plan(table, workers=4), fetch="multifetch"), masks


def test_dropout_needs_memory_for_its_masks_alone():
    contexts = [mx.cpu(worker) for worker in range(4)]

    def most(divided, joint):
        return max(step_memory(_core.schedule(divided, joint=joint), contexts).bytes_per_worker)

    without, _ = _deep(0)
    dropping, masks = _deep(0.5)
    limit = most(without, joint=True) + 0.8 * masks  # masks wait in half precision
    assert most(dropping, joint=True) < limit < most(dropping, joint=False)

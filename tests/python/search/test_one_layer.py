"""The paper's smallest hard case, on MXNet's graph of it."""

from __future__ import annotations

import mxnet as mx

from tofu import _core
from tofu.analysis.strategy_table import strategy_table
from tofu.mx.graphs.training_graph import training_graph

SIZE = 64
FLOAT_BYTES = 4


def test_one_layer_of_64_over_4_workers_communicates_at_most_20480_elements() -> None:
    hidden = mx.sym.FullyConnected(
        mx.sym.var("data"), mx.sym.var("weight"), num_hidden=SIZE, no_bias=True
    )
    loss = mx.sym.SoftmaxOutput(mx.sym.Activation(hidden, act_type="relu"), mx.sym.var("label"))
    shape = ((SIZE, SIZE), "float32")
    graph = training_graph(
        loss,
        inputs={"data": shape, "label": ((SIZE,), "float32")},
        parameters={"weight": shape},
        aux={},
        gradients=["data", "weight"],
        train=True,
    )
    table, undescribed = strategy_table(graph)
    assert not undescribed
    plan = _core.plan(table, workers=4)
    recursion = _core.plan(table, workers=4, mode="recursion")
    assert plan.total_bytes <= 20480 * FLOAT_BYTES
    assert plan.status == "optimal"
    assert plan.lower_bound_bytes == plan.total_bytes
    # The paper's recursion misses that two cuts along one dimension do not commute.
    assert recursion.total_bytes == 24576 * FLOAT_BYTES

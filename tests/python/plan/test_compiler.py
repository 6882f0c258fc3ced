"""From a training graph to phases: dumps, summaries and observers."""

import json

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from tofu.mx.graph import strategy_table, training_graph
from tofu.plan import compile_graph
from tofu.plan.compiler import observe

F32 = "float32"


@pytest.fixture(scope="module")
def graph():
    """One fully connected layer with a sum as its loss, forward and backward."""
    data, weight = mx.sym.var("data"), mx.sym.var("weight")
    layer = mx.sym.FullyConnected(data, weight, no_bias=True, num_hidden=16, name="fc")
    return training_graph(
        mx.sym.tanh(layer, name="tanh"),
        inputs={"data": ((8, 12), F32)},
        parameters={"weight": ((16, 12), F32)},
        aux={},
        gradients=["weight"],
        train=True,
        optimizer="sgd",
    )


def test_every_pass_leaves_a_readable_file(graph, tmp_path):
    table, undescribed = strategy_table(graph)
    assert undescribed == []
    compile_graph(graph, table, workers=4, dump_dir=tmp_path)
    names = [path.stem.split("-", 1)[1] for path in sorted(tmp_path.glob("*.txt"))]
    assert names[:2] == ["group", "coalesce"]
    assert names[-3:] == ["plan", "partition", "phases"]
    assert all("fc" in path.read_text() for path in tmp_path.glob("*-partition.txt"))


def test_later_dumps_do_not_overwrite_earlier_ones(graph, tmp_path):
    table, _ = strategy_table(graph)
    compile_graph(graph, table, workers=2, dump_dir=tmp_path)
    count = len(list(tmp_path.iterdir()))
    compile_graph(graph, table, workers=2, dump_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * count


def test_summary_counts_what_the_graph_holds(graph):
    table, _ = strategy_table(graph)
    compiled = compile_graph(graph, table, workers=2)
    summary = compiled.summary()
    assert summary["bytes_per_step"] == json.loads(compiled.partitioned)["fetched_bytes"]
    assert len(summary["bytes_per_worker"]) == 2
    # Half of the tensors, and what is fetched.
    assert min(summary["bytes_per_worker"]) >= 16 * 12 * 4
    assert max(summary["bytes_per_worker"]) < summary["serial_bytes"]


def test_observers_see_what_is_made_while_they_watch(graph):
    table, _ = strategy_table(graph)
    seen = []
    with observe(seen.append):
        compiled = compile_graph(graph, table, workers=2)
    compile_graph(graph, table, workers=2)
    assert seen == [compiled]


def test_dumps_are_numbered_on_after_a_thousand(graph, tmp_path):
    (tmp_path / "1000-plan.txt").write_text("earlier")
    table, _ = strategy_table(graph)
    compile_graph(graph, table, workers=2, dump_dir=tmp_path)
    assert (tmp_path / "1000-plan.txt").read_text() == "earlier"
    assert (tmp_path / "1001-group.txt").exists()

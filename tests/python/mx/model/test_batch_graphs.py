"""Training graphs of a model at many batch sizes: as the model gives them, few of them traced."""

from __future__ import annotations

import pytest

pytest.importorskip("mxnet")

from tofu import _core, models
from tofu.mx.model import sources
from tofu.mx.model.batch_graphs import BatchGraphs
from tofu.mx.model.sources import graphs_of_model

_FIRST = (4, 12, 6)


def graph(rows, *, width=3, op="relu"):
    """An operator on rows x width elements."""
    nodes = [
        '{"op": "null", "name": "x", "inputs": []}',
        f'{{"op": "{op}", "name": "y", "inputs": [[0, 0, 0]]}}',
    ]
    shapes = f"[[{rows}, {width}], [{rows}, {width}]]"
    return _core.Graph(
        f'{{"nodes": [{", ".join(nodes)}], "node_row_ptr": [0, 1, 2], "heads": [[1, 0, 0]], '
        f'"attrs": {{"shape": ["list_shape", {shapes}], "dtype": ["list_int", [0, 0]]}}}}'
    )


def traced(graph_of):
    """Graphs of a model, and the batch sizes at which it was traced."""
    batches = []

    def from_model(batch):
        batches.append(batch)
        return lambda whole: graph_of(batch)

    return BatchGraphs(from_model), batches


@pytest.mark.whole(but=2)
@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_the_graphs_are_those_of_the_model(name, monkeypatch):
    traced = []
    reduced = models.build

    def build(name, batch):
        traced.append(batch)
        return reduced(name, batch, reduced=True)

    monkeypatch.setattr(models, "build", build)
    graphs = graphs_of_model(name, optimizer="sgd_mom")
    for batch in (*_FIRST, 1, 2, 3, 30):
        for whole in ((), None):
            expected = reduced(name, batch, reduced=True).training_graph(
                optimizer="sgd_mom", fused=whole
            )
            assert graphs.at(batch)(whole).to_json() == expected.to_json(), (batch, whole)
    assert sorted(set(traced)) == sorted({*_FIRST, 1})


def test_three_graphs_on_a_line_give_the_others():
    graphs, batches = traced(lambda batch: graph(5 * batch))
    for batch in (*_FIRST, 7, 4, 100, 7):
        assert graphs.at(batch)(()).hash == graph(5 * batch).hash
    assert batches == [4, 12, 6]


def test_a_batch_of_one_is_made_from_the_model():
    graphs, batches = traced(lambda batch: graph(batch, op="relu" if batch > 1 else "copy"))
    for batch in (1, *_FIRST, 1, 2):
        expected = graph(batch, op="relu" if batch > 1 else "copy")
        assert graphs.at(batch)(()).hash == expected.hash
    assert 2 not in batches


def test_graphs_on_no_line_are_made_from_the_model():
    graphs, batches = traced(lambda batch: graph(batch * batch))
    for batch in (*_FIRST, 8, 9):
        assert graphs.at(batch)(()).hash == graph(batch * batch).hash
    assert batches == [*_FIRST, 8, 9]


def test_a_batch_between_whole_values_is_made_from_the_model():
    graphs, batches = traced(lambda batch: graph(batch, width=1 + batch // 2))
    for batch in (*_FIRST, 7, 8):
        assert graphs.at(batch)(()).hash == graph(batch, width=1 + batch // 2).hash
    assert batches == [*_FIRST, 7]


def test_graphs_with_other_norms_whole_have_lines_of_their_own():
    def from_model(batch):
        return lambda whole: graph(batch * (3 if whole else 1))

    graphs = BatchGraphs(from_model)
    for batch in (*_FIRST, 8):
        assert graphs.at(batch)(()).hash == graph(batch).hash
        assert graphs.at(batch)(("a",)).hash == graph(3 * batch).hash
        assert graphs.at(batch)(None).hash == graph(batch).hash


def test_a_model_has_its_own_batch_size(monkeypatch):
    asked = []
    monkeypatch.setattr(
        sources.BatchGraphs, "at", lambda self, batch: asked.append(batch) or (lambda _: graph(8))
    )
    monkeypatch.setattr(sources, "_problem", lambda *_: None)
    for batch in (None, 7, 0):
        sources.from_model("mlp", batch_size=batch, optimizer=None, workers=2)
    assert asked == [models.MODELS["mlp"].batch_size, 7, 0]


def test_graphs_of_two_sizes_are_needed():
    with pytest.raises(ValueError, match="two sizes"):
        graph(4).at_size(4, graph(4), 4, 8)

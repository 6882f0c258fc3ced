"""From a training graph to phases: dumps, summaries and observers."""

import dataclasses
import json

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from tofu.analysis.strategy_table import strategy_table
from tofu.errors import ConfigError, PlanError
from tofu.mx.build.training_graph import training_graph
from tofu.plan import Problem, SearchOptions, compile_graph, intercept, observe, plan_graph

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


def test_what_is_read_often_stands_beside_the_texts(graph):
    table, _ = strategy_table(graph)
    heads = json.loads(graph)["attrs"]["tofu_heads"][1]
    assert any(role.startswith("gradient:") for role in heads)
    compiled = compile_graph(graph, table, workers=2)
    assert compiled.variables == json.loads(compiled.partitioned)["variables"]
    assert compiled.has_backward and json.loads(compiled.phases)["backward"] is not None


def test_summary_counts_what_the_graph_holds(graph):
    table, _ = strategy_table(graph)
    compiled = compile_graph(graph, table, workers=2)
    summary = compiled.summary()
    assert summary["bytes_per_step"] == json.loads(compiled.partitioned)["fetched_bytes"]
    assert len(summary["bytes_per_worker"]) == 2
    # Half of the tensors, and what is fetched.
    assert min(summary["bytes_per_worker"]) >= 16 * 12 * 4
    assert max(summary["bytes_per_worker"]) < summary["serial_bytes"]


def test_fetched_regions_count_once(graph):
    table, _ = strategy_table(graph)
    plain = compile_graph(graph, table, workers=2)
    fused = compile_graph(graph, table, workers=2, fetch="multifetch")
    assert plain.shared_bytes == 0
    assert fused.fetched_bytes + fused.shared_bytes == plain.fetched_bytes == plain.plan.total_bytes
    # No slices and concatenations, but handles and acknowledgements of eight bytes.
    for many, few in zip(plain.bytes_per_worker, fused.bytes_per_worker):
        assert few < many + 8 * fused.partitioned.count('"op": "_tofu_')


def test_observers_see_what_is_made_while_they_watch(graph):
    table, _ = strategy_table(graph)
    seen = []
    with observe(seen.append):
        compiled = compile_graph(graph, table, workers=2)
    compile_graph(graph, table, workers=2)
    assert seen == [compiled]


def test_interceptors_see_a_graph_before_it_is_planned(graph):
    table, _ = strategy_table(graph)
    seen = []

    def stop(*problem):
        seen.append(problem)
        raise StopIteration

    with intercept(stop), pytest.raises(StopIteration):
        compile_graph(graph, table, workers=2)
    compile_graph(graph, table, workers=2)
    assert seen == [(graph, table, 2)]


def test_a_saved_plan_is_used_in_place_of_a_search(graph):
    table, _ = strategy_table(graph)
    pinned = SearchOptions(pins=(("weight", (1,)),))
    saved = plan_graph(Problem("fc", graph, table, 2), pinned)
    compiled = compile_graph(graph, table, workers=2, saved=saved.to_json())
    assert compiled.plan.tensor("weight").cuts == (1,)
    assert compiled.plan == saved


def test_a_saved_plan_of_another_graph_is_refused(graph):
    table, _ = strategy_table(graph)
    saved = json.loads(plan_graph(Problem("fc", graph, table, 2)).to_json())
    saved["graph_hash"] = "0" * 16
    with pytest.raises(ConfigError, match=r"saved plan cannot be used.*of another graph"):
        compile_graph(graph, table, workers=2, saved=json.dumps(saved))


def test_a_problem_names_what_no_description_covers(graph):
    table = json.loads(strategy_table(graph)[0])
    problem = Problem("fc", graph, json.dumps(table), 2)
    assert problem.undescribed() == []
    row = next(i for i, row in enumerate(table["nodes"]) if row >= 0)
    table["nodes"][row] = -1
    op = json.loads(graph)["nodes"][row]["op"]
    assert dataclasses.replace(problem, table=json.dumps(table)).undescribed() == [op]


def test_any_tensor_may_be_pinned(graph):
    table, _ = strategy_table(graph)
    for cut in (0, 1):
        options = SearchOptions(pins=(("fc", (cut,)), ("fc_backward[1]", (1 - cut,))))
        plan = plan_graph(Problem("fc", graph, table, 4), options)
        assert plan.tensor("fc").cuts == (cut, cut)
        assert plan.tensor("fc_backward", 1).cuts == (1 - cut, 1 - cut)


def test_pins_that_contradict_each_other_are_told_why(graph):
    table, _ = strategy_table(graph)
    options = SearchOptions(pins=(("fc", (0,)), ("tanh", (1,))))
    with pytest.raises(PlanError, match=r'"fc=0,0" and "tanh=1,1" conflict.*tanh'):
        plan_graph(Problem("fc", graph, table, 4), options)


def test_one_dimension_is_pinned_at_every_step(graph):
    table, _ = strategy_table(graph)
    options = SearchOptions(pins=(("weight", (1,)),))
    plan = plan_graph(Problem("fc", graph, table, 4), options)
    assert plan.tensor("weight").cuts == (1, 1)
    assert (plan.model, plan.nodes) == ("fc", len(json.loads(graph)["nodes"]))


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        (("weigth", (0,)), "pin weigth: the graph has no tensor .* did you mean weight"),
        (
            ("weight", (0, 1, 0)),
            r"pin of .weight.: found 3 cuts, expected one for each of the 2 steps, or one for all",
        ),
    ],
)
def test_pins_that_fit_nothing(graph, pin, message):
    table, _ = strategy_table(graph)
    with pytest.raises(PlanError, match=message):
        plan_graph(Problem("fc", graph, table, 4), SearchOptions(pins=(pin,)))


def test_dumps_are_numbered_on_after_a_thousand(graph, tmp_path):
    (tmp_path / "1000-plan.txt").write_text("earlier")
    table, _ = strategy_table(graph)
    compile_graph(graph, table, workers=2, dump_dir=tmp_path)
    assert (tmp_path / "1000-plan.txt").read_text() == "earlier"
    assert (tmp_path / "1001-group.txt").exists()

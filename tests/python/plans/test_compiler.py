"""From a training graph to phases: dumps, summaries and observers."""

import json

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from tofu import _core, models
from tofu.analysis.strategy_table import WHOLE, strategy_table, table_document
from tofu.errors import ConfigError, PlanError
from tofu.mx.graphs.training_graph import training_graph
from tofu.planner.compile_plan import compile_graph
from tofu.planner.lookers import Lookers
from tofu.planner.search import plan_graph
from tofu.plans import Problem, SearchOptions
from tofu.plans.fetch import Fetch
from tofu.plans.layout import variables_of
from tofu.plans.plan import undescribed_text

F32 = "float32"


@pytest.fixture(scope="module")
def table():
    return _table()


def _table(batch=8, dtype=F32):
    """One fully connected layer with a sum as its loss, forward and backward."""
    data, weight = mx.sym.var("data"), mx.sym.var("weight")
    layer = mx.sym.FullyConnected(data, weight, no_bias=True, num_hidden=16, name="fc")
    graph = training_graph(
        mx.sym.tanh(layer, name="tanh"),
        inputs={"data": ((batch, 12), dtype)},
        parameters={"weight": ((16, 12), dtype)},
        aux={},
        gradients=["weight"],
        train=True,
        optimizer="sgd",
    )
    table, undescribed = strategy_table(graph)
    assert undescribed == {}
    return table


def test_every_pass_leaves_a_readable_file(table, tmp_path):
    compile_graph(table, workers=4, dump_dir=tmp_path)
    names = [path.stem.split("-", 1)[1] for path in sorted(tmp_path.glob("*.txt"))]
    assert names[:2] == ["group", "coalesce"]
    assert names[-3:] == ["plan", "partition", "phases"]
    assert all("fc" in path.read_text() for path in tmp_path.glob("*-partition.txt"))


def test_later_dumps_do_not_overwrite_earlier_ones(table, tmp_path):
    compile_graph(table, workers=2, dump_dir=tmp_path)
    count = len(list(tmp_path.iterdir()))
    compile_graph(table, workers=2, dump_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * count


def test_what_is_read_often_stands_next_to_the_step(table):
    assert any(role.startswith("gradient:") for role in table.graph.head_roles)
    compiled = compile_graph(table, workers=2)
    assert compiled.variables == variables_of(compiled.step)
    assert set(compiled.variables) >= {"data", "weight"}
    assert compiled.has_backward
    assert len(compiled.step.graphs) == 2


def test_summary_counts_what_the_graph_holds(table):
    compiled = compile_graph(table, workers=2)
    summary = compiled.summary()
    assert summary["bytes_per_step"] == compiled.plan.total_bytes
    assert len(summary["bytes_per_worker"]) == 2
    # A worker holds half of the tensors, and fetched regions.
    assert min(summary["bytes_per_worker"]) >= 16 * 12 * 4
    assert max(summary["bytes_per_worker"]) < summary["serial_bytes"]


def test_fetched_regions_count_once(table):
    plain = compile_graph(table, workers=2)
    fused = compile_graph(
        table, workers=2, fetch=Fetch("multifetch", crossing="plain_tiles"), joint=True
    )
    assert plain.shared_bytes == 0
    assert fused.fetched_bytes + fused.shared_bytes == plain.fetched_bytes == plain.plan.total_bytes
    # MultiFetch has no slices and concatenations.
    for many, few in zip(plain.bytes_per_worker, fused.bytes_per_worker):
        assert few < many


def test_small_regions_through_a_root_count_as_relayed():
    # Each worker needs all of the data, or all of the weight, in the forward half.
    pins = SearchOptions(pins=(("data", (0, 0)), ("weight", (0, 0))))
    for dtype in ("float32", "float64"):
        compiled = compile_graph(_table(dtype=dtype), workers=4, options=pins)
        plan = compiled.searched
        direct = _core.partition(plan, small_bytes=0)
        through = _core.partition(plan)
        assert direct.relayed_bytes == 0 < through.relayed_bytes
        assert direct.fetched_bytes == plan.total_bytes
        assert through.fetched_bytes - through.relayed_bytes == plan.total_bytes
        assert compiled.relayed_bytes == through.relayed_bytes
        assert compiled.summary()["relayed_bytes"] == through.relayed_bytes


def test_lookers_see_what_is_planned_and_made_while_they_look(table):
    problem, compiled = Problem("fc", table, 2), compile_graph(table, workers=2)
    lookers, seen = Lookers(), []
    with lookers.looking(problem=seen.append), lookers.looking(compiled=seen.append):
        lookers.see_problem(problem)
        lookers.see_compiled(compiled)
    lookers.see_problem(problem)
    assert seen == [problem, compiled]


def test_a_saved_plan_is_used_in_place_of_a_search(table):
    pinned = SearchOptions(pins=(("weight", (1,)),))
    saved = _core.Plan(plan_graph(Problem("fc", table, 2), pinned).to_json(), table)
    compiled = compile_graph(table, workers=2, saved=saved)
    assert compiled.plan.tensor("weight").cuts == (1,)
    assert compiled.searched is saved


def test_a_graph_that_is_faster_is_used_if_its_plan_communicates_no_more(table):
    seen = []

    def refined(start, better, **options):
        def refine(plan):
            seen.append(plan.table)
            return better

        return compile_graph(start, workers=2, refine=refine, **options).searched.table

    again, larger = _table(), _table(batch=32)
    bytes_of = [compile_graph(each, workers=2).searched.total_bytes for each in (table, larger)]
    assert bytes_of[0] < bytes_of[1]
    assert refined(table, again) is again
    assert refined(larger, table) is table
    assert refined(table, larger) is table
    assert refined(table, None) is table
    assert seen == [table, larger, table, table]
    saved = compile_graph(table, workers=2).searched
    assert refined(table, again, saved=saved) is table
    assert len(seen) == 4  # a saved plan is used as it was saved


def test_the_plan_for_people_is_that_of_the_run(table):
    compiled = compile_graph(table, workers=2)
    assert compiled.plan.total_bytes == compiled.searched.total_bytes
    assert compiled.plan.operators
    assert len(compiled.plan.operators) == compiled.searched.num_operators
    assert compiled.plan is compiled.plan


def test_the_user_is_told_why_no_description_covers_an_operator():
    reasons = {"tanh": "its rewrite fails: KeyError: 'axis'"}
    told = undescribed_text("fc", reasons, 2048)
    assert told == (
        "fc: tanh: its rewrite fails: KeyError: 'axis'; every worker computes them whole, "
        "which costs 2.0 KiB of communication per step"
    )
    told = undescribed_text("fc", {**reasons, "b": "", "a": ""}, 0)
    assert told.startswith("fc: no description of a, b; tanh: its rewrite fails: ")
    assert told.endswith("per step. A description in TDL would let them be split")


def test_what_is_whole_for_a_reason_has_no_row(table):
    document = json.loads(table.graph.to_json())
    (node,) = [n for n in document["nodes"] if n["op"] == "tanh"]
    node["attrs"] = {WHOLE: "because"}
    _, undescribed = strategy_table(_core.Graph(json.dumps(document)))
    assert undescribed == {"tanh": "because"}


def test_a_file_of_descriptions_that_cannot_be_loaded_is_no_reason_to_go_on(table, monkeypatch):
    def fails(*_):
        raise ConfigError("mine.py: not a Python file")

    monkeypatch.setattr("tofu.analysis.strategy_table.row_for", fails)
    with pytest.raises(ConfigError, match="mine"):
        strategy_table(table.graph)


def test_any_tensor_may_be_pinned(table):
    for cut in (0, 1):
        options = SearchOptions(pins=(("fc", (cut,)), ("fc_backward[1]", (1 - cut,))))
        plan = plan_graph(Problem("fc", table, 4), options)
        assert plan.tensor("fc").cuts == (cut, cut)
        assert plan.tensor("fc_backward", 1).cuts == (1 - cut, 1 - cut)


def test_pins_that_contradict_each_other_are_told_why(table):
    options = SearchOptions(pins=(("fc", (0,)), ("tanh", (1,))))
    with pytest.raises(PlanError, match=r'"fc=0,0" and "tanh=1,1" conflict.*tanh'):
        plan_graph(Problem("fc", table, 4), options)


def test_one_dimension_is_pinned_at_every_step(table):
    options = SearchOptions(pins=(("weight", (1,)),))
    plan = plan_graph(Problem("fc", table, 4), options)
    assert plan.tensor("weight").cuts == (1, 1)
    assert (plan.model, plan.nodes) == ("fc", len(table.graph.nodes))


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
def test_pins_that_fit_nothing(table, pin, message):
    with pytest.raises(PlanError, match=message):
        plan_graph(Problem("fc", table, 4), SearchOptions(pins=(pin,)))


def test_pins_of_tiled_parameters_win_over_those_of_the_options(table):
    """Tensors that are tiled already keep their cuts; the option's pins hold for others."""
    options = SearchOptions(pins=(("weight", (1,)), ("data", (1,))))
    for pins, cuts in (({"weight": (0, 0)}, (0, 0)), ({}, (1, 1))):
        plan = compile_graph(table, workers=4, fixed=pins, options=options).plan
        assert plan.tensor("weight").cuts == cuts
        assert plan.tensor("data").cuts == (1, 1)


def test_only_a_graph_that_computes_the_same_again_is_joined(table):
    document = json.loads(table_document(table.graph)[0])

    def other(**changes):
        return _core.StrategyTable(json.dumps({**document, **changes}), table.graph)

    def joined(one):
        return compile_graph(one, workers=2, joint=True).step.is_joint

    assert joined(other())
    names = [node.name for node in table.graph.nodes]
    for name in ("fc", "tanh"):
        rows = document["nodes"]
        row = rows[names.index(name)]
        unknown = [-1 if names[k] == name else own for k, own in enumerate(rows)]
        assert not joined(other(nodes=unknown)), name
        drawn = [{**r, "random": r["random"] or k == row} for k, r in enumerate(document["rows"])]
        assert not joined(other(rows=drawn)), name


def test_dumps_are_numbered_on_after_a_thousand(table, tmp_path):
    (tmp_path / "1000-plan.txt").write_text("earlier")
    compile_graph(table, workers=2, dump_dir=tmp_path)
    assert (tmp_path / "1000-plan.txt").read_text() == "earlier"
    assert (tmp_path / "1001-group.txt").exists()


@pytest.mark.whole
@pytest.mark.parametrize("model", ["wresnet-50-4", "rnn-6-4k"])
def test_two_operators_compute_for_one_that_communicates(model):
    graph = models.build(model).training_graph(optimizer=None)
    compiled = compile_graph(
        strategy_table(graph)[0],
        workers=8,
        fetch=Fetch("multifetch", crossing="plain_tiles"),
        joint=True,
    )
    ops = [node.op for each in compiled.step.graphs for node in each.nodes if node.op]
    communicating = sum(op == "_copy" or op.startswith("_tofu_") for op in ops)
    assert communicating <= 0.5 * (len(ops) - communicating)

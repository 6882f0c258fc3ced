"""BatchNorm stays MXNet's own operator if a plan leaves its statistics whole."""

import dataclasses

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.analysis.strategy_table import strategy_table
from tofu.cli.reports.explained import explained_in, explained_names
from tofu.errors import ConfigError
from tofu.gluon.session.session import looking
from tofu.mx.graphs.lower.fused_norm import STATISTICS, kept_whole, whole_statistics
from tofu.mx.graphs.training_graph import training_graph
from tofu.mx.memory.step_memory import step_memory
from tofu.mx.model.memory import with_memory
from tofu.mx.model.saving import save_plan
from tofu.mx.model.sources import from_block
from tofu.planner.compile_plan import compile_graph
from tofu.planner.decide import plan_problem
from tofu.planner.limits import held_bytes
from tofu.planner.search import plan_graph, plan_refined, search
from tofu.planner.wish import Wish
from tofu.plans import Problem, SearchOptions
from tofu.plans import file as plan_file

from .test_norms import TOLERANCES, Drawn

STEPS = 3
SIZE = 5
BATCH_NORMS = {"BatchNorm", "_backward_BatchNorm"}
NORMS = {
    "default": {},
    "without scale": {"scale": False},
    "momentum and eps": {"momentum": 0.5, "epsilon": 0.1},
}


def fastest(problem, options, fetch):
    """The plan that a run would use, chosen by simulation if time is the objective."""
    found = search(problem, options, fetch=fetch)
    return found.problem, found.read()


class Net(nn.HybridBlock):
    """Convolutions with more weights than data, whose channels the workers divide."""

    def __init__(self, norm, twice):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.first = nn.Conv2D(64, 3, padding=1, in_channels=64)
            self.norm = norm
            self.second = nn.Conv2D(64, 3, in_channels=64)
        self._twice = twice

    def hybrid_forward(self, F, x):
        found = self.norm(self.first(x))
        if self._twice:
            found = self.norm(F.tanh(found))
        return self.second(F.tanh(found)).square().mean(axis=(1, 2, 3))


def train(options, batch, dtype, twice=False):
    """Losses, parameters and a prediction, after the steps."""
    net = Net(nn.BatchNorm(prefix="norm_", **options), twice)
    net.initialize(Drawn())
    net.cast(dtype)
    net.hybridize()
    trainer, losses = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for step in range(STEPS):
        x = np.random.RandomState(step).normal(size=(batch, 64, SIZE, SIZE))
        with autograd.record():
            loss = net(mx.nd.array(x, dtype=dtype))
        loss.backward()
        if step == 1:  # a second backward pass runs the forward half again
            with autograd.record():
                loss = net(mx.nd.array(x, dtype=dtype))
            loss.backward(retain_graph=True)
            loss.backward()
        trainer.step(batch)
        losses.append(loss.asnumpy())
    weights = net._collect_params_with_prefix()
    found = {n: weight.data().asnumpy() for n, weight in weights.items()}
    return {"losses": losses, **found, "predicted": net(mx.nd.array(x, dtype=dtype)).asnumpy()}


def operators(compiled):
    return {op for op in BATCH_NORMS for graph in compiled.step.graphs if graph.nodes_of({op})}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", NORMS)
def test_whole_norms(name, workers, twice, dtype):
    expected = train(NORMS[name], 2, dtype, twice)
    made = []
    tofu.enable(workers=workers, device="cpu", log="quiet")
    try:
        with looking(compiled=made.append):
            found = train(NORMS[name], 2, dtype, twice)
    finally:
        tofu.disable()
    training, predicting = made
    assert operators(training) == BATCH_NORMS and operators(predicting) == {"BatchNorm"}
    assert found.keys() == expected.keys()
    for each, value in expected.items():
        np.testing.assert_allclose(
            found[each], value, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype], err_msg=each
        )


class Lines(nn.HybridBlock):
    """The means of normalized lines."""

    def __init__(self, norm):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.norm, self.pool = norm, nn.GlobalAvgPool1D()

    def hybrid_forward(self, F, x):
        return self.pool(self.norm(x))


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_worker_with_one_channel_of_lines(dtype):
    """MXNet's gradient fails ("!is_view") where oneDNN pads a few channels to eight."""

    def train():
        net = Lines(nn.BatchNorm(in_channels=8, prefix="norm_"))
        net.initialize(Drawn())
        net.cast(dtype)
        net.hybridize()
        x = mx.nd.array(np.random.RandomState(1).normal(size=(5, 8, 8)), dtype=dtype)
        x.attach_grad()
        with autograd.record():
            loss = net(x).square().sum()
        loss.backward()
        trained = [net.norm.gamma, net.norm.beta]
        return [each.asnumpy() for each in (loss, x.grad, *(each.grad() for each in trained))]

    expected, made = train(), []
    tofu.enable(workers=8, device="cpu", log="quiet", strict=True)
    try:
        with looking(compiled=made.append):
            found = train()
    finally:
        tofu.disable()
    assert operators(made[0]) == BATCH_NORMS
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def test_a_norm_of_an_operators_second_output():
    """The plan has a name for that tensor that differs from the operator's."""
    parts = mx.sym.split(mx.sym.var("x"), num_outputs=2, axis=1, name="split0")
    symbol = mx.sym.BatchNorm(parts[1], name="norm")
    _, _, aux = symbol.infer_shape(x=(4, 8, 6))
    graph = training_graph(
        symbol,
        inputs={},
        parameters={"x": ((4, 8, 6), "float32"), "norm_gamma": ((4,), "float32"),
                    "norm_beta": ((4,), "float32")},
        aux=dict(zip(symbol.list_auxiliary_states(), ((shape, "float32") for shape in aux))),
        gradients=["x"],
        train=True,
        on_gpus=True,
    )  # fmt: skip
    table, _ = strategy_table(graph)
    for dim, whole in ((1, {"norm"}), (2, set())):
        pins = SearchOptions(pins=(("split0[1]", (dim,)),))
        plan = compile_graph(table, workers=2, options=pins).searched
        assert whole_statistics(plan) == whole


def test_a_norm_whose_statistics_are_divided_is_taken_apart():
    made = []
    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        with looking(compiled=made.append):
            train({}, 256, "float32")
    finally:
        tofu.disable()
    assert [operators(each) for each in made] == [set(), {"BatchNorm"}]


# --- planned before it runs -----------------------------------------------------------------


def problem_of(batch, dtype):
    """The first problem of a run, as `tofu plan` finds it in a script."""
    found = []

    def stop(problem):
        found.append(dataclasses.replace(problem, name="net"))
        raise KeyboardInterrupt

    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        with looking(problem=stop), pytest.raises(KeyboardInterrupt):
            train({}, batch, dtype)
    finally:
        tofu.disable()
    return found[0]


def run(batch, dtype, **options):
    """The first graph of a run, and its results."""
    made = []
    tofu.enable(workers=2, device="cpu", log="quiet", **options)
    try:
        with looking(compiled=made.append):
            found = train({}, batch, dtype)
    finally:
        tofu.disable()
    return made[0], found


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_what_is_planned_is_what_runs(objective, dtype, tmp_path):
    """The graph is the same in tofu plan, in a run, and in a run with the saved plan."""
    chosen = {"objective": objective, "machine": "p2.8xlarge"} if objective == "time" else {}
    problem = problem_of(2, dtype)
    options = SearchOptions(**chosen)
    graph, plan = fastest(problem, options, "multifetch")
    assert graph.origin is problem.graph and graph.refine is None
    exact = with_memory(graph, plan, "multifetch").bytes_per_worker
    path = tmp_path / "net.plan"
    save_plan(path, graph, plan)
    expected = train({}, 2, dtype)
    for wanted in (chosen, {"plan": path}):
        compiled, found = run(2, dtype, **wanted)
        assert operators(compiled) == BATCH_NORMS
        assert compiled.searched.table.graph.hash == graph.graph.hash == plan.graph_hash
        assert compiled.searched.total_bytes == plan.total_bytes
        assert step_memory(compiled.step, [mx.cpu(0), mx.cpu(1)]).kinds == exact
        for each, value in expected.items():
            np.testing.assert_allclose(
                found[each], value, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype], err_msg=each
            )


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_norms_are_planned_in_parts_where_mxnet_copies(objective):
    chosen = {"objective": objective, "machine": "p2.8xlarge"} if objective == "time" else {}
    problem = problem_of(2, "float32")
    graph, plan = fastest(problem, SearchOptions(**chosen), "plain")
    assert graph.table is problem.table and plan.graph_hash == problem.graph.hash


def test_the_plan_saved_last_is_used(tmp_path):
    problem, path = problem_of(2, "float32"), tmp_path / "net.plan"
    in_parts, whole = (problem, plan_graph(problem)), plan_refined(problem)
    for number, (graph, plan) in enumerate((in_parts, whole, in_parts)):
        save_plan(path, graph, plan)
        assert len(plan_file.read(path).plans) == 1
        compiled, _ = run(2, "float32", plan=path)
        assert operators(compiled) == (BATCH_NORMS if number == 1 else set())
        assert compiled.searched.table.graph.hash == plan.graph_hash


def test_plans_of_other_graphs_and_numbers_of_workers_are_kept(tmp_path):
    problem, path = problem_of(2, "float32"), tmp_path / "net.plan"
    graph, plan = plan_refined(problem)
    other = Problem("net", problem.table, 4)
    save_plan(path, other, plan_graph(other))
    save_plan(path, graph, plan)
    assert len(plan_file.read(path).plans) == 2
    assert plan_file.read(path).kept_whole(problem.graph.hash, 2) == ("norm_fwd",)
    assert plan_file.read(path).kept_whole(problem.graph.hash, 4) == ()
    assert plan_file.read(path).kept_whole(graph.graph.hash, 2) == ()


def test_a_damaged_list_of_norms_is_refused(tmp_path):
    for damaged in (7, ["a", 7]):
        plans = {("0", 2): {"origin_hash": "1", "graph_hash": "0", "kept_whole": damaged}}
        with pytest.raises(ConfigError, match=r"a\.plan: damaged \(kept_whole is "):
            plan_file.PlanFile(tmp_path / "a.plan", plans).kept_whole("1", 2)


def test_a_block_is_planned_with_norms_that_stay_whole():
    """tofu plan, simulate, estimate and compare plan models and symbols in the same way."""
    net = Net(nn.BatchNorm(prefix="norm_"), False)
    inputs = [(2, 64, SIZE, SIZE)]
    problem = from_block(net, inputs, dtypes={}, optimizer="sgd", predict=False, workers=2)
    graph, plan = plan_refined(problem)
    assert kept_whole(problem.graph, graph.graph) == {"norm_fwd"}
    assert plan.graph_hash == graph.graph.hash != problem.graph.hash
    assert plan.total_bytes <= plan_graph(problem).total_bytes
    again, same = plan_refined(graph)
    assert again.table is graph.table and same.total_bytes == plan.total_bytes


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_a_pinned_part_keeps_its_norm_in_parts(objective):
    chosen = {"objective": objective, "machine": "p2.8xlarge"} if objective == "time" else {}
    problem = problem_of(2, "float32")
    part = next(node.name for node in problem.graph.nodes if STATISTICS in node.attrs)
    (cut,) = plan_graph(problem).tensor(part).cuts
    pinned = SearchOptions(pins=((part, (cut,)),), **chosen)
    graph, plan = fastest(problem, pinned, "multifetch")
    assert graph.table is problem.table and plan.tensor(part).cuts == (cut,)


def test_norms_stay_whole_within_a_memory_limit_and_where_activations_are_computed_again():
    problem = problem_of(2, "float32")
    graph, plan = plan_problem(problem, Wish(limit_bytes=1 << 30))
    assert kept_whole(problem.graph, graph.graph) == {"norm_fwd"}
    double = held_bytes(plan) * 2
    graph, _ = plan_problem(problem, Wish(limit_bytes=double, recompute="all"))
    assert kept_whole(problem.graph, graph.graph) == {"norm_fwd"}
    assert (graph.origin is problem.graph) == (graph.table is not problem.table)


def test_parts_of_a_norm_that_stays_whole_are_not_explained(capsys):
    problem = problem_of(2, "float32")
    names = ["norm_fwd::mean", "norm_*", "net_conv0_weight"]
    before = explained_names([problem], names)[0]
    graph, _ = plan_refined(problem)
    found = explained_in(graph, names, before)
    assert "norm_fwd::mean" in before and "norm_fwd::mean" not in found
    assert {"norm_gamma", "net_conv0_weight"} <= set(found) <= set(graph.graph.tensor_names)
    assert capsys.readouterr().err.startswith("tofu: norm_fwd::mean: a part of a BatchNorm that ")
    assert explained_in(problem, names, before) == before
    assert explained_in(graph, ["of another graph"], []) == []
    assert not capsys.readouterr().err


@pytest.mark.parametrize("predict", [False, True])
@pytest.mark.parametrize("fetch", ["plain", "multifetch"])
def test_commands_plan_norms_as_the_chosen_fetch_needs_them(fetch, predict, monkeypatch):
    monkeypatch.setenv("TOFU_FETCH", fetch)
    net = Net(nn.BatchNorm(prefix="norm_"), False)
    inputs = [(2, 64, SIZE, SIZE)]
    problem = from_block(net, inputs, dtypes={}, optimizer=None, predict=predict, workers=2)
    graph, _ = plan_refined(problem)
    assert any(node.op == "BatchNorm" for node in graph.graph.nodes) == (fetch == "multifetch")

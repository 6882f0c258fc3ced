"""Computing activations again gives the same results as keeping them."""

import functools

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd
from mxnet.gluon import nn

import tofu
from tofu.errors import MemoryLimitError
from tofu.gluon.session import session
from tofu.gluon.session.session import looking
from tofu.mx.memory.step_memory import step_memory
from tofu.mx.model.saving import save_plan
from tofu.planner.decide import plan_problem
from tofu.planner.frontier import frontier
from tofu.planner.limits import held_bytes
from tofu.planner.recomputation import recomputed, recomputing
from tofu.planner.search import plan_graph
from tofu.planner.wish import Wish
from tofu.plans import Problem, SearchOptions
from tofu.plans import file as plan_file

from .models import CASES, Case, train

STEPS = 3
TOLERANCES = {"float64": 1e-9, "float32": 2e-5}


class Block(nn.HybridBlock):
    """Some layers, and their input added."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.norm = nn.LayerNorm()
            self.wide = nn.Dense(4 * units, activation="tanh", in_units=units)
            self.narrow = nn.Dense(units, in_units=4 * units)

    def hybrid_forward(self, F, x):
        return x + self.narrow(self.wide(self.norm(x)))


class NormLast(nn.HybridBlock):
    """As BERT's layers: the output of a norm stays, and the backward pass reads its deviation."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first = nn.LayerNorm(in_channels=units)
            self.last = nn.LayerNorm(in_channels=units)
            self.same = nn.Dense(units, in_units=units)
            self.wide = nn.Dense(4 * units, in_units=units)
            self.narrow = nn.Dense(units, in_units=4 * units)

    def hybrid_forward(self, F, x):
        x = self.first(x + self.same(x))
        return self.last(x + self.narrow(F.LeakyReLU(self.wide(x), act_type="gelu")))


def deep(blocks=6, units=24, kind=Block):
    net = nn.HybridSequential(prefix="deep_")
    with net.name_scope():
        for _ in range(blocks):
            net.add(kind(units))
        net.add(nn.Dense(12))
    return net


SGD = {"learning_rate": 0.02, "momentum": 0.9}
MODELS = {**CASES, "deep": Case(deep, (24, 24), 12, "sgd", SGD)}
MODELS["norm_last"] = Case(functools.partial(deep, kind=NormLast), (24, 24), 12, "sgd", SGD)


@functools.cache
def serial(model, dtype):
    return train(MODELS[model], dtype, STEPS)


def partitioned(run, workers, recompute="all", **options):
    """A function's result with tofu on, and the training program that it makes."""
    compiled = []
    tofu.enable(workers=workers, device="cpu", log="quiet", recompute=recompute, **options)
    try:
        with looking(compiled=compiled.append):
            return run(), compiled[0]
    finally:
        tofu.disable()


def repeated(compiled):
    return [name.node for name in compiled.plan.operators if name.node.endswith("_again")]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("model", "workers"),
    [
        ("deep", 1),
        ("deep", 2),
        ("deep", 3),
        ("norm_last", 1),
        ("norm_last", 3),
        ("residual_cnn", 1),
        ("residual_cnn", 4),
        ("residual_cnn", 3),
    ],
)
def test_losses_and_weights(model, workers, dtype):
    expected, expected_weights = serial(model, dtype)
    run = functools.partial(train, MODELS[model], dtype, STEPS)
    (losses, weights), compiled = partitioned(run, workers)
    assert len(repeated(compiled)) >= 4
    assert compiled.step.is_joint
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for name, value in weights.items():
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


def normed(layers=8, units=24):
    net = nn.HybridSequential(prefix="normed_")
    with net.name_scope():
        for _ in range(layers):
            net.add(nn.Dense(units, in_units=units), nn.BatchNorm(), nn.Activation("tanh"))
        net.add(nn.Dense(12))
    return net


def trained_normed():
    return train(Case(normed, (24, 24), 12, "sgd", SGD), "float64", STEPS)


def normed_problem():
    """The first problem of the run, as `tofu plan` finds it in a script."""
    found = []

    def stop(problem):
        found.append(problem)
        raise KeyboardInterrupt

    tofu.enable(workers=1, device="cpu", log="quiet")
    try:
        with looking(problem=stop), pytest.raises(KeyboardInterrupt):
            trained_normed()
    finally:
        tofu.disable()
    return found[0]


def test_norms_run_again_whole_in_runs_plans_estimates_and_saved_plans(tmp_path):
    """On one worker BatchNorm is MXNet's own operator, which writes only to scratch tensors."""
    expected, expected_weights = trained_normed()
    problem = normed_problem()
    graph, plan = plan_problem(problem, Wish(recompute="all"))
    assert recomputing(problem).graph.hash == graph.graph.hash
    points = frontier(problem, SearchOptions(), limits=1, recompute=True)
    assert graph.graph.hash in {point.plan.graph_hash for point in points}
    save_plan(tmp_path / "normed.plan", graph, plan)
    for wanted in ({}, {"recompute": "auto", "plan": tmp_path / "normed.plan"}):
        (losses, weights), compiled = partitioned(trained_normed, 1, **wanted)
        assert compiled.searched.table.graph.hash == graph.graph.hash
        again = {each.op for each in compiled.plan.operators if each.node.endswith("_again")}
        assert "BatchNorm" in again
        np.testing.assert_allclose(losses, expected, rtol=1e-9)
        for name, value in weights.items():
            np.testing.assert_allclose(value, expected_weights[name], rtol=1e-9, atol=1e-9)


class Masked(nn.HybridBlock):
    """Products with weights of ones, dropped and squashed."""

    def __init__(self, layers):
        super().__init__()
        with self.name_scope():
            self.weights = [
                self.params.get(f"weight{i}", shape=(1, 24), init="ones") for i in range(layers)
            ]
            for i, weight in enumerate(self.weights):
                self._reg_params[f"weight{i}"] = weight
            self.dropout = nn.Dropout(0.25)

    def hybrid_forward(self, F, x, **weights):
        for weight in weights.values():
            x = self.dropout(F.broadcast_mul(F.relu(x), weight))
        return x


def test_masks_are_drawn_once():
    """The gradient is zero exactly where the output is: the masks are those of the forward."""
    mx.random.seed(3)
    net = Masked(6)
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((12, 24))
    x.attach_grad()

    def run():
        found = []
        for _ in range(3):
            with autograd.record():
                out = net(x)
            out.backward()
            found.append((out.asnumpy(), x.grad.asnumpy()))
        return found

    found, compiled = partitioned(run, 2)
    assert repeated(compiled)
    assert not any(
        "Dropout" in each.op for each in compiled.plan.operators if "_again" in each.node
    )
    for out, gradient in found:
        assert 0.05 < (out == 0).mean() < 0.95
        np.testing.assert_allclose(gradient, out, rtol=1e-6)


def test_a_retained_graph_runs_backward_twice():
    def run():
        mx.random.seed(5)
        net = deep(4)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        x = mx.nd.random.uniform(shape=(12, 24))
        x.attach_grad()
        with autograd.record():
            loss = net(x).square().sum()
        loss.backward(retain_graph=True)
        first = x.grad.asnumpy()
        loss.backward()
        return first, x.grad.asnumpy()

    expected = run()
    found, compiled = partitioned(run, 2)
    assert repeated(compiled)
    for each in found:
        np.testing.assert_allclose(each, expected[0], rtol=1e-4, atol=1e-5)


def step_bytes(compiled, workers):
    return step_memory(compiled.step, [mx.cpu(i) for i in range(workers)])


def test_less_is_held_and_a_limit_asks_for_it():
    """The run recomputes only under a limit, and then as little as it must."""

    def run():
        """The loss, and the memory of a wide batch's program, under a limit if there is one."""
        mx.random.seed(5)
        net = deep(8, 32)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        with autograd.record():
            loss = net(mx.nd.random.uniform(shape=(1024, 32))).square().mean()
        loss.backward()
        current = session.active()
        held = [] if current is None else list(current.state.footprints.values())
        return loss.asscalar(), held

    expected, _ = run()
    _, plain = partitioned(run, 2, recompute="auto")
    assert not repeated(plain)
    _, most = partitioned(run, 2)
    before, after = (step_bytes(each, 2).kinds["activations"] for each in (plain, most))
    assert after < 0.5 * before
    limit = sum(step_bytes(plain, 2).kinds.values()) - (before - after) // 2
    wanted = {"memory": f"{limit}B", "allow_replication": False}
    (loss, (footprint,)), _ = partitioned(run, 2, recompute="auto", **wanted)
    assert held_bytes(footprint.plan) <= limit
    again = [each for each in footprint.plan.operators if each.node.endswith("_again")]
    assert 0 < len(again) < len(repeated(most))
    assert loss == pytest.approx(expected, rel=1e-5)
    with pytest.raises(MemoryLimitError, match="recomputation"):
        partitioned(run, 2, recompute="none", **wanted)


def test_a_saved_plan_that_recomputes_is_used(tmp_path):
    """The run recomputes as the plan says, without the setting."""

    def run():
        mx.random.seed(5)
        net = deep(6)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        with autograd.record():
            loss = net(mx.nd.random.uniform(shape=(12, 24))).square().sum()
        loss.backward()
        return loss.asscalar()

    expected = run()
    _, plain = partitioned(run, 2, recompute="none")
    again = recomputed(plain.searched.table)
    problem = Problem("deep", again.table, 2)
    plan_file.save(tmp_path / "deep.plan", again.note(plan_graph(problem)), problem.graph)
    loss, used = partitioned(run, 2, plan=tmp_path / "deep.plan", recompute="auto")
    assert used.searched.table.graph.hash == problem.graph.hash
    assert len(repeated(used)) == again.operators > 0
    assert loss == pytest.approx(expected, rel=1e-5)

"""Plans of later graphs, and saved ones, where states are divided in other ways than weights."""

import dataclasses
import functools
import math
import operator

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.errors import MemoryLimitError
from tofu.gluon.session import backend
from tofu.gluon.session.session import active, looking
from tofu.planner.search import plan_graph
from tofu.plans import SearchOptions
from tofu.plans import file as plan_file

from . import fakes
from .models import assert_same, data, started, weights
from .zero_runs import (
    OPTIMIZERS,
    dense,
    dividing,
    state_bytes,
    steps,
    steps_on,
)

# pytest.warns lets all other warnings pass, from anywhere.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_later_graphs_cut_states_alike():
    log = fakes.Log()
    with dividing("stage 2", 2), fakes.using(fakes.logged(fakes.backend("stage 2"), log)):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer, count=1)
        steps(net, trainer, count=1, batch=8)
        net(data())  # a prediction has no states
    first, second, third = log.pins
    assert not first
    assert second["net_dense0_weight"] == (-1,)
    assert second["net_dense0_weight:mean"] == second["net_dense0_weight:var"] == (0,)
    assert not any(":" in name for name in third)


def first_problem(batch=12):
    """The training graph of a run with Adam."""
    found = []

    def stop(problem):
        found.append(dataclasses.replace(problem, name="net"))
        raise KeyboardInterrupt

    with dividing("zero-2", 2), looking(problem=stop):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        with pytest.raises(KeyboardInterrupt):
            steps(net, trainer, batch=batch)
    return found[0]


def test_saved_plans(tmp_path):
    """A smaller batch has no saved plan, and its search would cut states like their weights."""

    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        return [steps(net, trainer), steps(net, trainer, batch=8)], weights(net), trainer

    expected = run()
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem(), SearchOptions("zero-2")))
    tofu.gluon.enable(plan=path, device="cpu", log="quiet", strict=True)
    found = run()
    assert_same(found[:2], expected[:2])
    sizes = [math.prod(array.shape) for array in found[1].values()]
    assert state_bytes(found[2]) == [2 * 4 * sum(sizes) // 2] * 2
    tofu.gluon.disable()


def test_a_later_saved_plan_may_cut_states_otherwise(tmp_path):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        return [steps(net, trainer, batch=batch) for batch in (12, 8, 12)], weights(net)

    expected = run()
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem(), SearchOptions("zero-2")))
    other = (("net_dense0_weight:mean", (1,)), ("net_dense0_weight:var", (1,)))
    plan_file.save(path, plan_graph(first_problem(8), SearchOptions("zero-2", pins=other)))
    tofu.gluon.enable(plan=path, device="cpu", log="quiet", strict=True)
    found = run()
    missing = active().state.plan_missing
    tofu.gluon.disable()
    assert not missing
    assert_same(found, expected)


class WithSum(gluon.HybridBlock):
    """A product with the sum of some weights, each named by a letter."""

    def __init__(self, of, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            for name in of:
                setattr(self, name, self.params.get(name, shape=(8, 8)))

    def hybrid_forward(self, F, x, **weights):
        return F.dot(x, functools.reduce(operator.add, weights.values()))


def pinning(name, cuts):
    """tofu's own backend; graphs that have this tensor, and no other state, cut it so."""
    own = backend.own()

    def search(problem, *args, **options):
        states = [tensor for tensor in problem.graph.tensor_names if ":" in tensor]
        if states == [name]:
            problem = dataclasses.replace(problem, fixed={**problem.fixed, name: cuts})
        return own.search(problem, *args, **options)

    return dataclasses.replace(own, search=search)


def test_states_that_earlier_graphs_have_cut_in_contradictory_ways():
    """Two weights that are added up have the same gradient, so one plan cuts their states alike."""

    def run():
        net = started(WithSum("ab", prefix="net_"))
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        losses = []
        for of in ["a", "b", "ab", "ab", "a"]:
            block = WithSum(of, prefix="net_", params=net.collect_params())
            block.hybridize()
            with autograd.record():
                loss = (block(data(4)[:, :8]) ** 2).mean()
            loss.backward()
            trainer.step(1, ignore_stale_grad=True)
            losses.append(loss.asnumpy())
        return losses, weights(net), net

    expected = run()
    with fakes.using(pinning("net_b:mom", (1,))):
        tofu.gluon.enable(workers=2, device="cpu", log="quiet", search="zero-2", strict=True)
        found = run()
        states = found[2].a._tofu, found[2].b._tofu
        tofu.gluon.disable()
    assert [state.update.cuts for state in states] == [(0,), (1,)]
    assert_same(found[:2], expected[:2])


def test_a_second_graph_that_does_not_fit_says_so():
    """Its search without whole tensors would cut states like their weights."""
    tofu.gluon.enable(workers=4, device="cpu", log="quiet", memory="3MiB")
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(128, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(8))
    started(net)
    steps_on(net, mx.nd.ones((1024, 64)))
    state = net[0].weight._tofu
    assert state.update_layout.boxes != state.layout.boxes
    with pytest.raises(MemoryLimitError, match=r"no plan over 4 workers was found that fits"):
        steps_on(net, mx.nd.ones((16384, 64)))
    tofu.gluon.disable()

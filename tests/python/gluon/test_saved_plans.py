"""Saved plans and pins in one process: tofu.enable(plan=..., pins=..., search=...)."""

import dataclasses
import types
from pathlib import Path

import pytest
from mxnet import autograd, gluon

import tofu.gluon
from tofu.config import Config
from tofu.errors import ConfigError
from tofu.gluon.blocks import saved_plans
from tofu.gluon.session.session import looking
from tofu.mx.devices import number_of_workers
from tofu.planner.search import plan_graph
from tofu.plans import SearchOptions
from tofu.plans import file as plan_file

from .models import assert_same, data, make_net, train

PINNED = "net_dense0_weight"


def test_plans_for_several_numbers_of_workers_do_not_decide_it():
    def workers(*counts):
        plans = {(f"graph{count}", count): {} for count in counts}
        found = plan_file.PlanFile(Path("a.plan"), plans)
        return number_of_workers(Config(device="cpu"), found.workers)

    assert workers(3) == 3
    assert workers(3, 4) == 2, "as without plans"


@pytest.fixture
def off():
    """Turn tofu off before and after."""
    tofu.gluon.disable()
    yield
    tofu.gluon.disable()


def cuts(net, name=PINNED):
    return net.collect_params()[name]._tofu.cuts


def first_problem():
    """The first graph of a training run."""
    found = []

    def stop(problem):
        found.append(dataclasses.replace(problem, name="net"))
        raise KeyboardInterrupt

    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    with looking(problem=stop), pytest.raises(KeyboardInterrupt):
        train()
    tofu.gluon.disable()
    return found[0]


@pytest.mark.parametrize("cut", [0, 1])
def test_training_with_a_saved_plan_or_with_pins(off, tmp_path, cut):
    expected = train()
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem(), SearchOptions(pins=((PINNED, (cut,)),))))
    for wanted in ({"plan": path}, {"pins": {PINNED: cut}, "workers": 2, "search": "recursion"}):
        tofu.gluon.enable(device="cpu", log="quiet", **wanted)
        net = make_net()
        assert_same(train(net=net)[:2], expected[:2])
        assert cuts(net) == (cut,)
        tofu.gluon.disable()


def test_training_with_replication(off, monkeypatch):
    expected = train()
    for wanted, variable in (({"allow_replication": True}, "0"), ({}, "1")):
        monkeypatch.setenv("TOFU_REPLICATION", variable)
        tofu.gluon.enable(workers=2, device="cpu", log="quiet", **wanted)
        assert tofu.gluon.session.session.active().wish.options.allow_replication
        assert_same(train()[:2], expected[:2])
        tofu.gluon.disable()


def test_a_plan_of_another_net_is_refused(off, tmp_path):
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem()))
    tofu.gluon.enable(plan=path, device="cpu", log="quiet")
    with pytest.raises(
        ConfigError, match=r"no plan for the training graph of other; .*unset TOFU_P"
    ):
        train(net=make_net(prefix="other_"))


def test_a_pin_that_no_tensor_has_is_an_error(off):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", pins={"net_dens0_weight": 0})
    with pytest.raises(ConfigError, match=r"TOFU_PINS: pin net_dens0_weight: .*; did you mean"):
        train(steps=1)


@pytest.mark.parametrize("cut", [0, 1])
def test_a_pin_may_be_of_a_later_block(off, cut):
    late = "late_dense0_weight"
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", pins={late: cut})
    nets = [make_net(), make_net(prefix="late_")]
    trainers = [gluon.Trainer(net.collect_params(), "sgd") for net in nets]
    for _ in range(2):
        for net, trainer in zip(nets, trainers):
            with autograd.record():
                loss = net(data()).sum()
            loss.backward()
            trainer.step(1)
    assert cuts(nets[1], late) == (cut,)


@pytest.mark.parametrize("pin", [0, 1, -1])
def test_a_pin_that_the_saved_plan_contradicts(off, tmp_path, pin):
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem(), SearchOptions(pins=((PINNED, (0,)),))))
    tofu.gluon.enable(plan=path, device="cpu", log="quiet", pins={PINNED: pin})
    if pin == 0:
        train(steps=1)
        return
    with pytest.raises(ConfigError, match=rf"TOFU_PINS: pin {PINNED}={pin}: .* along 0 "):
        train(steps=1)


@pytest.mark.parametrize(
    ("pin", "text"), [((5,), "dimension 5|rank|range"), ((0, 0, 0), "step"), ((2,), "dimension 2")]
)
def test_a_pin_that_cannot_hold_ends_the_run(off, pin, text):
    """Training never runs serially; the error names the pin, also the second time."""
    tofu.gluon.enable(workers=3, device="cpu", log="quiet", pins={PINNED: pin})
    net = make_net()
    for _ in range(2):
        with pytest.raises(ConfigError, match=rf'TOFU_PINS: pin of "{PINNED}".*({text})'):
            train(net=net)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"search": "best"}, "tofu.enable: search=best: no such search mode"),
        ({"plan": "absent.plan"}, "absent.plan: cannot be read"),
    ],
)
def test_settings_of_no_use_are_refused(off, wanted, message):
    with pytest.raises(ConfigError, match=message):
        tofu.gluon.enable(workers=2, device="cpu", **wanted)
    assert tofu.gluon.session.session.active() is None


@pytest.mark.parametrize(
    ("pins", "parts", "expected"),
    [
        ({"w": (0, 1)}, (2, 3), True),
        ({"w": (0, 1)}, (3, 2), False),  # the same dimensions, but other numbers of parts
        ({"w": (1, 0)}, (2, 3), False),
        ({"other": (1, 0)}, (2, 3), True),
        ({}, (), True),
    ],
)
def test_a_saved_plan_has_to_keep_the_tiles(pins, parts, expected):
    table = types.SimpleNamespace(graph=types.SimpleNamespace(tensor_names=["w"]))
    plan = types.SimpleNamespace(
        parts=[2, 3], shares=[], tile_multiple=1, cuts={"w": [0, 1]}.__getitem__, table=table
    )
    assert saved_plans._keeps(plan, pins, parts) is expected

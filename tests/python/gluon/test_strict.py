"""TOFU_STRICT: each way in which a block would run serially is an error, at every call."""

import os

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.errors import ConfigError, PlanError
from tofu.plans import file as plan_file

from ..support import forked
from . import fakes
from .models import assert_same, data, make_net, plainly, started, train
from .test_blocks import Plain, Refused

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:register_op_hook is experimental"),
]


@pytest.fixture
def strict(fake, monkeypatch):
    """Turn tofu on as with TOFU_STRICT=1."""
    monkeypatch.setenv("TOFU_STRICT", "1")
    monkeypatch.setenv("TOFU_HYBRIDIZE", "0")  # else blocks that were never hybridized are traced
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    yield
    tofu.gluon.disable()


def refused_operator():
    net = started(Refused(prefix="net_"))
    return lambda: net(data())


def unhybridized():
    net = make_net(hybrid=False)
    return lambda: net(data())


def plain_block():
    net = Plain(nn.Dense(4, in_units=10), prefix="plain_")
    net.initialize()
    return lambda: net(data())


def sparse_input():
    net = started(nn.Dense(4, in_units=10, prefix="net_"))
    return lambda: net(data().tostype("csr"))


def sparse_gradient():
    net = started(nn.Embedding(8, 4, sparse_grad=True, prefix="net_"))
    return lambda: net(mx.nd.array([1, 2]))


def watched():
    net = make_net()
    net(data())
    net.register_op_hook(lambda name, opr, array: None)
    return lambda: net(data())


def other_backend():
    net = make_net()
    net.hybridize(backend="MKLDNN")
    return lambda: net(data())


def several_contexts():
    net = nn.Dense(4, in_units=10, prefix="net_")
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    net.hybridize()
    return lambda: net(data())


def frozen():
    net = make_net()
    net.collect_params().setattr("grad_req", "null")
    return lambda: net(data())


WAYS = {
    refused_operator: "operator sign",
    unhybridized: "call its hybridize",
    plain_block: "a HybridBlock",
    sparse_input: "an input is sparse",
    sparse_gradient: "sparse_grad",
    watched: "register_op_hook",
    other_backend: "backend 'MKLDNN'",
    several_contexts: "expected one context",
    frozen: "all its parameters are frozen",
}


@pytest.mark.parametrize(
    ("way", "text"), WAYS.items(), ids=lambda way: getattr(way, "__name__", "")
)
def test_no_way_leads_to_a_serial_run(strict, way, text):
    call = way()
    for _ in range(2):  # not only the first call
        with autograd.record(), pytest.raises(ConfigError, match=f"TOFU_STRICT requires.*{text}"):
            call()


def test_what_cannot_be_bound_is_an_error(strict):
    def program(*_args):
        raise PlanError("no memory for a tile")

    net = make_net()
    with fakes.using(fakes.backend(), program=program):
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"TOFU_STRICT requires.*no memory for a tile"):
                net(data())


def test_a_block_without_parameters_needs_no_workers(strict):
    """A loss, or a pooling layer, runs where its inputs are."""
    loss_of = gluon.loss.L2Loss()
    loss_of.hybridize()
    assert loss_of(data(), data()).shape == (12,)


def test_frozen_blocks_only_matter_if_strict(fake):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    assert frozen()().shape == (12, 6)
    tofu.gluon.disable()


def test_a_net_trains(strict):
    assert_same(train()[:2], plainly(train)[:2])


def test_an_argument_does_the_same(fake):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", strict=True)
    call = refused_operator()
    for _ in range(2):
        with pytest.raises(ConfigError, match="operator sign"):
            call()
    tofu.gluon.disable()


def test_a_whole_training_run_ends(strict):
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"net is not hybridized.*call its hybridize\(\)"):
            train(net=make_net(hybrid=False))


@pytest.mark.parametrize(("way", "text"), [(refused_operator, "sign"), (unhybridized, "hybrid")])
def test_a_saved_plan_is_never_left_unused(fake, monkeypatch, way, text):
    monkeypatch.setenv("TOFU_HYBRIDIZE", "0")
    plans = plan_file.PlanFile("net.plan", {("hash", 2): {}})
    monkeypatch.setattr(plan_file, "read", lambda path: plans)
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", plan="net.plan")
    call = way()
    for _ in range(2):
        with autograd.record(), pytest.raises(ConfigError, match=f"plan is not used.*{text}"):
            call()
    tofu.gluon.disable()


NEVER_RECORDS = """
import mxnet as mx
from mxnet.gluon import nn
net = nn.Dense(4, in_units=4)
net.initialize()
net(mx.nd.ones((4, 4))).asnumpy()
print("end")
"""
NOTHING = "nothing was partitioned: tofu partitions Gluon blocks"


@pytest.mark.parametrize(
    ("script", "strict", "status", "told"),
    [
        (NEVER_RECORDS, "1", 2, f"tofu: TOFU_STRICT=1: {NOTHING}"),
        (NEVER_RECORDS, "0", 0, f"tofu: {NOTHING}"),
        (f"{NEVER_RECORDS}import sys; sys.exit(3)", "1", 3, ""),
        (f"{NEVER_RECORDS}raise ValueError('mine')", "1", 1, "Traceback"),
    ],
)
def test_a_script_that_partitions_nothing(script, strict, status, told):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TOFU_")}
    settings = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "2", "TOFU_STRICT": strict}
    done = forked.run(["-c", script], env={**kept, **settings})
    assert (done.returncode, done.stdout) == (status, "end\n")
    assert told in done.stderr and bool(done.stderr) == bool(told)

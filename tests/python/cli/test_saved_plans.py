"""A run with TOFU_PLAN of a plan of tofu plan --save has the same weights, or one clear error."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("mxnet")

from ..support import forked

TRAIN = """
import sys
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

batch, units, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
mx.random.seed(3)
net = gluon.nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(gluon.nn.Dense(units, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(4))
net.initialize(mx.init.Xavier())
net.hybridize()
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
loss_of.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
data, label = mx.nd.random.normal(shape=(batch, 12)), mx.nd.arange(batch) % 4
for rows in (slice(0, batch), slice(0, batch), slice(0, batch // 2)):
    with autograd.record():
        loss = loss_of(net(data[rows]), label[rows])
    loss.backward()
    trainer.step(batch)
net(data)
np.savez(out, **{name: p.data().asnumpy() for name, p in net.collect_params().items()})
"""
VARIABLES = ("MXNET_GRAPH_PASS", "TOFU_WORKERS", "TOFU_DEVICE", "TOFU_PLAN", "TOFU_PINS")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved")
    (path / "train.py").write_text(TRAIN)
    return path


def run(folder, *command, **variables):
    environ = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return forked.run(command, cwd=folder, env={**environ, "TOFU_DEVICE": "cpu", **variables})


@pytest.fixture(scope="module")
def saved(folder):
    """A plan of the script with cuts that the search would not choose."""
    ran = run(
        folder, "-m", "tofu", "plan", "--workers=4", "--save=train.plan", "--format=json",
        "--pin=net_dense0_weight=1", "train.py", 8, 16, "none",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    plan = json.loads(ran.stdout)
    assert plan["model"] == "train.py"
    return {tensor["node"]: tensor["cuts"] for tensor in plan["tensors"]}


@pytest.fixture(scope="module")
def serial(folder):
    ran = run(folder, "train.py", 8, 16, "serial.npz")
    assert ran.returncode == 0, ran.stderr
    return np.load(folder / "serial.npz")


def test_a_run_with_a_saved_plan_ends_with_the_weights_of_a_serial_one(folder, saved, serial):
    variables = {"MXNET_GRAPH_PASS": "tofu", "TOFU_PLAN": "train.plan", "TOFU_LOG": "dump:dump"}
    ran = run(folder, "train.py", 8, 16, "saved.npz", **variables)
    assert ran.returncode == 0, ran.stderr
    weights = np.load(folder / "saved.npz")
    assert set(weights) == set(serial)
    for name in serial:
        np.testing.assert_allclose(weights[name], serial[name], rtol=1e-5, atol=1e-6)
    # The plan sets the number of workers. One message covers smaller batches and predictions.
    assert "over 4 workers" in ran.stderr
    assert ran.stderr.count("train.plan has no plan for a graph of net") == 1
    # The plan was used: no search came before the first partitioned graph.
    assert sorted(path.name for path in (folder / "dump").glob("*.txt"))[0].endswith(
        "partition.txt"
    )


REFUSED = {
    "layers": ((8, 24), {"TOFU_PLAN": "train.plan"}, "no plan for the training graph of net"),
    "workers": (
        (8, 16),
        {"TOFU_PLAN": "train.plan", "TOFU_WORKERS": "2"},
        "a plan for 4 workers, but this run has 2",
    ),
    "no file": ((8, 16), {"TOFU_PLAN": "no.plan"}, "no.plan: cannot be read (No such file"),
    "search": (
        (8, 16),
        {"TOFU_PLAN": "train.plan", "TOFU_SEARCH": "flat"},
        "TOFU_SEARCH=flat: TOFU_PLAN=train.plan is used instead of a search; unset one",
    ),
    "pin": (
        (8, 16),
        {"TOFU_PINS": "net_dense0_weight=7"},
        'TOFU_PINS: pin of "net_dense0_weight"',
    ),
    "too few elements": (
        (8, 1),
        {"TOFU_PINS": "net_dense0_weight=0"},
        'TOFU_PINS: pin of "net_dense0_weight"',
    ),
    "spelling": ((8, 16), {"TOFU_WORKER": "2"}, "TOFU_WORKER: tofu has no such variable; did you"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_hold_end_the_run(folder, saved, case):
    args, variables, expected = REFUSED[case]
    ran = run(folder, "train.py", *args, "refused.npz", MXNET_GRAPH_PASS="tofu", **variables)
    (line,) = ran.stderr.splitlines()
    assert line.startswith("tofu: ") and expected in line
    assert ran.returncode == 2
    assert not (folder / "refused.npz").exists()


def test_tofu_run_ends_in_the_same_way(folder, saved):
    for options, expected in (
        (("--pin", "net_dense0_weight=7"), 'tofu: TOFU_PINS: pin of "net_dense0_weight"'),
        (("--plan", "train.plan", "--workers", "2"), "tofu: train.plan: a plan for 4 workers"),
    ):
        ran = run(folder, "-m", "tofu", "run", *options, "train.py", 8, 16, "refused.npz")
        assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)
        assert ran.stderr.startswith(expected)
        assert not (folder / "refused.npz").exists()


def test_a_search_beside_the_plan_of_the_environment(folder, saved):
    ran = run(
        folder, "-m", "tofu", "run", "--search=flat", "train.py", 8, 16, "x", TOFU_PLAN="train.plan"
    )
    assert ran.returncode == 2
    assert "TOFU_PLAN=train.plan is used instead of a search" in ran.stderr

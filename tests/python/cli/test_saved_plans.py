"""From tofu plan --save to a run with TOFU_PLAN: the same weights, or one clear error."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("mxnet")

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
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**environ, "TOFU_DEVICE": "cpu", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


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


@pytest.mark.parametrize(
    ("args", "variables", "expected"),
    [
        pytest.param((8, 24), {}, "no plan for the training graph of net", id="layers"),
        pytest.param(
            (8, 16), {"TOFU_WORKERS": "2"}, "a plan for 4 workers, but this run has 2", id="workers"
        ),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(folder, saved, args, variables, expected):
    variables = {"MXNET_GRAPH_PASS": "tofu", "TOFU_PLAN": "train.plan", **variables}
    ran = run(folder, "train.py", *args, "refused.npz", **variables)
    assert ran.returncode == 1
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("tofu.errors.ConfigError: ")
    assert expected in last
    assert not (folder / "refused.npz").exists()

"""tofu check of whole scripts: correct ones, wrong ones, and ones that it cannot run."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("mxnet")

from .test_errors import TRAIN, one_line, run_python

pytestmark = pytest.mark.slow

# This script is wrong only if partitioned, and by as much in both precisions.
WRONG = TRAIN.replace(".sum()", ".sum() * (1 + 1e-4 * parted)").replace(
    "import mxnet as mx", "import os\nimport mxnet as mx\nparted = 'MXNET_GRAPH_PASS' in os.environ"
)


def check(folder, text, *options):
    (folder / "train.py").write_text(text)
    return run_python("-m", "tofu", "check", "--workers=2", *options, "train.py", cwd=folder)


def test_a_script_that_trains_alike(tmp_path):
    ran = check(tmp_path, TRAIN)
    assert ran.returncode == 0, ran.stderr
    kinds = [line.split()[1] for line in ran.stdout.splitlines()[3:6]]
    assert kinds == ["output", "gradient", "weight"]
    assert ran.stdout.splitlines()[-1] == (
        "rounding only: 9 tensors differ in float64 by no more than rounding"
    )


def test_a_script_that_trains_otherwise(tmp_path):
    ran = check(tmp_path, WRONG, "--format=json")
    assert ran.returncode == 1, ran.stderr
    document = json.loads(ran.stdout)
    assert document["fault"] is True
    assert document["verdict"].startswith("FAULT: at step 1 the gradient net_dense")
    faults = {each["kind"] for each in document["tensors"] if each["fault"]}
    assert "gradient" in faults and "output" not in faults


def test_scripts_that_cannot_be_checked(tmp_path):
    line = one_line(check(tmp_path, "raise ValueError('no data')"))
    assert line.endswith("train.py: it does not run whole, in float32: ValueError: no data")
    line = one_line(check(tmp_path, "print('done')"))
    assert "train.py: it ended without a training step; expected one of gluon.Trainer" in line


# MXNet adds no arrays of two types, so this runs in float32 alone.
SINGLE = """
import os
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.Dense(4, in_units=3, prefix="net_")
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
with autograd.record():
    loss = (net(mx.nd.ones((4, 3))) + mx.nd.ones((4, 4), dtype="float32")).sum() * FACTOR
loss.backward()
trainer.step(4)
"""


def test_a_script_that_runs_in_float32_alone(tmp_path):
    ran = check(tmp_path, SINGLE.replace("FACTOR", "1"))
    assert ran.returncode == 0, ran.stderr
    *table, single, verdict = ran.stdout.splitlines()
    assert table[-2].split()[:2] == ["1", "weight"] and table[-2].split()[-1] != "fault"
    assert single.startswith("compared in float32 alone: it does not run whole, in float64: MXNetE")
    assert verdict.startswith("rounding only: 5 tensors differ in float32")


def test_a_fault_of_a_script_that_runs_in_float32_alone(tmp_path):
    wrong = "(1 + 0.1 * ('MXNET_GRAPH_PASS' in os.environ))"
    ran = check(tmp_path, SINGLE.replace("FACTOR", wrong))
    assert ran.returncode == 1, ran.stderr
    assert "\nFAULT: at step 1 the gradient net_" in ran.stdout and "in float32)" in ran.stdout


# Sums that cancel up to a rounding of float32: their signs depend on the order of the terms.
EDGE = """
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

class Edge(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.first = gluon.nn.Dense(4, in_units=256, use_bias=False, weight_initializer="ones")
            self.last = gluon.nn.Dense(8, in_units=4)
    def hybrid_forward(self, F, x):
        return self.last(F.sign(self.first(x)))

net = Edge()
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
values = np.random.RandomState(1).normal(size=(16, 256)).astype("float32")
values[:, -1] -= values.sum(axis=1, dtype="float64").astype("float32")
for step in range(1):
    with autograd.record():
        loss = (net(mx.nd.array(values)) ** 2).mean()
    loss.backward()
    trainer.step(16)
"""


def test_values_at_an_edge_are_explained(tmp_path):
    pins = {"TOFU_PINS": "net_dense0_weight=1"}
    (tmp_path / "train.py").write_text(EDGE)
    line = ["-m", "tofu", "check", "--workers=4", "--steps=1", "train.py"]
    ran = run_python(*line, cwd=tmp_path, **pins)
    assert ran.returncode == 0, ran.stderr
    verdict, told = ran.stdout.splitlines()[-2:]
    assert verdict.startswith("rounding only: ")
    assert told.startswith(
        "at step 1 the output net[0] call 1 is the first that differs by more than usual in float32"
    )
    assert "it differs as much" in told and "one rounding (1e-7) apart" in told
    assert "; operator net_sign0 (sign) is the first whose result these change by more" in told


# The same for one unit of 256: its outputs are near zero, but their gradients are 0 or not.
RELU = (
    EDGE.replace("F.sign(self.first(x))", "F.relu(self.first(x))")
    .replace("Dense(4, ", "Dense(256, ")
    .replace(', weight_initializer="ones"', "")
    .replace("in_units=4", "in_units=256")
    .replace(
        'values[:, -1] -= values.sum(axis=1, dtype="float64").astype("float32")',
        """weight = net.first.weight.data()[0].asnumpy().astype("float64")
values[:, -1] -= (values @ weight / weight[-1]).astype("float32")""",
    )
)


def test_the_operator_at_whose_edge_values_are_is_named(tmp_path):
    (tmp_path / "train.py").write_text(RELU)
    line = ["-m", "tofu", "check", "--workers=4", "--steps=1", "train.py"]
    ran = run_python(*line, cwd=tmp_path, TOFU_PINS="net_dense0_weight=1")
    assert ran.returncode == 0, ran.stderr
    told = ran.stdout.splitlines()[-1]
    assert told.startswith("at step 1 the gradient net_dense0_weight is the first that differs")
    assert "(_backward_relu) is the first whose result these change by more than rounding" in told


# The operator's output at c depends on the whole row, so only the batch may be split.
CUSTOM = """
import mxnet as mx
from mxnet import autograd, gluon

class Centre(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        mean = in_data[0].mean(axis=1, keepdims=True)
        self.assign(out_data[0], req[0], in_data[0] - mean)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        mean = out_grad[0].mean(axis=1, keepdims=True)
        self.assign(in_grad[0], req[0], out_grad[0] - mean)

@mx.operator.register("centre")
class Property(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Centre()

class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.first, self.last = gluon.nn.Dense(16), gluon.nn.Dense(8)

    def hybrid_forward(self, F, x):
        return self.last(F.Custom(self.first(x), op_type="centre"))

mx.random.seed(1)
net = Net()
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
x = mx.nd.random.normal(shape=(BATCH, 12))
for step in range(4):
    with autograd.record():
        loss = net(x).square().sum()
    loss.backward()
    trainer.step(4)
"""
DESCRIBED = """
import tofu
from tofu.lang import apply

@tofu.op(name="Custom:centre")
def centre(x):
    return lambda b, c: FORWARD

@tofu.op(name="_backward_Custom:centre")
def centre_gradient(g, x, y):
    return lambda b, c: BACKWARD
"""
RIGHT = ("apply('f', x[b, :])[c]", "apply('g', g[b, :], x[b, :], y[b, :])[c]")
FALSE = ("apply('f', x[b, c])", "apply('g', g[b, c], x[b, c], y[b, c])")


def check_custom(folder, forward, backward, *options, batch=4):
    described = DESCRIBED.replace("FORWARD", forward).replace("BACKWARD", backward)
    (folder / "described.py").write_text(described)
    script = CUSTOM.replace("BATCH", str(batch))
    return check(folder, script, "--describe=described.py", *options)


def test_a_right_description(tmp_path):
    ran = check_custom(tmp_path, *RIGHT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # The block runs serially in the first step, so there is nothing to compare.
    assert "\n   2  output" in ran.stdout and "\n   3  output" not in ran.stdout


def test_a_false_description_is_named(tmp_path):
    ran = check_custom(tmp_path, *FALSE, "--format=json")
    assert ran.returncode == 1, ran.stderr
    document = json.loads(ran.stdout)
    assert document["fault"] is True
    assert document["operators"][0]["op"] == "Custom:centre"
    assert document["operators"][0]["splits"] == ["c"]
    lines = document["verdict"].splitlines()
    assert "operator net_custom0 (Custom:centre), split along c, gives something else" in lines[1]
    assert "described.py:5 describes it, and tofu verify Custom:centre checks that" in lines[1]
    assert {each["op"] for each in document["operators"]} <= {
        "Custom:centre", "_backward_Custom:centre",
    }  # fmt: skip


def test_a_false_description_that_the_plan_does_not_use(tmp_path):
    """Only the gradient's description is false, and the plan splits the batch, which is correct."""
    ran = check_custom(tmp_path, RIGHT[0], FALSE[1], batch=512)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    *table, verdict, line = ran.stdout.splitlines()
    assert verdict.startswith("rounding only: ")
    assert not any(row.endswith("fault") for row in table)
    assert "(_backward_Custom:centre), split along c, gives something else" in line
    assert "; this plan does not split it so, but another may; " in line


def test_a_script_that_runs_serially(tmp_path):
    serial = TRAIN.replace("net.initialize()", "net.initialize()\nnet.hybridize()").replace(
        "net(mx.nd.ones((4, 12)))", "net(mx.nd.ones((4, 12)).tostype('csr'))"
    )
    ran = check(tmp_path, serial)
    assert ran.returncode == 2, ran.stdout
    assert "no block runs partitioned in float32; TOFU_STRICT=1 tofu run train.py tells why" in (
        ran.stderr
    )


def test_a_net_that_draws_random_numbers(tmp_path):
    """No message of the run is taken for a tensor."""
    noise = "lambda F, x: x + F.random.uniform_like(x)"
    added = f"net.add(gluon.nn.HybridLambda({noise}))\nnet.initialize()\nnet.hybridize()"
    ran = check(tmp_path, TRAIN.replace("net.initialize()", added), "--format=json")
    assert ran.returncode in (0, 1), ran.stderr
    document = json.loads(ran.stdout)
    assert {each["kind"] for each in document["tensors"]} == {"output", "gradient", "weight"}

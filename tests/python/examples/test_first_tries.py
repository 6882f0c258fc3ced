"""First tries: the steps of a user's first hour, each exactly as its page says.

Others are in test_walkthrough.py (a laptop, an operator of one's own, two machines), in
tests/gpu_standin/test_first_try.py (four GPUs) and in tests/python/torch/test_first_tries.py (a
module, Hugging Face's Trainer) and test_new_search_mode.py. docs/results/first_tries.md says what
each takes.
"""

from __future__ import annotations

import os
import textwrap

import pytest

from ..support import forked

pytest.importorskip("mxnet")
pytestmark = pytest.mark.slow

NET = """
import mxnet as mx
from mxnet import autograd, gluon, {nd}
{prepare}
mx.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(32, activation="relu"), gluon.nn.Dense(8))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {{"learning_rate": 0.1}})
data, label = {data}
for step in range(3):
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
    loss.backward()
    trainer.step(16)
    print(f"{{float(loss.mean().{number}()):.6f}}")
"""
CLASSIC = NET.format(
    nd="nd",
    prepare="",
    data="nd.random.normal(shape=(16, 24)), nd.arange(16) % 8",
    number="asscalar",
)
MODERN = NET.format(
    nd="np as mnp", prepare="mx.npx.set_np()", data="mnp.ones((16, 24)), mnp.arange(16) % 8",
    number="item",
)  # fmt: skip


def python(folder, text, *options, **variables):
    """Run a script; return its status, its output, and tofu's messages."""
    (folder / "try.py").write_text(textwrap.dedent(text))
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOFU_") and name != "MXNET_GRAPH_PASS"
    }
    ran = forked.run([*options, "try.py"], cwd=folder, env={**environ, **variables})
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize("text", [CLASSIC, MODERN], ids=["nd", "np"])
def test_a_script_under_the_switch(tmp_path, text):
    status, serial, _ = python(tmp_path, text)
    assert status == 0 and len(serial.split()) == 3
    status, found, told = python(tmp_path, text, MXNET_GRAPH_PASS="tofu", TOFU_WORKERS="4")
    assert (status, found) == (0, serial)
    assert "over 4 workers cpu(0-3): " in told and "serially)" in told


def test_a_notebook(tmp_path):
    """Cells run one after the other, after tofu.enable(workers=4), as README.md says."""
    status, serial, _ = python(tmp_path, CLASSIC)
    cells = ["import tofu; tofu.enable(workers=4)", CLASSIC, "tofu.disable()", CLASSIC]
    status, found, told = python(tmp_path, "\n".join(cells))
    assert (status, found) == (0, 2 * serial)
    assert told.count("over 4 workers") == 1


def test_a_plan_in_a_notebook_is_a_page(tmp_path):
    text = """
    import tofu
    plan = tofu.plan("mlp", workers=4)
    print(plan._repr_html_()[:7], plan.bytes > 0, sorted(plan.memory)[0])
    """
    status, found, _ = python(tmp_path, text)
    assert (status, found) == (0, "<iframe True activations\n")


MODULE = """
import mxnet as mx
data = mx.io.NDArrayIter(mx.nd.ones((16, 24)), mx.nd.zeros(16), 8, label_name="softmax_label")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8), name="softmax")
module = mx.mod.Module(net)
module.fit(data, num_epoch=1)
print("trained")
"""


def test_the_module_api_trains_partitioned(tmp_path):
    variables = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "2", "TOFU_STRICT": "1"}
    status, found, told = python(tmp_path, MODULE, **variables)
    assert (status, found) == (0, "trained\n")
    assert "module softmax (6 operators, 200 parameters) over 2 workers" in told


def test_a_researcher_compares_search_modes(tmp_path):
    """Plans with the modes of docs/search.md, by name, from Python."""
    text = """
    import tofu
    for mode in ("tofu", "spartan", "data-parallel"):
        print(mode, tofu.plan("mlp", workers=4, search=mode).bytes)
    """
    status, found, told = python(tmp_path, text)
    assert status == 0, told
    sizes = {mode: int(count) for mode, count in map(str.split, found.splitlines())}
    assert sizes["tofu"] <= sizes["spartan"] <= sizes["data-parallel"]

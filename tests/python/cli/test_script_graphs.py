"""tofu plan of scripts that train several graphs plans all of them, as a run would."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("mxnet")

from .test_errors import TRAIN, one_line, run_python

pytestmark = pytest.mark.slow

# The order of a GAN's updates: both nets, then one through the other.
GAN = """
import sys
import mxnet as mx
from mxnet import autograd, gluon, nd

def net(name, *sizes):
    made = gluon.nn.HybridSequential(prefix=name)
    with made.name_scope():
        for size in sizes:
            made.add(gluon.nn.Dense(size, activation="tanh"))
    made.initialize()
    if "--hybridize" in sys.argv:
        made.hybridize()
    return made

maker, judge = net("maker_", 12, 24), net("judge_", 12, 6)
maker_trainer, judge_trainer = (
    gluon.Trainer(each.collect_params(), "adam") for each in (maker, judge)
)
real = nd.random.uniform(shape=(12, 24))
for step in range(3):
    noise = nd.random.uniform(shape=(12, 6))
    with autograd.record():
        made = maker(noise)
        loss = (judge(real).square() + judge(made.detach())).mean()
    loss.backward()
    judge_trainer.step(12)
    with autograd.record():
        loss = judge(made).square().mean()
    loss.backward()
    print("stepping", step, loss.asscalar(), file=sys.stderr)
    maker_trainer.step(12)
    print("stepped", step, file=sys.stderr)
"""
# The generator is called before the discriminator.
NAMES = ["gan.py, maker", "gan.py, judge", "gan.py, judge with the gradient of "]


def plan(folder, text, *options, args=(), name="gan.py"):
    (folder / name).write_text(text)
    return run_python(
        "-m", "tofu", "plan", "--device=cpu", *options, name, *args, cwd=folder
    )  # fmt: skip


@pytest.mark.parametrize("args", [(), ("--hybridize",)], ids=["plain", "hybridized"])
def test_every_graph_of_a_step_is_planned(tmp_path, args):
    ran = plan(tmp_path, GAN, "--workers=6", args=args)
    assert ran.returncode == 0, ran.stderr
    heads = [line for line in ran.stdout.splitlines() if line.startswith("Graph ")]
    assert len(heads) == len(NAMES)
    for number, (head, name) in enumerate(zip(heads, NAMES), 1):
        assert head.startswith(f"Graph {number} of 3: {name}"), head
    # The script ends where its last Trainer would step, and computes nothing before.
    assert "stepping 0 0.0" in ran.stderr and "stepped" not in ran.stderr


def test_graphs_of_one_block_are_numbered(tmp_path):
    twice = TRAIN.replace(").sum()", ").sum() + net(mx.nd.ones((6, 12))).sum()")
    ran = plan(tmp_path, twice, "--workers=2", name="train.py")
    assert ran.returncode == 0, ran.stderr
    heads = [line for line in ran.stdout.splitlines() if line.startswith("Graph ")]
    assert heads == ["Graph 1 of 2: train.py, net", "Graph 2 of 2: train.py, net (2)"]


def test_a_run_uses_every_plan(tmp_path):
    """Later graphs follow the tiles that earlier ones gave to common parameters."""
    ran = plan(tmp_path, GAN, "--workers=6", "--save=gan.plan", args=["--hybridize"])
    assert ran.returncode == 0, ran.stderr
    ran = run_python(
        "-m", "tofu", "run", "--plan=gan.plan", "--log=debug", "gan.py", "--hybridize",
        cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stderr.splitlines() if "workers cpu(" in line]
    assert len(lines) == 3
    assert all(", plan gan.plan, " in line for line in lines), lines
    assert "no plan" not in ran.stderr


def test_options_for_some_of_the_graphs(tmp_path):
    ran = plan(tmp_path, GAN, "--workers=2", "--format=json", "--pin=maker_dense0_weight=1")
    documents = json.loads(ran.stdout)
    assert [document["model"][: len(name)] for document, name in zip(documents, NAMES)] == NAMES
    tensors = {t["node"]: t["cuts"] for t in documents[0]["tensors"]}
    assert tensors["maker_dense0_weight"] == [1]
    ran = plan(tmp_path, GAN, "--workers=2", "--explain=judge_dense0_weight")
    assert "judge_dense0_weight" in ran.stdout and "Graph 1 of 3" not in ran.stdout
    ran = plan(tmp_path, GAN, "--workers=2", "--format=html", "--graph=2")
    assert "<title>Plan of gan.py, judge" in ran.stdout


def test_options_that_fit_no_graph(tmp_path):
    listed = "1: gan.py, maker"
    ran = plan(tmp_path, GAN, "--workers=2", "--format=html")
    assert ran.returncode == 2 and ran.stdout == ""
    line = ran.stderr.splitlines()[-1]
    assert line.startswith("tofu: a page shows one plan, and there are 3 graphs: " + listed)
    assert line.endswith("; --graph N chooses one")
    line = plan(tmp_path, GAN, "--workers=2", "--graph=4").stderr.splitlines()[-1]
    assert line.startswith("tofu: --graph 4: gan.py has 3 graphs: " + listed)
    line = plan(tmp_path, GAN, "--workers=2", "--pin=maker_dens0_weight=1").stderr.splitlines()[-1]
    assert "pin maker_dens0_weight: the graph has no tensor of that name; did you mean" in line
    line = plan(tmp_path, GAN, "--workers=2", "--explain=nosuch").stderr.splitlines()[-1]
    assert line.startswith("tofu: --explain nosuch: gan.py, maker")
    assert "have no tensor or operator of that name" in line


def test_a_script_that_names_a_gpu_is_planned_without_one(tmp_path):
    on_gpu = GAN.replace("initialize()", "initialize(ctx=mx.gpu(0))").replace(
        "shape=(12, 6))", 'shape=(12, 6), ctx=mx.Context("gpu"))'
    )
    done = plan(tmp_path, on_gpu, "--format", "json")
    assert done.returncode == 0 and len(json.loads(done.stdout)) == 3, done.stderr


@pytest.mark.parametrize("command", ["plan", "estimate", "compare", "frontier"])
def test_a_script_that_ends_early_gives_its_status(tmp_path, command):
    """The status is the number of its arguments, with its own name."""
    (tmp_path / "train.py").write_text("import sys\nsys.exit(len(sys.argv))")
    ran = run_python(
        "-m", "tofu", command, "--workers=2", "train.py", "--width", "5", cwd=tmp_path
    )  # fmt: skip
    assert ran.returncode == 3
    assert ran.stderr == (
        "tofu: train.py ended (status 3) before its first partitioned training call: nothing to "
        "plan\n"
    )


def test_scripts_of_other_kinds(tmp_path):
    """A script that updates by hand, one that needs more than zeros, and one that fails."""
    by_hand = TRAIN.replace("trainer = ", "# ").replace("trainer.step(4)", "").replace(
        "with autograd", "for step in range(3):\n  print('step', step)\n  with autograd"
    ).replace("    loss = ", "      loss = ")  # fmt: skip
    ran = plan(tmp_path, by_hand, "--workers=2", name="train.py")
    assert ran.returncode == 0, ran.stderr
    assert "Graph" not in ran.stdout and ran.stdout.startswith("2 workers, ")
    assert "step 1" in ran.stderr and "step 2" not in ran.stderr
    checks = TRAIN.replace("loss.backward()", "assert loss.asscalar() != 0, 'zero'")
    ran = plan(tmp_path, checks, "--workers=2", name="train.py")
    assert ran.returncode == 0
    assert ran.stderr.splitlines()[-1] == (
        "tofu: train.py ended within its first training step, in which blocks give zeros "
        "(AssertionError: zero); there may be more graphs than those found"
    )
    ran = plan(tmp_path, TRAIN.replace("with autograd", "fail()\nwith autograd"), name="train.py")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == "NameError: name 'fail' is not defined"
    assert "tofu" not in ran.stderr


def test_no_graph_and_no_step(tmp_path):
    (tmp_path / "train.py").write_text("import mxnet\nprint('done')")
    ran = run_python("-m", "tofu", "plan", "--workers=2", "train.py", cwd=tmp_path)
    assert ran.returncode == 2 and "before its first partitioned training call" in ran.stderr
    assert "that is not hybridized is partitioned from its second step on" in ran.stderr
    line = one_line(run_python("-m", "tofu", "plan", "nosuch.py", cwd=tmp_path))
    assert "no such file" in line


def test_a_script_of_numpy_arrays(tmp_path):
    text = GAN.replace("from mxnet import autograd, gluon, nd", (
        "from mxnet import autograd, gluon, np as nd\nmx.npx.set_np()"
    )).replace("nd.random.uniform(shape=", "nd.random.uniform(size=").replace(
        "loss.asscalar()", "float(loss)"
    ).replace(".square()", "")  # fmt: skip
    ran = plan(tmp_path, text, "--workers=2", args=["--hybridize"])
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("Graph ") == 3, ran.stderr


# 1 GiB of weights and as much of gradients: shapes known at once, known with the input, and cast.
LARGE = """
import mxnet as mx
from mxnet import autograd, gluon, nd

net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(8192, in_units=8192), gluon.nn.Dense(8192))
net.initialize(mx.init.Xavier())
net.cast("float64")
trainer = gluon.Trainer(net.collect_params(), "adam")
with autograd.record():
    loss = net(nd.ones((4, 8192), dtype="float64")).mean()
loss.backward()
trainer.step(4)
"""
PEAK = """
import resource, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


@pytest.mark.parametrize("numpy", [False, True], ids=["nd", "np"])
def test_a_net_that_is_larger_than_the_machine_takes_no_memory(tmp_path, numpy):
    text = LARGE
    if numpy:
        text = text.replace("autograd, gluon, nd", "autograd, gluon, np as nd\nmx.npx.set_np()")
    (tmp_path / "large.py").write_text(text)
    words = ["-m", "tofu", "estimate", "--workers=1,2", "--count=estimate", "large.py"]
    ran = run_python("-c", PEAK, *words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "1.0 GiB" in ran.stdout.splitlines()[1]
    assert int(ran.stdout.splitlines()[-1]) < 2**29


OWN = """
class Own(mx.optimizer.SGD):
    def create_state(self, index, weight):
        raise ValueError("of another weight")
"""


@pytest.mark.parametrize(
    ("trainer", "named"),
    [
        ('"sgd", {"learning_rate": 0.1}', "sgd"),
        ('"sgd", {"learning_rate": 0.1, "momentum": 0.9}', "sgd_mom"),
        ('"lamb"', "adam"),
        ('"ftml"', "adam"),  # keeps three tensors
        ("Own()", "sgd"),
    ],
)
def test_the_optimizer_that_has_to_fit_is_the_scripts(tmp_path, trainer, named):
    text = TRAIN.replace('"sgd", {"learning_rate": 0.1}', trainer).replace("net =", f"{OWN}net =")
    (tmp_path / "train.py").write_text(text)
    words = ["--workers=1,2", "--count=estimate", "--gpu-memory=1MiB", "train.py"]
    ran = run_python("-m", "tofu", "estimate", *words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert f"with {named} without tofu" in ran.stdout.splitlines()[-1]


def test_operators_of_all_graphs_are_listed(tmp_path):
    text = GAN.replace('"tanh"', '"tanh" if name == "maker_" else "relu"')
    (tmp_path / "gan.py").write_text(text)
    ran = run_python("-m", "tofu", "ops", "--of", "gan.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    row = next(line for line in ran.stdout.splitlines() if line.startswith("FullyConnected"))
    assert row.split()[1] == "6"


def test_a_script_that_adds_gradients_before_it_updates_ends_there(tmp_path):
    apart = TRAIN.replace("trainer.step(4)", "trainer.allreduce_grads()\ntrainer.update(4)")
    goes_on = apart.replace("print(", "raise AssertionError(")
    ran = plan(tmp_path, goes_on, "--workers=2", name="train.py")
    assert ran.returncode == 0 and ran.stdout.startswith("2 workers, ")
    assert ran.stderr == ""

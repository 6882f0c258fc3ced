"""tofu trace of real scripts: times add up, no operator is missing, and errors are clear."""

from __future__ import annotations

import collections
import json

import pytest

pytest.importorskip("mxnet")

from tofu.cli.trace import _missing

from .test_errors import one_line, run_python

pytestmark = pytest.mark.slow

TRAIN = """
import sys
import mxnet as mx
from mxnet import autograd, gluon

mx.random.seed(1)
net = gluon.nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(gluon.nn.Dense(32, activation="relu"), gluon.nn.Dense(8))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd")
x = mx.nd.random.normal(shape=(16, 64))
for step in range(int(sys.argv[1]) if sys.argv[1:] else 9):
    with autograd.record():
        loss = net(x).square().sum()
    loss.backward()
    trainer.step(16)
    print("step", step)
"""
OPERATORS = ["net_dense0_fwd", "net_dense0_relu_fwd", "net_dense1_fwd"]


def trace(folder, text, *options, args=(), **environment):
    (folder / "train.py").write_text(text)
    return run_python("-m", "tofu", "trace", *options, "train.py", *args, cwd=folder, **environment)


def spans(folder):
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[tracks[event["tid"]]].append(event)
    return found


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("fetch", ["multifetch", "plain"])
def test_a_step_of_every_worker_adds_up(tmp_path, fetch):
    """There are more workers than cores, for which MXNet's own profiler would end the process."""
    workers = 8
    ran = trace(tmp_path, TRAIN, f"--workers={workers}", f"--fetch={fetch}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("step 0\nstep 1\nworker ")  # the script ends in step 2
    found = spans(tmp_path)
    (step,) = found.pop("steps")
    assert list(found) == [f"worker {w} (cpu/{w})" for w in range(workers)]
    for events in found.values():
        assert sum(e["dur"] for e in events) == pytest.approx(step["dur"], rel=1e-3)
        assert {e["cat"] for e in events} == {"computation", "fetch", "waiting"}
        ends = [round(e["ts"] + e["dur"], 1) for e in events]
        assert ends[:-1] == [round(e["ts"], 1) for e in events[1:]]
        names = collections.Counter(e["name"] for e in events if e["cat"] == "computation")
        once = [*OPERATORS, *(f"{name}_backward" for name in OPERATORS)]
        assert {name: names[name] for name in once} == dict.fromkeys(once, 1)
        layers = {e["args"]["layer"] for e in events if e["cat"] == "fetch"}
        assert layers & {"net_dense0", "net_dense1", "data"}


def test_three_lines_say_what_bounds_a_step(tmp_path):
    ran = trace(tmp_path, TRAIN, "--workers=2", "--skip=1", "--steps=3", "--output=other.json")
    assert ran.returncode == 0, ran.stderr
    *rows, empty, first, second, third = ran.stdout.splitlines()
    assert rows[-2].startswith("0 cpu/0 ") and rows[-1].startswith("1 cpu/1 ")
    assert empty == ""
    assert first.startswith("steps of ") and "the busiest, computes " in first
    assert " bound the step: " in second or " bounds the step: " in second
    assert third.startswith("longest on worker ")
    document = json.loads((tmp_path / "other.json").read_text())
    steps = [e for e in document["traceEvents"] if e.get("cat") == "step"]
    assert [e["name"] for e in steps] == ["step 1", "step 2", "step 3"]
    assert all(
        one["ts"] + one["dur"] == pytest.approx(other["ts"], abs=1)
        for one, other in zip(steps, steps[1:])
    )
    forward = [e for e in document["traceEvents"] if e["name"] == "net_dense0_fwd"]
    assert len(forward) == 2 * 3


def test_a_script_that_fails_shows_its_own_frames(tmp_path):
    text = TRAIN.replace('    print("step", step)', "    fail()").replace(
        "for step", "def fail():\n    raise KeyError('batch')\n\nfor step"
    )
    ran = trace(tmp_path, text, "--workers=2")
    assert ran.returncode == 1
    frames = [line for line in ran.stderr.splitlines() if line.startswith("  File ")]
    assert [frame.split(", line ")[0] for frame in frames] == ['  File "train.py"'] * 2
    assert ran.stderr.rstrip().endswith("KeyError: 'batch'")
    assert not (tmp_path / "trace.json").exists()


@pytest.mark.whole
def test_a_script_that_is_no_python_shows_no_frames(tmp_path):
    ran = trace(tmp_path, "for x in:\n", "--workers=2")
    assert ran.returncode == 1
    frames = [line for line in ran.stderr.splitlines() if line.startswith("  File ")]
    assert frames == ['  File "train.py", line 1']


def test_scripts_that_end_too_soon(tmp_path):
    ran = trace(tmp_path, TRAIN, "--workers=2", args=["2"])
    assert ran.returncode == 2
    assert ran.stderr.rstrip().endswith(
        "train.py: it ended after 2 training steps; expected 3 calls of gluon.Trainer.step "
        "(--skip 2, --steps 1)"
    )


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (0, "it ended after no training step; expected 3 calls"),
        (1, "it ended after 1 training step; expected 3 calls"),
        (3, "no partitioned block ran in the profiled steps"),
    ],
)
def test_what_a_script_did_not_do(seen, text):
    assert text in _missing(seen, skip=2, steps=1)


@pytest.mark.whole
def test_an_exit_status_of_the_script_is_the_commands(tmp_path):
    ran = trace(tmp_path, TRAIN + "\nsys.exit(7)", "--workers=2", args=["1"])
    assert ran.returncode == 7


def test_a_script_that_runs_serially(tmp_path):
    text = (
        TRAIN.replace("net(x).square()", "mx.nd.dot(x, w).square()")
        .replace(
            "trainer =",
            "w = mx.nd.ones((64, 8)); w.attach_grad()\nnet(mx.nd.ones((16, 64)))\ntrainer =",
        )
        .replace("trainer.step(16)", "trainer.step(16, ignore_stale_grad=True)")
    )
    ran = trace(tmp_path, text, "--workers=2")
    assert ran.returncode == 2
    assert "no partitioned block ran in the profiled steps" in ran.stderr


def test_files_that_a_trace_must_not_replace(tmp_path):
    line = one_line(trace(tmp_path, TRAIN, "--workers=2", "--output=train.py"))
    assert line == "tofu: --output train.py: expected a .json file, not a script"
    line = one_line(trace(tmp_path, TRAIN, "--workers=2", "--output=none/trace.json"))
    assert line == "tofu: --output none/trace.json: there is no folder none"


@pytest.mark.whole
def test_a_process_that_does_not_end_is_ended(tmp_path):
    """The command still shows the output of the ended process."""
    stuck = "import atexit, time\natexit.register(time.sleep, 600)\n" + TRAIN
    ran = trace(tmp_path, stuck, "--workers=2")
    assert ran.returncode == 0, ran.stderr
    assert " the step: " in ran.stdout.splitlines()[-2]

"""Random nets of all of Gluon train partitioned as they do serially."""

import collections
import contextlib
import dataclasses
import textwrap

import numpy as np
import pytest

from . import moved_bytes, random_nets
from .random_nets import judge, supervise
from .random_nets.draw import DIVIDING, FIRST_ODD, HABITS, SMOOTH, draw
from .random_nets.kinds import BATCHES, KINDS, ODD, WORKERS
from .random_nets.spec import TRAINERS, Input, Node, Spec, from_text

NETS, SAMPLE, CHUNK = 1000, 10, 5  # seeds: of --full, of each run, of one test
ODD_NETS, ODD_SAMPLE = 500, 5
ROTATING = 200  # so many of each kind are also in the rotating sample

CHUNKS = [
    pytest.param(
        start + first,
        id=f"{start + first}-{start + first + CHUNK - 1}",
        marks=[
            pytest.mark.slow,
            *([] if first < sample else [pytest.mark.whole(rotates=first < ROTATING)]),
        ],
    )
    for start, nets, sample in ((0, NETS, SAMPLE), (FIRST_ODD, ODD_NETS, ODD_SAMPLE))
    for first in range(0, nets, CHUNK)
]


@pytest.mark.parametrize("first", CHUNKS)
def test_nets(first, forking_python):
    records = supervise.supervise(range(first, first + CHUNK), python=forking_python)
    assert sorted(record["seed"] for record in records) == list(range(first, first + CHUNK))
    wrong = [record for record in records if record["status"] != "equal" and not fails(record)]
    shown = [f"seed {r['seed']}: {r['status']}: {r.get('reason')}\n{draw_text(r)}" for r in wrong]
    assert not wrong, "\n".join(shown)


def fails(record):
    """Whether MXNet fails by itself, in float32 with oneDNN.

    It fails if weights in oneDNN's blocks meet a view, and sometimes in transposed convolutions,
    whose gradient it writes before there is memory for it. A crash has either reason. Some nets
    train towards values that float32 does not have.
    """
    if not record["status"].startswith("plain"):
        return False
    if record["status"] == "plain crashes":
        return draw(record["seed"]).dtype == "float32"
    transposed = any(node.kind == "transposed" for node in draw(record["seed"]).nodes)
    texts = ("Check failed: !is_view", "training overflows single precision")
    return transposed or any(text in record["reason"] for text in texts)


def draw_text(record):
    return draw(record["seed"]).text()


def test_the_nets_are_of_every_kind(full):
    count = NETS if full else 120
    specs = [draw(seed) for seed in range(count)]
    drawn = collections.Counter(node.kind for spec in specs for node in spec.nodes)
    missing = set(KINDS) - set(drawn)
    assert len(missing) <= (0 if full else 4), missing
    missing = {*SMOOTH, *DIVIDING} - {spec.optimizer[0] for spec in specs}
    assert len(missing) <= (0 if full else 2), missing
    assert {habit for spec in specs for habit in spec.habits} == {*HABITS, TRAINERS}
    assert {spec.workers for spec in specs} == set(WORKERS)
    assert {spec.dtype for spec in specs} == {"float32", "float64"}
    assert {len(s) for spec in specs for s in (i.shape for i in spec.inputs)} == {1, 2, 3, 4}
    for several in (lambda s: s.inputs, lambda s: s.outputs):
        assert sum(len(several(spec)) > 1 for spec in specs) > count / 10
    for found in (lambda n: n.shares is not None, lambda n: n.frozen):
        assert sum(any(map(found, spec.nodes)) for spec in specs) > count / 10


def test_odd_nets(full):
    specs = [draw(FIRST_ODD + seed) for seed in range(ODD_NETS if full else 40)]
    assert {spec.workers for spec in specs} == set(ODD[WORKERS])
    assert {spec.batches[0] for spec in specs} == set(ODD[BATCHES])
    assert {spec.dtype for spec in specs} == {"float32", "float64"}
    assert any(spec.batches[-1] < spec.batches[0] for spec in specs)
    assert len({habit for spec in specs for habit in spec.habits}) > 6


def test_a_seed_stands_for_one_net():
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)
    assert from_text(draw(5).text()) == draw(5)


SMALL = Spec(
    inputs=(Input((6,)),),
    nodes=(
        Node("dense", (0,), {"units": 4, "use_bias": True, "activation": "tanh"}),
        Node("flat_batch_norm", (1,), {"scale": True}),
    ),
    outputs=(2,),
    losses=("l2",),
    batches=(4, 4),
)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_judges(dtype, optimizer):
    spec = dataclasses.replace(SMALL, dtype=dtype, optimizer=(optimizer, {"learning_rate": 0.1}))
    assert judge.attempt(0, lambda: spec)["status"] == "equal"


FAULTS = {
    "output": "step 1 output 0",
    "gradient": "step 1 gradient dense0.weight",
    "statistics": "parameter flat_batch_norm1.running_var",
    "weight": "parameter dense0.bias",
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fault", FAULTS)
def test_finds_faults(fault, dtype, monkeypatch):
    """Finds an error of a millionth in float64, or a thousandth in float32, in any one value."""
    original = judge.script.train

    def train(*args, **kwargs):
        result = original(*args, **kwargs)
        if judge.tofu.gluon.session.session.active() is not None:
            value = result.values[FAULTS[fault]]
            value.flat[0] += (1e-6 if dtype == "float64" else 1e-3) * np.abs(value).max()
        return result

    monkeypatch.setattr(judge.script, "train", train)
    record = judge.attempt(0, lambda: dataclasses.replace(SMALL, dtype=dtype))
    assert record["status"] == "unequal"
    assert FAULTS[fault] in record["reason"]


def test_finds_a_wrong_update(monkeypatch):
    """The optimizer is one whose gradients are compared."""
    original = judge.script.train

    def train(*args, **kwargs):
        result = original(*args, **kwargs)
        if judge.tofu.gluon.session.session.active() is not None:
            result.after[1]["dense0.weight"][0, 0] += 1e-4
        return result

    monkeypatch.setattr(judge.script, "train", train)
    spec = dataclasses.replace(SMALL, optimizer=("adam", {"learning_rate": 0.1}))
    record = judge.attempt(0, lambda: spec)
    assert record["status"] == "unequal"
    assert "update 1 of dense0.weight" in record["reason"]


@pytest.mark.parametrize("fetch", ["plain", "multifetch"])
def test_finds_bytes_that_the_plan_does_not_count(fetch, monkeypatch):
    original = moved_bytes.expected_bytes
    monkeypatch.setattr(moved_bytes, "expected_bytes", lambda compiled: original(compiled) - 4)
    record = judge.attempt(0, lambda: dataclasses.replace(SMALL, fetch=fetch))
    assert record["status"] == "unequal"
    assert "bytes from each other, the plan says" in record["reason"]


def test_finds_what_raises(monkeypatch):
    def train(*args, **kwargs):
        if judge.tofu.gluon.session.session.active() is not None:
            raise KeyError("partitioned")
        return original(*args, **kwargs)

    original = judge.script.train
    monkeypatch.setattr(judge.script, "train", train)
    record = judge.attempt(0, lambda: SMALL)
    assert record["status"] == "raises"
    assert "KeyError: 'partitioned'" in record["reason"]


def test_finds_a_net_that_runs_serially(monkeypatch):
    monkeypatch.setattr(judge.tofu, "enable", lambda **_: None)
    monkeypatch.setattr(judge, "looking", lambda **_: contextlib.nullcontext())
    record = judge.attempt(0, lambda: SMALL)
    assert (record["status"], record["reason"]) == ("unequal", "nothing was partitioned")


PROCESS = """
    import os, sys, time, json
    for seed in map(int, sys.argv[1].split(",")):
        print(json.dumps({"seed": seed, "status": "begins"}), flush=True)
        if seed == 2:
            os.abort()
        print(json.dumps({"seed": seed, "status": "ran serially"}), flush=True)
        if seed == 3:
            sys.stderr.write("Segmentation fault, says MXNet\\n")
            os.abort()
        if seed == 5:
            time.sleep(60)
        print(json.dumps({"seed": seed, "status": "equal"}), flush=True)
"""


def test_a_crash_and_a_hang_are_of_their_seeds(monkeypatch, tmp_path):
    script = tmp_path / "process.py"
    script.write_text(textwrap.dedent(PROCESS))
    monkeypatch.setattr(
        supervise, "command", lambda python, *arguments: [python, str(script), *arguments]
    )
    records = supervise.supervise(range(7), seconds=3)
    found = {record["seed"]: record["status"] for record in records}
    assert found == {
        **dict.fromkeys(range(7), "equal"),
        2: "plain crashes",
        3: "crashes",
        5: "hangs",
    }
    (crash,) = [record for record in records if record["seed"] == 3]
    assert "exit -6" in crash["reason"]
    assert "says MXNet" in crash["reason"]


def test_the_package_says_how_to_use_it():
    assert "python -m equality.random_nets 0-39" in random_nets.__doc__

"""The example scripts are plain Gluon, and give the same results serially and partitioned."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

from ..support import forked

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCRIPTS = ("digits_resnet.py", "text_lstm.py")


def run_example(script, folder, *args, **variables):
    """Run a script for one epoch and return the metrics it wrote and its printed text."""
    folder.mkdir(exist_ok=True)
    metrics = folder / "metrics.json"
    command = [EXAMPLES / script, "--epochs", "1", "--metrics", metrics, *args]
    ran = forked.run(command, env={**os.environ, **variables})
    assert ran.returncode == 0, ran.stderr
    return json.loads(metrics.read_text()), ran.stdout + ran.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_does_not_know_tofu(script):
    assert "tofu" not in (EXAMPLES / script).read_text(encoding="utf-8").lower()


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """A function that returns a script's metrics and parameters, run with its own options."""

    @functools.cache
    def run(script):
        folder = tmp_path_factory.mktemp("first")
        metrics, _ = run_example(script, folder, "--save", folder / "params")
        return metrics, (folder / "params").read_bytes()

    return run


@pytest.mark.parametrize("script", SCRIPTS)
def test_two_serial_runs_are_equal(script, first_run, tmp_path):
    metrics, parameters = first_run(script)
    again, _ = run_example(script, tmp_path, "--save", tmp_path / "params")
    assert again["step_loss"] == metrics["step_loss"]
    assert (tmp_path / "params").read_bytes() == parameters


def test_digits_end_with_a_smaller_batch(first_run):
    metrics, _ = first_run("digits_resnet.py")
    assert len(metrics["step_loss"]) == 24  # 1,500 images: 23 batches of 64 and one of 28
    assert metrics["loss"][0] < 2.3  # better than guessing, ln(10)


@pytest.fixture(scope="module")
def serial_runs(tmp_path_factory):
    """A function that returns a script's metrics and parameters after a serial run in a dtype."""

    @functools.cache
    def run(script, dtype):
        folder = tmp_path_factory.mktemp(f"serial-{dtype}")
        metrics, _ = run_example(
            script, folder, "--dtype", dtype, "--optimizer", "sgd", "--save", folder / "params"
        )
        return metrics["step_loss"], load_parameters(folder / "params")

    return run


def load_parameters(path):
    return {name: array.asnumpy() for name, array in mx.nd.load(str(path)).items()}


# The cases that every run takes; --full takes all.
EACH_RUN = {(2, "float32"), (7, "float64")}
CASES = [
    pytest.param(workers, dtype, marks=[] if (workers, dtype) in EACH_RUN else [pytest.mark.whole])
    for workers in range(2, 9)
    for dtype in ("float32", "float64")
]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "dtype"), CASES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_partitioned_run_equals_the_serial_one(script, workers, dtype, serial_runs, tmp_path):
    losses, parameters = serial_runs(script, dtype)
    switch = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": str(workers), "TOFU_DEVICE": "cpu"}
    options = ("--dtype", dtype, "--optimizer", "sgd", "--save", tmp_path / "params")
    metrics, text = run_example(script, tmp_path, *options, **switch)
    assert f"{workers} workers" in text
    assert "runs serially" not in text
    found = metrics["step_loss"]
    assert len(found) >= 20
    if dtype == "float32":
        assert found[0] == pytest.approx(losses[0], rel=1e-5)
        assert found[:20] == pytest.approx(losses[:20], rel=1e-4)
    else:
        assert found == pytest.approx(losses, rel=1e-9)
        for name, array in load_parameters(tmp_path / "params").items():
            np.testing.assert_allclose(array, parameters[name], rtol=1e-9, atol=1e-9)


def small_scripts():
    for script, sample in (("mlp.py", 7), ("swish.py", 3)):
        for workers in (2, 3, 5, 6, 7):
            marks = () if workers == sample else pytest.mark.whole
            yield pytest.param(script, workers, marks=marks)


# Losses, gradients and weights in both types, as tofu check compares them.
@pytest.mark.parametrize(("script", "workers"), list(small_scripts()))
@pytest.mark.slow
def test_small_scripts_compute_the_same(script, workers, tmp_path):
    described = ["--describe", EXAMPLES / "swish_described.py"] if script == "swish.py" else []
    command = ["-m", "tofu", "check", "--workers", workers, *described, EXAMPLES / script]
    ran = forked.run(command, cwd=tmp_path, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "rounding only" in ran.stdout


@pytest.mark.parametrize(("processes", "workers"), [(2, "2,3"), (1, "5"), (2, "6,7"), (3, "2,7,3")])
@pytest.mark.slow
@pytest.mark.whole
def test_processes_compute_the_same(processes, workers, tmp_path):
    runs = []
    for numbers in ("1", workers):
        options = ["--processes", processes, "--workers", numbers, "--device", "cpu"]
        command = ["-m", "tofu", "run", *options, EXAMPLES / "mlp_distributed.py"]
        ran = forked.run(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert ran.returncode == 0, ran.stderr
        runs.append([float(line.split()[-1]) for line in ran.stdout.splitlines()])
    assert len(runs[0]) == 3 and runs[1] == pytest.approx(runs[0], rel=1e-5)


@pytest.mark.slow
@pytest.mark.whole
def test_demo_ends_with_a_table():
    command = [EXAMPLES / "demo.py", "--epochs", "1", "--workers", "2", "digits_resnet.py"]
    ran = subprocess.run(
        [sys.executable, *map(str, command)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "TOFU_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for row in ("loss, epoch 1", "largest difference", "bytes communicated per step", "search"):
        assert row in ran.stdout


def test_demo_fails_when_nothing_was_partitioned(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import demo

    run = demo.Run(losses=[1.0], weights=tmp_path, seconds=1.0, summary=None)
    with pytest.raises(SystemExit, match="partitioned none of its blocks"):
        demo.make_table("net.py", 4, run, run)

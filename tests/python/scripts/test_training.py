"""scripts/wresnet.py and scripts/rnn.py: the same losses serially and over workers."""

import contextlib
import functools
import io
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
MODELS = {"wresnet": "wresnet-50-4", "rnn": "rnn-6-4k"}
KEYS = {
    "batch_size",
    "bytes_per_step",
    "data",
    "device",
    "fetch",
    "first_loss",
    "last_loss",
    "model",
    "mxnet",
    "optimizer",
    "options",
    "parameters",
    "peak_bytes_per_worker",
    "python",
    "reduced",
    "samples_per_second",
    "search_seconds",
    "serial_bytes",
    "tensor_bytes_per_worker",
    "train_steps",
    "warm_up",
    "workers",
}


def run_here(script, *args):
    """Run a script in this process; return its status and what it printed."""
    printed, told = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        patch.setattr(sys, "argv", [str(SCRIPTS / f"{script}.py"), *args])
        for name in ("MXNET_GRAPH_PASS", "TOFU_WORKERS", "TOFU_FETCH"):
            patch.delenv(name, raising=False)
        status = 0
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
            try:
                runpy.run_path(sys.argv[0], run_name="__main__")
            except SystemExit as end:
                status = end.code
            finally:
                sys.modules.pop("_training", None)
                sys.modules.pop("_placement", None)
    return status, printed.getvalue(), told.getvalue()


def size(script):
    return ("--model", MODELS[script], "--reduced", "--batch-size", "12", "--train-steps", "3")


def train(script, *args):
    """Train the reduced model; return the record in the last line and the other lines."""
    status, printed, told = run_here(script, *size(script), *args)
    assert status == 0, told
    *lines, last = printed.splitlines()
    return json.loads(last), lines


def train_apart(run_script, script, *args, **variables):
    """Train the reduced model in a separate process with other environment variables."""
    printed = run_script(f"scripts/{script}.py", *size(script), *args, **variables)
    return json.loads(printed.splitlines()[-1])


@functools.cache
def serial(script):
    return train(script, "--serial")


@pytest.mark.parametrize("script", MODELS)
def test_serial(script):
    record, lines = serial(script)
    assert record.keys() == KEYS
    assert (record["workers"], record["bytes_per_step"], record["fetch"]) == (1, 0, None)
    assert record["peak_bytes_per_worker"] is None
    assert 0 < record["last_loss"] < record["first_loss"] < 3
    assert lines[0].endswith("batch 12, serial")
    assert "synthetic" in lines[1]


# 32 units do not divide by 3.
@pytest.mark.filterwarnings("ignore:.*they are replicated")
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("script", MODELS)
def test_workers_have_the_serial_losses(script, workers):
    expected, _ = serial(script)
    record, lines = train(script, "--workers", str(workers))
    assert record.keys() == KEYS
    np.testing.assert_allclose(record["first_loss"], expected["first_loss"], rtol=1e-5)
    np.testing.assert_allclose(record["last_loss"], expected["last_loss"], rtol=5e-3)
    assert record["parameters"] == expected["parameters"]
    assert record["workers"] == workers == len(record["peak_bytes_per_worker"])
    assert record["bytes_per_step"] > 0
    assert record["serial_bytes"] / workers < min(record["tensor_bytes_per_worker"])
    # Tensors that are not needed at the same time share memory.
    assert 0 < max(record["peak_bytes_per_worker"]) < max(record["tensor_bytes_per_worker"])
    assert f"{record['bytes_per_step']:,} bytes communicated per step" in lines[-1]


@pytest.mark.parametrize("script", MODELS)
def test_layers_on_devices_in_turn_have_the_serial_losses(run_script, script):
    expected, _ = serial(script)
    record = train_apart(run_script, script, "--system", "placement", "--devices", "3")
    assert record.keys() == KEYS | {"system", "devices", "simulated"}
    assert record["devices"] == 3 and not record["simulated"]
    np.testing.assert_allclose(record["first_loss"], expected["first_loss"], rtol=1e-5)
    np.testing.assert_allclose(record["last_loss"], expected["last_loss"], rtol=5e-3)


def test_rate_is_a_median_between_its_quartiles():
    rates = serial("rnn")[0]["samples_per_second"]
    assert 0 < rates["quartiles"][0] <= rates["median"] <= rates["quartiles"][1]


def test_the_switch_alone_partitions(run_script):
    record = train_apart(run_script, "rnn", MXNET_GRAPH_PASS="tofu", TOFU_WORKERS="2")
    assert record["workers"] == 2
    np.testing.assert_allclose(record["last_loss"], serial("rnn")[0]["last_loss"], rtol=1e-5)


def test_serial_is_serial_even_with_the_switch(run_script):
    record = train_apart(run_script, "rnn", "--serial", MXNET_GRAPH_PASS="tofu", TOFU_WORKERS="2")
    assert record["workers"] == 1
    assert record["last_loss"] == serial("rnn")[0]["last_loss"]


def test_sizes_make_a_model():
    sizes = ("--layers", "1", "--hidden", "48", "--steps", "2", "--batch-size", "4")
    status, printed, told = run_here("rnn", *sizes, "--train-steps", "1", "--warm-up", "0")
    assert status == 0, told
    record = json.loads(printed.splitlines()[-1])
    assert record["model"] == "rnn-1-48"
    assert record["options"]["steps"] == 2
    assert record["first_loss"] == record["last_loss"]


@pytest.mark.parametrize("size", ["8", "auto"])
def test_a_simulated_system(size):
    status, printed, _ = run_here(
        "rnn", "--model", "rnn-6-4k", "--reduced", "--system", "smallbatch", "--batch-size", size
    )
    assert status == 0
    assert printed.startswith("simulated: rnn-6-4k, smallbatch")
    record = json.loads(printed.splitlines()[-1])
    assert record["simulated"] and record["fits"]
    assert record["batch_size"] == (8 if size == "8" else 512)
    spent = ("compute_seconds", "fetch_seconds", "waiting_seconds")
    assert all(record[name] >= 0 for name in spent)
    # Two threads of a GPU may compute at the same time.
    assert record["compute_seconds"] + record["waiting_seconds"] <= 1.05 * record["step_seconds"]


@pytest.mark.parametrize(
    ("script", "args", "error"),
    [
        ("wresnet", ["--depth", "18"], "depth 18: expected one of 50, 101, 152"),
        ("wresnet", ["--width", "0"], "width 0: expected 1 to 1048576"),
        ("rnn", ["--hidden", "-4"], "hidden -4: expected 1 to 1048576"),
        ("rnn", ["--devices", "2"], "--devices: expected --system placement"),
        (
            "rnn",
            ["--system", "placement", "--devices", "2", "--machine", "p2.8xlarge"],
            "--machine p2.8xlarge: only for a simulation; leave out --devices",
        ),
        (
            "rnn",
            ["--system", "placement", "--devices", "2", "--batch-size", "auto"],
            "--batch-size auto: only for a simulation; leave out --devices",
        ),
        ("rnn", ["--workers", "0"], "--workers 0: expected at least 1"),
        ("rnn", ["--batch-size", "0"], "--batch-size 0: expected at least 1"),
        ("rnn", ["--warm-up", "-1"], "--warm-up -1: expected at least 0"),
        ("rnn", ["--reduced"], "--reduced: expected --model NAME as well"),
        ("rnn", ["--model", "rnn-6-4k", "--steps", "2"], "leave out --steps"),
        ("rnn", ["--model", "mlp"], "--model mlp: expected a name that starts with rnn-"),
        ("wresnet", ["--model", "wresnet-50-5"], "no model 'wresnet-50-5'; did you mean"),
        ("rnn", ["--serial", "--workers", "2"], "not allowed with argument"),
        ("rnn", ["--serial", "--fetch", "plain"], "--serial fetches nothing"),
        ("rnn", ["--fetch", "plain"], "expected --workers, or MXNET_GRAPH_PASS=tofu"),
        ("rnn", ["--fetch", "fast"], "invalid choice: 'fast'"),
        ("rnn", ["--batch-size", "auto"], "--batch-size auto: expected --system"),
        ("rnn", ["--system", "magic"], "--system magic: expected one of tofu"),
        ("rnn", ["--machine", "8xh100"], "--machine 8xh100: expected --system"),
        ("rnn", ["--system", "tofu", "--workers", "2"], "not allowed with argument"),
    ],
)
def test_a_bad_option_is_one_clear_error(script, args, error):
    status, printed, told = run_here(script, *args)
    assert status == 2
    assert error in told
    assert len(told.splitlines()) == 1 and not printed

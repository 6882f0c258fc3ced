"""Distributed training in several processes on the loopback address."""

import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from . import distributed_script as script

FILE = pathlib.Path(script.__file__)
LIMIT_S = 400  # of a test, on a machine that does other things as well
CLEAN = ("TOFU_", "MXNET_", "DMLC_", "PS_")


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(CLEAN)}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "TOFU_DEVICE": "cpu",
        "TOFU_WORKERS": "2",
        "TOFU_LOG": "quiet",
        **variables,
    }


def launch(folder, *args, processes=2, servers=1, file=FILE, launcher="tofu.__main__", **variables):
    """Run a script in several processes; what it has printed."""
    line = [sys.executable, "-W", "error", "-c", LAUNCH.format(launcher=launcher)]
    line += [str(processes), str(servers), str(file), *map(str, args)]
    with subprocess.Popen(
        line,
        cwd=folder,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher ends the others
            pytest.fail(f"hangs: {process.communicate()}")
    return subprocess.CompletedProcess(line, process.returncode, out, err)


LAUNCH = """
import sys
from tofu.cli.main import main
processes, servers, *rest = sys.argv[1:]
main(["run", "--processes", processes, "--servers", servers, *rest])
"""


def serial(case):
    """The weights after training alone on whole batches, in plain MXNet."""
    optimizer, dtype, _, _ = case.split(":")
    return script.weights(script.train(f"{optimizer}:{dtype}:local:0")[0])


def assert_weights(folder, case, processes, expected):
    tolerance = {"rtol": 1e-9, "atol": 1e-11} if "float64" in case else {"rtol": 2e-4, "atol": 2e-5}
    for rank in range(processes):
        with np.load(folder / f"{case.replace(':', '-')}-{rank}.npz") as found:
            assert set(found) == set(expected)
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value, **tolerance, err_msg=name)


# Trainers that update in their processes share one connection.
TOGETHER = (
    "sgd:float32:dist_sync:0",
    "adam:float64:dist_device_sync:0",
    "lamb:float32:dist_sync:0",
)


@pytest.mark.parametrize(
    ("processes", "servers"), [(2, 2), pytest.param(4, 1, marks=pytest.mark.whole)]
)
def test_processes_that_update_by_themselves_equal_one(tmp_path, processes, servers):
    done = launch(tmp_path, tmp_path, *TOGETHER, processes=processes, servers=servers)
    assert done.returncode == 0, done.stderr
    for case in TOGETHER:
        assert_weights(tmp_path, case, processes, serial(case))
    # Weights and biases of the first two layers are two tiles each; the last layer is whole.
    assert done.stdout == "tiles [2, 2, 2, 2, 2, 2] keys 11\n" * processes
    # Process 0 has saved, for all.
    net = script.build("float32")
    net.load_parameters(str(tmp_path / "net"))
    expected = serial(TOGETHER[0])
    for name, value in script.weights(net).items():
        np.testing.assert_allclose(value, expected[name], 2e-4, 2e-5)
    states, optimizer = pickle.loads((tmp_path / "states").read_bytes())
    assert sorted(states) == [0, 1, 2, 3, 4, 5] and optimizer.num_update == script.STEPS
    assert states[0].shape == net.conv.bias.shape
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("case", "processes"),
    [
        ("adam:float64:dist_sync:1", 4),
        pytest.param("sgd:float32:dist_device_sync:1", 2, marks=pytest.mark.whole),
        pytest.param("lamb:float32:dist_sync:1", 2, marks=pytest.mark.whole),
    ],
)
def test_servers_that_update_equal_one_process(tmp_path, case, processes):
    done = launch(tmp_path, tmp_path, case, processes=processes)
    assert done.returncode == 0, done.stderr
    assert_weights(tmp_path, case, processes, serial(case))
    whole = "lamb" in case  # its optimizer needs the norms of whole tensors
    assert done.stdout == f"tiles [2, 2, 2, 2, 2, 2] keys {6 if whole else 11}\n" * processes


@pytest.mark.whole
def test_plain_mxnet_comes_to_the_same(tmp_path):
    """With its own processes, and the same parameter server."""
    case = "sgd:float32:dist_sync:1"
    plain = tmp_path / "plain.py"
    plain.write_text(
        "import os, runpy, sys\n"
        "os.environ['MXNET_GRAPH_PASS'] = ''\n"
        f"runpy.run_path({str(FILE)!r}, run_name='__main__')\n"
    )
    done = launch(tmp_path, tmp_path, case, file=plain)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert_weights(tmp_path, case, 2, serial(case))

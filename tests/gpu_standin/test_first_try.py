"""A first try on four GPUs, which are stand-ins: runs exactly what README.md says.

MXNet's own kernels compute nothing there, so losses mean nothing, and a block that the script does
not hybridize runs eagerly, as its trace gives other values: this script hybridizes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOSSES = ["step 0: loss", "step 1: loss", "step 2: loss"]


@pytest.fixture
def say(tmp_path):
    """A function that runs a command line of the page; returns its output, and tofu's messages."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    script = tmp_path / "examples" / "mlp.py"
    text = script.read_text()
    assert "net.initialize()\n" in text
    script.write_text(text.replace("net.initialize()\n", "net.initialize()\nnet.hybridize()\n"))

    def run(*words, **variables):
        program = {"python": [], "tofu": ["-m", "tofu"]}[words[0]]
        ran = subprocess.run(
            [sys.executable, *program, *words[1:]],
            cwd=tmp_path / "examples",
            env={**os.environ, "FAKE_GPUS": "4", **variables},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout, ran.stderr

    return run


def test_each_gpu_is_a_worker(say):
    printed, told = say("tofu", "run", "mlp.py")
    assert [line.rpartition(" ")[0] for line in printed.splitlines()] == LOSSES
    assert "over 4 workers gpu(0-3): " in told and "serially)" in told and "eagerly" not in told


def test_the_switch_does_the_same(say):
    printed, told = say("python", "mlp.py", MXNET_GRAPH_PASS="tofu", TOFU_WORKERS="2")
    assert [line.rpartition(" ")[0] for line in printed.splitlines()] == LOSSES
    assert "over 2 workers gpu(0-1): " in told


def test_a_limit_is_met_and_the_plan_runs(say):
    words = ("--memory", "12GiB", "--workers", "4")
    printed, _ = say("tofu", "plan", *words, "--save", "mlp.plan", "mlp.py")
    assert printed.startswith("4 workers (2 x 2), ")
    _, told = say("tofu", "run", "--memory", "12GiB", "--plan", "mlp.plan", "mlp.py")
    assert "over 4 workers gpu(0-3): " in told and "plan mlp.plan" in told


def test_what_bounds_a_step_is_told(say):
    printed, _ = say("tofu", "trace", "--skip", "1", "--steps", "1", "mlp.py")
    rows = [line.split()[:2] for line in printed.splitlines() if " gpu/" in line]
    assert rows == [[str(worker), f"gpu/{worker}"] for worker in range(4)]

"""Continuous integration ends with the names of suites whose wheels are not available."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def command(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def run(script, **variables):
    return subprocess.run(
        ["bash", str(script)],
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def ci_with(make, tmp_path):
    """The last lines of continuous integration with another make."""
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    shutil.copy(ROOT / ".ci" / "run", script)
    command(tmp_path / "bin" / "make", make)
    command(tmp_path / "bin" / "git", "echo abc")
    return run(script, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}").splitlines()[-2:]


def test_ci_ends_with_what_was_not_run(tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "not_run").write_text("of an earlier run\n", encoding="utf-8")
    make = 'case "$*" in test-torch) echo "torch: no wheel" >> build/not_run;; esac'
    assert ci_with(make, tmp_path) == ["passed, but these suites were NOT RUN:", "torch: no wheel"]


def test_ci_says_nothing_if_all_was_run(tmp_path):
    assert ci_with("true", tmp_path) == []


def test_pytorch_that_cannot_be_had_is_noted(tmp_path):
    command(tmp_path / "venv" / "bin" / "python", "exit 1")  # as of an old Python
    run(ROOT / "scripts" / "test_torch.sh", BUILD=tmp_path / "build", VENV=tmp_path / "venv")
    noted = (tmp_path / "build" / "not_run").read_text(encoding="utf-8")
    assert noted == "PyTorch's front end: torch 2.9 needs Python 3.10\n"


def torch_suite_with(builds, tmp_path):
    """Runs the suite's script with a pip that has these builds of torch."""
    has_cpu = "".join(f'*--dry-run*"=={version}.*"*) echo "$cpu";; ' for version in builds)
    python = f"""gpu='{{"install": [{{"metadata": {{"name": "nvidia-nccl-cu13"}}}}]}}'
cpu='{{"install": [{{"metadata": {{"name": "torch"}}}}]}}'
case "$*" in
-c*) exec {sys.executable} "$@";;
"-m venv"*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";;
{has_cpu}
*--dry-run*) echo "$gpu";;
esac"""
    command(tmp_path / "venv" / "bin" / "python", python)
    places = {"BUILD": tmp_path / "build", "VENV": tmp_path / "venv"}
    return run(ROOT / "scripts" / "test_torch.sh", TORCH_BUILD="cpu", TORCH_VENV="", **places)


def test_the_newest_torch_with_a_cpu_build_is_taken(tmp_path):
    assert torch_suite_with(["2.13", "2.10"], tmp_path) == "installing torch==2.13.*\n"


def test_torch_with_builds_for_gpus_only_is_noted(tmp_path):
    torch_suite_with([], tmp_path)
    noted = (tmp_path / "build" / "not_run").read_text(encoding="utf-8")
    assert "no CPU build of torch>=2.9,<2.15 can be installed here" in noted


def test_a_wheel_for_gpus_that_cannot_be_had_is_noted(tmp_path):
    (tmp_path / "build").mkdir()
    python = 'case "$*" in *venv*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python";; *) exit 1;; esac'
    command(tmp_path / "venv" / "bin" / "python", python)
    run(
        ROOT / "tests" / "gpu_standin" / "run.sh",
        BUILD=tmp_path / "build",
        VENV=tmp_path / "venv",
    )
    noted = (tmp_path / "build" / "not_run").read_text(encoding="utf-8")
    assert noted == "stand-in for GPUs: the wheel mxnet-cu112 1.9.1 cannot be downloaded\n"

"""tofu check of whole scripts: right ones, wrong ones, and those that it cannot run."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("mxnet")

from .test_errors import TRAIN, one_line, run_python

# Wrong only where it runs partitioned, and alike in both precisions.
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

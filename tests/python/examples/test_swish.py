"""The example of a user's operator trains alike with and without a description."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

from ..support import forked

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def run(*args, **variables):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TOFU_")}
    ran = forked.run(args, env={**environ, **variables})
    assert ran.returncode == 0, ran.stderr
    return ran


def test_a_described_operator_is_partitioned():
    serial = run(EXAMPLES / "swish.py")
    assert serial.stdout.count("loss") == 3
    described = run(
        "-m", "tofu", "run", "--workers=4", "--describe", EXAMPLES / "swish_described.py",
        EXAMPLES / "swish.py",
    )  # fmt: skip
    assert described.stdout == serial.stdout
    assert "TofuWarning" not in described.stderr
    assert "over 4 workers" in described.stderr and " 24.0 KiB communicated" in described.stderr


@pytest.mark.slow
def test_its_description_is_true():
    ran = run(
        "-m", "tofu", "verify", "--describe", EXAMPLES / "swish_described.py", "--processes=1",
        "Custom:swish", "_backward_Custom:swish",
    )  # fmt: skip
    last = ran.stdout.splitlines()[-1]
    assert last.startswith("2 operators, ") and ": 0 false, 0 missing, " in last


def test_the_script_does_not_know_tofu():
    for name in ("swish.py", "swish_operator.py"):
        assert "tofu" not in (EXAMPLES / name).read_text(encoding="utf-8")

"""Ctrl-C during a search, or while memory is predicted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("mxnet")

_HANGS_S = 120


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        pytest.param(("frontier", "transformer", "--workers=16"), "tofu: search ", id="search"),
        pytest.param(("estimate", "rnn-10-8k"), "      4 ", id="rows"),
    ],
)
def test_ctrl_c_ends_the_command_quietly(words, begun):
    process = subprocess.Popen(
        [sys.executable, "-m", "tofu", *words],
        env={**os.environ, "TOFU_LOG": "debug"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert any(line.startswith(begun) for line in process.stdout), "it ended too early"
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=_HANGS_S)
    assert process.returncode == 130, told
    assert "Traceback" not in told and "Aborted" not in told

"""Ctrl-C during a search, or while memory is predicted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("mxnet")

_HANGS_S = 120
_TRAIN = """
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.Dense(4, in_units=6)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd")
while True:
    with autograd.record():
        loss = net(mx.nd.ones((8, 6))).sum()
    loss.backward()
    trainer.step(8)
    print("step", flush=True)
"""


@pytest.mark.whole(but=1)
@pytest.mark.parametrize(
    ("words", "begun"),
    [
        pytest.param(("frontier", "transformer", "--workers=16"), "tofu: search ", id="search"),
        pytest.param(("estimate", "rnn-10-8k"), "      4 ", id="rows"),
        pytest.param(("trace", "--workers=2", "--skip=1000", "train.py"), "step", id="script"),
        pytest.param(("check", "--workers=2", "interrupted.py"), "", id="by the script"),
    ],
)
def test_ctrl_c_ends_the_command_quietly(tmp_path, words, begun):
    (tmp_path / "train.py").write_text(_TRAIN)
    (tmp_path / "interrupted.py").write_text("raise KeyboardInterrupt")
    process = subprocess.Popen(
        [sys.executable, "-m", "tofu", *words],
        cwd=tmp_path,
        env={**os.environ, "TOFU_LOG": "debug"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell that runs tests in the background makes them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    if begun:
        assert any(line.startswith(begun) for line in process.stdout), "it ended too early"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    told, _ = process.communicate(timeout=_HANGS_S)
    assert process.returncode == 130, told
    assert "Traceback" not in told and "Aborted" not in told

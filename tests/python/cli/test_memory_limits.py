"""--memory of tofu run and tofu plan, and tofu.plan(memory=...)."""

import json
import os
import re

import pytest

pytest.importorskip("mxnet")

import tofu
from tofu.cli import main
from tofu.errors import ConfigError, MemoryLimitError
from tofu.mx.model.sources import from_model
from tofu.planner.limits import held_bytes

from ..support import forked

SCRIPT = """
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.Dense(512, in_units=64, prefix="big_")
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "adam")
with autograd.record():
    loss = net(mx.nd.ones((8, 64))).sum()
loss.backward()
trainer.step(8)
print("trained", loss.asscalar() < 1e9)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


def run(*words):
    environ = {**os.environ, "TOFU_LOG": "quiet", "OMP_NUM_THREADS": "1"}
    return forked.run(["-m", "tofu", *words], env=environ, timeout=120)


def test_a_run_that_does_not_fit_ends_with_one_line_and_status_2(script):
    found = run("run", "--workers=2", "--memory=100KiB", script)
    assert (found.returncode, found.stdout) == (2, "")
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("tofu: ")]
    assert re.match(r"tofu: big: no plan over 2 workers was found that fits in 100.0 KiB; ", line)
    assert "optimizer state" in line


def printed(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main.main(["plan", "--workers=4", "--batch-size=64", "--format=json", *words, "mlp"])
    if ended.value.code:
        return capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_a_plan_within_a_limit(capsys, monkeypatch):
    for name in ("TOFU_MEMORY", "TOFU_REPLICATION", "TOFU_WORKERS", "MXNET_GRAPH_PASS"):
        monkeypatch.setenv(name, "")  # makes monkeypatch undo what the command sets
    cut = printed(capsys, "--count=estimate")
    fitting = printed(capsys, "--memory=100GiB")
    assert fitting["memory"] == "exact"
    assert fitting["total_bytes"] < cut["total_bytes"]
    monkeypatch.setenv("TOFU_MEMORY", "100GiB")
    estimated = printed(capsys, "--count=estimate")
    assert "memory" not in estimated, "it is an estimate"
    assert estimated["total_bytes"] == fitting["total_bytes"]
    told = printed(capsys, "--memory=10MiB")
    assert "mlp: no plan over 4 workers was found that fits in 10.0 MiB; the least" in told
    assert "Largest then: " in told
    assert "--memory=much: expected a size with its unit, such as 12GiB" in printed(
        capsys, "--memory=much"
    )


def test_a_limit_in_python():
    problem = from_model("mlp", batch_size=64, optimizer="sgd", workers=4)
    free = tofu.plan("mlp", workers=4, batch_size=64, allow_replication=True)
    size = held_bytes(free.details)
    found = tofu.plan(
        "mlp", workers=4, batch_size=64, allow_replication=True, memory=f"{size - 1}B"
    )
    assert problem.graph.hash == found.problem.graph.hash
    assert sum(found.memory.values()) < size
    with pytest.raises(MemoryLimitError, match=r"mlp: no plan .* fits in 1.0 MiB; the least"):
        tofu.plan("mlp", workers=2, batch_size=64, memory="1MiB")
    with pytest.raises(ConfigError, match=r"tofu\.plan: memory=huge: expected a size"):
        tofu.plan("mlp", workers=2, memory="huge")

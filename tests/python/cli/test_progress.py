"""Commands tell their long stages on a terminal, and only there."""

import contextlib
import json
import os
import pty
import subprocess
import sys

import pytest

pytest.importorskip("mxnet")

from tofu.cli import main
from tofu.plans import progress

from .test_cli import environment  # noqa: F401  (a fixture)
from .test_mutations import SYMBOL


@pytest.fixture
def told(monkeypatch):
    """The stages of a command, as a terminal would show them."""
    stages, found = [], []

    @contextlib.contextmanager
    def followed(follower):
        if not hasattr(follower, "doing"):  # a search, which tells more than its name
            yield
            return
        stages.append(follower.doing)
        found.append(", ".join(stages))
        yield
        stages.pop()

    monkeypatch.setattr(progress, "is_terminal", lambda: True)
    monkeypatch.setattr(progress, "_followed", followed)
    return found


GRAPH, MEMORY = "making the training graph of mlp", "predicting the memory"
ROWS = ("1 worker (row 1 of 2)", "2 workers (row 2 of 2)")


def counted(what):
    """The texts about a plan whose memory is counted."""
    return [what, f"{what}, {MEMORY}"]


WHOLE = "searching plans with whole tensors"
COMMANDS = {
    "plan": (
        ["plan", "--count=exact", "--format=html", "--explain=mlp_dense1_weight", "mlp"],
        [GRAPH, WHOLE, "explaining", MEMORY, "writing the page"],
    ),
    "compare": (
        ["compare", "--workers=2", "--search=tofu", "--count=exact", "mlp"],
        [GRAPH, "plan 1 of 2", *counted("plan 1 of 2"), "plan 2 of 2", *counted("plan 2 of 2")],
    ),
    "estimate": (
        ["estimate", "--workers=1,2", "mlp"],
        [GRAPH, ROWS[0], *counted(ROWS[0]), ROWS[1], *counted(ROWS[1])],
    ),
    "frontier": (
        ["frontier", "--workers=2", "--limits=1", "--rivals=", "--machine=p2.8xlarge", "mlp"],
        [
            GRAPH,
            "searching plans within memory limits",
            "plan 1 of 2, tiles by speed",
            "plan 2 of 2, tiles by speed",
            "fastest of all modes",
            *8 * ["fastest of all modes, simulating a step"],
            *counted("plan 1 of 2"),
            "plan 1 of 2, simulating a step",
            "every tensor cut, 1.08 x the computation",
        ],
    ),
    "simulate": (
        ["simulate", "--workers=2", "--machine=p2.8xlarge", "mlp"],
        [GRAPH, "simulating a step"],
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_tells_its_stages(name, told, capsys):
    command, stages = COMMANDS[name]
    with contextlib.suppress(SystemExit):  # with status 0
        main.main(command)
    assert told[: len(stages)] == stages
    assert len(told) == len(stages) or name == "frontier"
    assert capsys.readouterr().out


SLOW = """
import sys, time
from tofu.plans import progress
from tofu.mx.model import sources

progress._PATIENCE_S = progress._BETWEEN_S = 0.01
sources._on_gpus = lambda config: time.sleep(0.5)  # while the graph is made
from tofu.cli import main
main.main(sys.argv[1:])
"""


def test_a_forked_process_shows_its_stages_on_the_terminal(tmp_path):
    """A symbol is read in a process whose standard error is kept for the end."""
    path = tmp_path / "net-symbol.json"
    path.write_text(json.dumps(SYMBOL))
    leader, follower = pty.openpty()
    ran = subprocess.Popen(
        [sys.executable, "-c", SLOW, "plan", "--shape=data=4,6", "--count=estimate", path],
        stdout=subprocess.PIPE, stderr=follower, text=True,
    )  # fmt: skip
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while part := os.read(leader, 65536):
            shown += part
    os.close(leader)
    out, _ = ran.communicate(timeout=100)
    assert ran.returncode == 0
    assert "net-symbol.json" in out
    assert b"\r\x1b[Ktofu: making the training graph of net-symbol.json, 0 s" in shown
    assert shown.endswith(b"\r\x1b[K")

"""``tofu simulate`` of modules: a step on a described machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from tofu.cli.main import cli
from tofu.errors import ConfigError, PlanError
from tofu.plans.machine_files import read_machine
from tofu.torch.commands.models import MODELS
from tofu.torch.planning import plan
from tofu.torch.programs.module_simulation import simulate_module

MODULE = """
import torch
from tofu.torch.commands.models import MODELS

def gpt():
    return MODELS["gpt"](torch.float32)

def mlp():
    return MODELS["mlp"](torch.float32)

class Summary(torch.nn.Module):
    # Two queries, and the mean that each has of many keys.

    def __init__(self):
        super().__init__()
        self.query = torch.nn.Parameter(torch.randn(1, 1, 2, 8))

    def forward(self, keys):
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(self.query, keys, keys).sum()

def summary():
    return Summary(), (torch.randn(1, 1, 1 << 14, 8),)
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch) -> None:
    (tmp_path / "net_to_simulate.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def simulated(*options: str, module: str = "gpt") -> str:
    words = ["simulate", "--machine", "8xh100", *options, f"net_to_simulate:{module}"]
    ran = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_links_carry_the_bytes_of_the_plan_and_operators_have_their_submodules_names() -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    made = plan(model, inputs, mesh=(2, 2))
    found = simulate_module(made, read_machine("8xh100"), with_timeline=True)
    assert sum(link["bytes"] for link in found.links) == made.received_bytes > 0
    assert {each["allocated_bytes"] for each in found.workers} == {sum(made.memory.values())}
    names = {name.partition("@")[0] for name, *_ in found.timeline}
    assert "blocks.0.qkv.linear" in names
    longest = max(end for *_, end in found.timeline)
    assert found.step_seconds == pytest.approx(longest)


@pytest.mark.parametrize("objective", ["bytes", "time"])
def test_keys_that_hosts_share_are_simulated(objective) -> None:
    options = "--machine", "2x8v100", "--mesh", "2,8", "--objective", objective
    assert "16 workers on 2x8v100" in simulated(*options, module="summary")


def test_the_command_prints_tables_and_json() -> None:
    text = simulated("--mesh", "2,2")
    assert text.startswith("simulated: net_to_simulate:gpt, batch 8, 4 workers on 8xh100")
    assert "critical path of" in text
    document = json.loads(simulated("--mesh", "4", "--format", "json"))
    assert document["format"] == "tofu-simulation" and len(document["workers"]) == 4


def test_all_devices_of_a_machine_are_taken_by_default() -> None:
    words = ["simulate", "--machine", "8xh100", "net_to_simulate:gpt"]
    told = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert "8 workers on 8xh100" in told.stdout
    assert "of the meshes 8 or 2 x 4 or 2 x 2 x 2, " in told.stderr
    assert " is predicted to be fastest" in told.stderr


def test_a_plan_for_time_takes_less_than_one_for_bytes() -> None:
    options = "--mesh", "4", "--format", "json"
    by_objective = [
        json.loads(simulated(*options, "--objective", objective, module="mlp"))
        for objective in ("bytes", "time")
    ]
    ordinary, fast = (each["step_seconds"] for each in by_objective)
    assert 0 < fast < ordinary


@pytest.mark.parametrize("more", [("--optimizer", "sgd_mom"), ("--recompute", "all")])
def test_a_saved_plan_is_simulated(tmp_path, more: tuple[str, ...]) -> None:
    path = str(tmp_path / "net.plan")
    words = ["plan", "--mesh", "2,2", "--search", "data-parallel", *more, "--save", path]
    ran = CliRunner().invoke(cli, [*words, "net_to_simulate:gpt"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    document = json.loads(Path(path).read_text())
    step = json.loads(simulated("--plan", path, "--format", "json"))
    assert step == json.loads(simulated("--workers", "4", "--plan", path, "--format", "json"))
    assert sum(link["bytes"] for link in step["links"]) == document["plan"]["fetched_bytes"]
    held = {each["allocated_bytes"] for each in step["workers"]}
    assert held == {sum(document["memory"]["rank"].values())}
    for words in (["--mesh", "4"], ["--optimizer", "adam"], ["--objective", "time"]):
        with pytest.raises(ConfigError, match=f"{path}.*(2,2|{words[0]}|its own|again)"):
            simulated("--plan", path, *words)


def test_a_plan_of_mxnet_is_not_simulated_for_a_module(tmp_path) -> None:
    path = tmp_path / "other.plan"
    path.write_text('{"format": "tofu-plan-file"}')
    with pytest.raises(PlanError, match="not a plan of a torch module"):
        simulated("--plan", str(path))
    with pytest.raises(PlanError, match=r"none\.plan: cannot be read"):
        simulated("--plan", "none.plan")


def test_a_file_for_perfetto_is_written(tmp_path) -> None:
    path = tmp_path / "step.json"
    simulated("--mesh", "2,2", "--perfetto", str(path))
    events = json.loads(path.read_text())["traceEvents"]
    assert any(event["name"].startswith("blocks.0.") for event in events)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--mesh", "16"], "8xh100 has 8 devices"),
        (["--mesh", "4", "--workers", "4"], "give one"),
        (["--mesh", "4", "--batch-size", "4"], "--batch-size: a module comes with its inputs"),
    ],
    ids=["too many devices", "workers", "batch size"],
)
def test_what_modules_do_not_take_is_an_error(options, text) -> None:
    with pytest.raises(ConfigError, match=text):
        simulated(*options)

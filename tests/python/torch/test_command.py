"""The commands on modules of PyTorch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest
import torch
from click.testing import CliRunner

from tofu.cli.main import cli
from tofu.errors import ConfigError
from tofu.torch.models import MODELS

MODULE = """
import torch
from tofu.torch.models import MODELS

def mlp():
    return MODELS["mlp"](torch.float32)

def named():
    model, (data, label) = MODELS["mlp"](torch.float32)
    return model, (data,), {"label": label}

def wrong():
    return 3
"""


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Options become variables of the environment, for the processes that a command starts."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def module(tmp_path, monkeypatch) -> str:
    (tmp_path / "net_of_this_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return "net_of_this_test"


def output(*words: str) -> str:
    ran = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_plan_prints_tables_and_placements(module) -> None:
    text = output("plan", "--mesh", "2,2", f"{module}:mlp")
    assert text.startswith("4 workers (2 x 2), ")
    assert re.search(r"^ +first\.weight +\(Shard\(", text, re.MULTILINE)


def test_formats_agree(module) -> None:
    document = json.loads(output("plan", "--mesh", "2,2", "--format", "json", f"{module}:named"))
    python = output("plan", "--mesh", "2,2", "--format", "python", f"{module}:named")
    names: dict[str, dict[str, dict[str, object]]] = {}
    exec(python, names)  # type: ignore[arg-type]
    for kind, tensors in document["placements"].items():
        for name, text in tensors.items():
            assert str(names["placements"][kind][name]).replace("dim=", "") == text, name
    page = output("plan", "--mesh", "2", "--format", "html", f"{module}:mlp")
    assert page.lstrip().startswith("<!DOCTYPE html>") and '"peak":{"worker":0' in page


def test_memory_is_told(module) -> None:
    words = ("plan", "--mesh", "2,2", "--optimizer", "adam")
    text = output(*words, f"{module}:mlp")
    assert re.search(r"^ +a rank +one device\nparameters ", text, re.MULTILINE)
    told = json.loads(output(*words, "--format", "json", f"{module}:mlp"))
    assert told["memory"]["serial"]["parameters"] > 2 * told["memory"]["rank"]["parameters"] > 0
    kinds = told["plan"]["bytes_per_worker"]
    assert kinds["total"] == sum(told["memory"]["rank"].values())
    text = output(*words, "--peak", f"{module}:mlp")
    assert "needs most while it runs" in text and "MXNet" not in text


def test_pins_and_modes_apply(module) -> None:
    words = ("plan", "--mesh", "2,2", "--format", "json", "--pin", "first.weight=1,0")
    document = json.loads(output(*words, f"{module}:mlp"))
    assert document["placements"]["parameters"]["first.weight"] == "(Shard(1), Shard(0))"
    words = ("plan", "--mesh", "2,2", "--format", "json", "--search", "data-parallel")
    assert json.loads(output(*words, f"{module}:mlp"))["plan"]["mode"] == "data-parallel"


def test_choices_are_explained(module) -> None:
    words = ("plan", "--mesh", "2,2", "--explain", "first.weight", f"{module}:mlp")
    text = output(*words)
    assert text.startswith("Tensor first.weight") and "<-" in text and "Placements" not in text
    document = json.loads(output(*words, "--format", "json"))
    assert document["explanations"][0]["tensor"]["name"] == "first.weight"
    assert "step 1 of 2, in 2 parts" in output(*words, "--format", "html")


def test_a_machine_predicts_the_time_of_a_step(module) -> None:
    words = ("plan", "--mesh", "2,2", "--machine", "dgx-a100", f"{module}:mlp")
    assert "predicted" in output(*words)
    words = (*words, "--format", "json")
    plans = [json.loads(output(*words, *more))["plan"] for more in ((), ("--objective", "time"))]
    assert [plan.get("objective", "bytes") for plan in plans] == ["bytes", "time"]
    assert plans[1]["predicted"]["step_ns"] <= plans[0]["predicted"]["step_ns"]


def test_a_saved_program_is_planned(tmp_path) -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    path = str(tmp_path / "mlp.pt2")
    torch.export.save(torch.export.export(model, inputs), path)
    document = json.loads(output("plan", "--mesh", "2", "--format", "json", path))
    assert set(document["placements"]["parameters"]) == {n for n, _ in model.named_parameters()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mesh", "2", "NET:none"], "cannot be imported"),
        (["--mesh", "2", "not_there:mlp"], "cannot be imported"),
        (["--mesh", "2", "NET:wrong"], "returned int; expected"),
        (["--mesh", "2", "not_there.pt2"], "no such file"),
        (["--mesh", "2,x", "NET:mlp"], "expected the sizes of its dimensions"),
        (["--mesh", "0", "NET:mlp"], "expected the sizes of its dimensions"),
        (["--mesh", "2", "mlp"], "expected package.module:function or FILE.pt2"),
        (["NET:mlp"], "give the devices, such as --mesh 2,4"),
        (["--mesh", "2", "--workers", "2", "NET:mlp"], "--workers is not for PyTorch"),
        (["--mesh", "2", "--layers", "NET:mlp"], "--layers is not for PyTorch"),
        (["--mesh", "2", "--explain", "none", "NET:mlp"], "has no tensor or operator of that name"),
        (["--mesh", "2", "--machine", "none", "NET:mlp"], "none"),
        (["--format", "python", "mlp"], "only for a module of PyTorch"),
    ],
)
def test_bad_input_is_one_error(module, words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        output("plan", *(word.replace("NET", module) for word in words))
    assert said in str(caught.value)


def test_verify_runs_the_calls_of_modules(module) -> None:
    text = output("verify", "--framework", "torch", "mlp", f"{module}:mlp")
    assert text.count(" 0 false") == 2
    with pytest.raises(ConfigError, match="nothing: expected package"):
        output("verify", "--framework", "torch", "nothing")

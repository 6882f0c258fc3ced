"""The commands on modules of PyTorch."""

from __future__ import annotations

import json
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tofu import _core
from tofu.cli.main import cli
from tofu.errors import ConfigError, MemoryLimitError, PlanError, TofuError
from tofu.torch import planning
from tofu.torch.commands.models import MODELS
from tofu.torch.commands.module_model import meshes_of
from tofu.torch.graphs.torch_plan import spec_text

MODULE = """
import torch
from tofu.torch.commands.models import MODELS

def mlp():
    return MODELS["mlp"](torch.float32)

def named():
    model, (data, label) = MODELS["mlp"](torch.float32)
    return model, (data,), {"label": label}

def wrong():
    return 3
"""

ON_GPUS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.layer, self.device = nn.Linear(8, 8), device

    def forward(self, data):
        return self.layer(data) + torch.ones(8, device=self.device)

def plain():
    return Net("cpu"), (torch.ones(4, 8),)

def named():
    gpu = torch.device("cuda", 1)
    data = torch.ones(4, 8, device="cuda:1").pin_memory()
    return Net(gpu).to("cuda").to(gpu).cuda(), (data.to(gpu, torch.float32).cuda(1),)
"""


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Restore the environment: commands set variables for the processes that they start."""
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


def test_layers_are_the_modules_submodules(module) -> None:
    text = output("plan", "--mesh", "2,2", "--layers", f"{module}:mlp")
    assert re.search(r"^first +\S+ KiB ", text, re.MULTILINE)
    page = output("plan", "--mesh", "2,2", "--format", "html", f"{module}:mlp")
    assert f'"command":["tofu plan --mesh 2,2","{module}:mlp"]' in page


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


def test_specs_of_jax_cut_as_placements_do(module, monkeypatch) -> None:
    sharding = types.SimpleNamespace(PartitionSpec=lambda *dims: dims)
    monkeypatch.setitem(sys.modules, "jax.sharding", sharding)
    monkeypatch.setitem(sys.modules, "jax", types.ModuleType("jax"))
    words = ("plan", "--mesh", "2,2", "--format")
    text = output(*words, "jax", f"{module}:mlp")
    assert "# For jax.make_mesh((2, 2), ('d0', 'd1'))." in text
    names: dict[str, Any] = {}
    exec(text, names)
    document = json.loads(output(*words, "json", f"{module}:mlp"))
    for kind, tensors in document["placements"].items():
        for name, placed in tensors.items():
            spec = names["specs"][kind][name]
            dims = dict.fromkeys(("d0", "d1"), "Replicate()")
            for dim, axes in enumerate(spec):
                for axis in (axes,) if isinstance(axes, str) else axes or ():
                    dims[axis] = f"Shard({dim})"
            assert f"({', '.join(dims.values())})" == placed, name
    assert spec_text((1, 1, -1), ("d0", "d2", "d3"), 3) == 'P(None, ("d0", "d2"))'
    assert spec_text((-1,), ("d0",), 2) == "P()"


def test_saved_plans_are_shown_and_compared(module, tmp_path) -> None:
    paths = []
    for mesh in ("2", "2,2"):
        paths.append(tmp_path / f"{len(paths)}.json")
        paths[-1].write_text(
            output("plan", "--mesh", mesh, "--format", "json", f"{module}:mlp"), encoding="utf-8"
        )
    shown = output("show", str(paths[1]), "first.weight")
    assert "search mode" in shown and re.search(r"^first\.weight ", shown, re.MULTILINE)
    ran = CliRunner().invoke(cli, ["diff", *map(str, paths)], catch_exceptions=False)
    assert ran.exit_code == 1 and "first.weight" in ran.output
    ran = CliRunner().invoke(cli, ["diff", str(paths[0]), str(paths[0])], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    paths[0].write_text('{"format": "tofu-torch-plan", "plan": {}}', encoding="utf-8")
    with pytest.raises(ConfigError, match="damaged"):
        output("show", str(paths[0]))


def test_a_limit_of_memory_is_met_or_told(module) -> None:
    words = ("plan", "--mesh", "2", "--format", "json", f"{module}:mlp")
    held = sum(json.loads(output(*words))["memory"]["rank"].values())
    told = json.loads(output(*words, "--memory", f"{held}B"))
    assert sum(told["memory"]["rank"].values()) <= held
    again = json.loads(output(*words, "--recompute", "all"))
    assert sum(again["memory"]["rank"].values()) <= held
    with pytest.raises(MemoryLimitError, match="no plan over 2 workers"):
        output(*words, "--memory", "1000B")


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


def test_a_module_that_names_gpus_is_planned_without_any(tmp_path, monkeypatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("there are GPUs")
    (tmp_path / "net_on_gpus.py").write_text(ON_GPUS)
    monkeypatch.syspath_prepend(tmp_path)
    plans = [
        json.loads(output("plan", "--mesh", "2", "--format", "json", f"net_on_gpus:{name}"))
        for name in ("plain", "named")
    ]
    assert plans[0]["plan"]["graph_hash"] == plans[1]["plan"]["graph_hash"]
    with pytest.raises((AssertionError, RuntimeError)):
        torch.ones(2, device="cuda")


def test_memory_is_estimated_over_meshes(module) -> None:
    words = ("estimate", f"{module}:mlp", "--mesh", "2", "--mesh", "2,2")
    document = json.loads(output(*words, "--format", "json"))
    alone, two, four = document["estimates"]
    assert (alone["mesh"], four["workers"]) == ([1], 4)
    kinds = alone["bytes_per_worker"]
    assert kinds["parameters"] > two["bytes_per_worker"]["parameters"] > 0
    sums = alone["total_bytes"]
    assert sums["adam"] - sums["sgd_mom"] == sums["sgd_mom"] - sums["sgd"] > 0
    assert alone["communicated_bytes"] == 0 < two["communicated_bytes"]
    text = output(*words, "--gpu-memory", "1GiB")
    assert "It fits in 1.0 GiB with adam without tofu." in text
    ran = CliRunner().invoke(cli, (*words, "--gpu-memory", "1KiB"))
    assert ran.exit_code == 1 and "Nothing fits in 1.0 KiB with adam: the least is" in ran.output


def test_a_predicted_step_counts_memory_once(module, monkeypatch) -> None:
    counted, count = [], planning.held_by_rank
    monkeypatch.setattr(planning, "held_by_rank", lambda plan: counted.append(plan) or count(plan))
    output("estimate", f"{module}:mlp", "--mesh", "2", "--mesh", "2,2", "--machine", "8xh100")
    assert len(counted) == 3  # one device, and two meshes


def test_plans_of_the_frontier_beat_each_other(module) -> None:
    words = ("frontier", f"{module}:mlp", "--mesh", "2,2", "--limits", "3", "--rivals")
    document = json.loads(output(*words, "data-parallel", "--format", "json"))
    kept = document["frontier"]
    assert [each["name"] for each in document["rivals"]] == ["data-parallel"]
    held = [each["held_bytes"] for each in kept]
    assert held == sorted(held) and kept[0]["step_seconds"] is None
    timed = json.loads(output(*words, "", "--machine", "dgx-a100", "--format", "json"))
    assert all(each["step_seconds"] > 0 for each in timed["frontier"])
    plan = ("plan", "--mesh", "2,2", "--search", "recursion", "--format", "json", f"{module}:mlp")
    planned = json.loads(output(*plan))
    own = json.loads(output(*words, "recursion", "--format", "json"))["rivals"][0]
    assert own["held_bytes"] == sum(planned["memory"]["rank"].values())
    with pytest.raises(PlanError, match="no plan over 4 workers fits in 100 bytes; tofu estimate"):
        output(*words, "", "--memory", "100B")


def test_searches_of_a_module_are_compared(module) -> None:
    words = ("compare", f"{module}:mlp", "--mesh", "2,2", "--mesh", "4", "--search", "tofu")
    plans = json.loads(output(*words, "--format", "json"))["plans"]
    assert [(each["mesh"], each["replication"]) for each in plans] == [
        ([2, 2], False), ([2, 2], True), ([4], False), ([4], True),
    ]  # fmt: skip
    plan = json.loads(output("plan", "--mesh", "2,2", "--format", "json", f"{module}:mlp"))["plan"]
    assert plans[0]["bytes"] == plan["total_bytes"]
    assert re.search(r"^ *2 x 2  tofu", output(*words), re.MULTILINE)
    timed = (*words, "--machine", "dgx-a100", "--objective", "both", "--format", "json")
    found = json.loads(output(*timed))["plans"]
    assert len(found) == 8 and all(each["step_seconds"] > 0 for each in found)


def test_the_meshes_of_a_number_of_workers_are_searched(module) -> None:
    words = ("--workers", "2,4", "--search", "tofu", "--format", "json", f"{module}:mlp")
    plans = json.loads(output("compare", *words))["plans"]
    assert [each["mesh"] for each in plans[::2]] == [[2], [4], [2, 2]]
    words = ("--workers", "4", "--limits", "1", "--rivals", "tofu", "--quick")
    told = json.loads(output("frontier", *words, "--format", "json", f"{module}:mlp"))
    assert [each["name"] for each in told["rivals"]] == ["tofu, 4", "tofu, 2 x 2"]
    assert meshes_of(1) == [(1,)]
    assert meshes_of(12) == [(12,), (2, 6), (2, 2, 3), (3, 4)]


def test_a_module_is_trained_whole_and_on_a_mesh(module) -> None:
    words = ("check", f"{module}:named", "--workers", "2", "--steps", "2")
    found = json.loads(output(*words, "--format", "json"))
    assert not found["fault"] and "rounding only" in found["verdict"]
    places = {(each["step"], each["kind"], each["name"]) for each in found["tensors"]}
    assert {(2, "gradient", "first.weight"), (2, "weight", "first.weight")} <= places
    assert all(each["double"] <= 1e-9 for each in found["tensors"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["estimate", "--mesh", "2,x", "NET:mlp"], "expected the sizes of its dimensions"),
        (["estimate", "--mesh", "2", "--batch-size", "3", "NET:mlp"], "comes with its inputs"),
        (["frontier", "NET:mlp"], "give the devices, such as --workers 8"),
        (
            ["compare", "--mesh", "2", "--describe", __file__, "NET:mlp"],
            "for MXNet's operators",
        ),
        (["compare", "--mesh", "2", "--workers", "2", "NET:mlp"], "give one"),
        (["frontier", "--workers", "2,4", "NET:mlp"], "expected one number of workers"),
        (["compare", "--mesh", "2", "NET:mlp", "more"], "'more': a module takes no arguments"),
        (["check", "NET:mlp"], "give the one mesh to check, such as --mesh 2,2"),
        (["check", "--workers", "4", "NET:mlp"], "such as --mesh 4 or --mesh 2,2"),
        (["check", "--mesh", "2", "--describe", __file__, "NET:mlp"], "for MXNet's operators"),
        (["check", "--mesh", "2", "--workers", "2", "NET:mlp"], "give one"),
        (["check", "--mesh", "2", "NET:mlp", "more"], "'more': a module takes no arguments"),
        (["check", "--mesh", "2", "NET:not_there"], "cannot be imported"),
        (
            ["trace", "NET:mlp"],
            "a module of PyTorch; only tofu plan, estimate, compare, check, frontier and simulate",
        ),
    ],
)
def test_what_is_not_for_modules_is_refused(module, words: list[str], said: str) -> None:
    with pytest.raises(TofuError) as caught:
        output(*(word.replace("NET", module) for word in words))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mesh", "2", "NET:none"], "cannot be imported"),
        (["--mesh", "2", "not_there:mlp"], "cannot be imported"),
        (["--mesh", "2", "NET:wrong"], "returned int; expected"),
        (["--mesh", "2", "not_there.pt2"], "no such file"),
        (["--mesh", "2", "a" * 3000 + ".pt2"], "no such file"),
        (["--mesh", "2", ":mlp"], "expected package.module:function"),
        (["--mesh", "2", ".relative:mlp"], "expected package.module:function"),
        (["--mesh", "2,x", "NET:mlp"], "expected the sizes of its dimensions"),
        (["--mesh", "0", "NET:mlp"], "expected the sizes of its dimensions"),
        (["--mesh", "2", "mlp"], "expected package.module:function or FILE.pt2"),
        (["NET:mlp"], "give the devices, such as --workers 8, or --mesh 2,4"),
        (["--mesh", "2", "--workers", "2", "NET:mlp"], "give one"),
        (["--mesh", "2", "--fetch", "plain", "NET:mlp"], "--fetch: ranks send messages"),
        (["--mesh", "2", "--graph", "5", "NET:mlp"], "NET:mlp has 1 graph"),
        (["--mesh", "2", "--describe", __file__, "NET:mlp"], "for MXNet's operators"),
        (["--mesh", "2", "--explain", "none", "NET:mlp"], "has no tensor or operator of that name"),
        (["--mesh", "2", "--machine", "none", "NET:mlp"], "none"),
    ],
)
def test_bad_input_is_one_error(module, words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        output("plan", *(word.replace("NET", module) for word in words))
    assert said.replace("NET", module) in str(caught.value)


def test_the_best_mesh_of_a_number_of_workers_is_planned(module) -> None:
    words = ("--workers", "4", "--format", "json", f"{module}:mlp")
    ran = CliRunner().invoke(cli, ("plan", *words), catch_exceptions=False)
    sent = {mesh: json.loads(output("plan", "--mesh", mesh, *words[2:]))["plan"]["total_bytes"]
            for mesh in ("4", "2,2")}  # fmt: skip
    told = json.loads(ran.stdout)
    assert told["plan"]["total_bytes"] == min(sent.values())
    best = " x ".join(map(str, told["mesh"]))
    assert f"of the meshes 4, 2 x 2, {best} sends least" in ran.stderr
    pinned = ("--pin", "first.weight=1,0", *words)  # two cuts, so the mesh has two dimensions
    assert json.loads(output("plan", *pinned).partition("\n")[2])["mesh"] == [2, 2]


def test_saved_plans_of_modules_are_the_documents_that_are_printed(module, tmp_path) -> None:
    path = tmp_path / "saved.json"
    words = ("plan", "--mesh", "2", "--format", "json", f"{module}:mlp")
    printed = json.loads(output(*words, "--save", str(path)))
    saved = json.loads(path.read_text(encoding="utf-8"))
    for each in (printed, saved):
        del each["plan"]["search_seconds"]
    assert saved == printed
    output("frontier", "--mesh", "2", "--limits", "1", "--rivals", "", "--quick", "--save",
           str(path), f"{module}:mlp")  # fmt: skip
    assert "search mode" in output("show", str(path))
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="stays as it is"):
        output(*words, "--save", str(path))
    assert path.read_text(encoding="utf-8") == "mine"


def test_recomputation_lowers_a_modules_estimate(module) -> None:
    words = ("estimate", "--mesh", "2", "--format", "json", f"{module}:mlp")
    kept, again = (json.loads(output(*words, "--recompute", each)) for each in ("none", "all"))
    held = [each["estimates"][0]["total_bytes"]["sgd"] for each in (again, kept)]
    assert held[0] <= held[1]
    rows = output("estimate", "--workers", "1,4", "--format", "csv", f"{module}:mlp").splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [["1", "1"], ["4", "4"], ["4", "2 x 2"]]


def test_verify_runs_the_calls_of_modules(module) -> None:
    text = output("verify", "--framework", "torch", "mlp", f"{module}:mlp", f"{module}:named")
    assert text.count(" 0 false") == 3
    with pytest.raises(ConfigError, match="nothing: expected package"):
        output("verify", "--framework", "torch", "nothing")
    with pytest.raises(ConfigError, match="--format: modules have lines of text only"):
        output("verify", "--framework", "torch", "--format", "json", "mlp")


def test_a_problem_is_exported_and_its_plan_comes_back(module, tmp_path) -> None:
    target, folder = f"{module}:mlp", tmp_path / "problem"
    output("export", "--mesh=2,2", "--output", str(folder), target)
    graph = _core.Graph((folder / "graph.json").read_text())
    table = _core.StrategyTable((folder / "table.json").read_text(), graph)
    text = (folder / "plan.json").read_text()
    plan = _core.Plan(text, table)
    words = ("plan", "--cuts", str(folder / "plan.json"), "--format=json", target)
    first = output(*words)
    (folder / "plan.json").write_text(first)
    for priced in (json.loads(first), json.loads(output(*words))):
        assert priced["mesh"] == [2, 2]
        assert priced["plan"]["total_bytes"] == plan.total_bytes
    with pytest.raises(ConfigError, match=r"give one mesh: --mesh 4 or --mesh 2,2"):
        CliRunner().invoke(
            cli, ["export", "--workers=4", "--output", str(folder), target], catch_exceptions=False
        )

"""Plans of modules: placements, documents, errors. No module runs."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch.distributed.tensor import Shard

import tofu.torch
from tofu.errors import ConfigError, PlanError
from tofu.planner.wish import Wish
from tofu.plans import SearchOptions
from tofu.torch.commands.models import MODELS
from tofu.torch.graphs.torch_plan import read_plan
from tofu.torch.graphs.traced import Entry
from tofu.torch.planning import plan_traced
from tofu.torch.programs.rank_graph import RankGraph


@pytest.fixture(scope="module")
def planned() -> tofu.torch.TorchPlan:
    model, inputs = MODELS["mlp"](torch.float32)
    return tofu.torch.plan(model, inputs, mesh=(2, 2))


def test_every_parameter_input_and_output_has_a_placement(planned) -> None:
    model, _ = MODELS["mlp"](torch.float32)
    assert set(planned.placements["parameters"]) == {n for n, _ in model.named_parameters()}
    assert set(planned.placements["buffers"]) == {n for n, _ in model.named_buffers()}
    assert set(planned.placements["inputs"]) == {"input0", "input1"}
    assert set(planned.placements["outputs"]) == {"output0"}


def test_steps_are_the_dimensions_of_the_mesh() -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=(2, 4))
    assert plan.details.parts == (2, 4)
    assert plan.details.workers == 8


def test_placements_are_python(planned) -> None:
    names: dict[str, object] = {}
    exec(planned.to_python(), names)
    placements = names["placements"]["parameters"]["first.weight"]  # type: ignore[index]
    assert len(placements) == 2 and all(isinstance(p, Shard) for p in placements)


def test_gradients_are_cut_as_their_parameters(planned) -> None:
    for name, entry in planned.traced.gradients.items():
        assert planned.cuts[entry] == planned.cuts[Entry(name)], name


def test_only_described_operators_are_planned(planned) -> None:
    assert planned.undescribed == {}


def test_a_document_is_read_back(planned) -> None:
    again = read_plan(planned.to_json(), planned.traced, (2, 2), "file")
    assert again.placements == planned.placements
    assert json.loads(again.to_json()) == json.loads(planned.to_json())


@pytest.mark.parametrize("name", ["gpt", "unet"])
def test_a_plan_that_was_read_runs_alike(name) -> None:
    """Rank 0 runs the plan that it has made, the others the one that they read."""
    model, inputs = MODELS[name](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=(2, 2))
    again = read_plan(plan.to_json(), plan.traced, (2, 2), "file")

    def parts(graph: RankGraph) -> list[object]:
        fetches = graph.fetches.values()
        moved = [(graph.region(group), graph.sent(group)) for group in fetches]
        return [list(graph.calls.values()), list(fetches), moved]

    for rank in range(4):
        assert parts(RankGraph(plan, rank)) == parts(RankGraph(again, rank))


def test_a_plan_for_another_mesh_is_rejected(planned) -> None:
    with pytest.raises(PlanError, match=r"made for the mesh \(2, 2\), but the mesh is \(4,\)"):
        read_plan(planned.to_json(), planned.traced, (4,), "file")


def test_a_plan_for_other_shapes_is_rejected(planned) -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    traced = tofu.torch.trace(model, [torch.cat([x, x]) for x in inputs])
    with pytest.raises(PlanError, match=r"input0 had the shape \(8, 16\), but now has \(16, 16\)"):
        read_plan(planned.to_json(), traced, (2, 2), "file")


def test_a_plan_for_another_module_is_rejected(planned) -> None:
    traced = tofu.torch.trace(*MODELS["gpt"](torch.float32))
    with pytest.raises(PlanError, match="is not in it: the module has changed since"):
        read_plan(planned.to_json(), traced, (2, 2), "file")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "tofu-plan", "version": 1}'])
def test_another_document_is_rejected(planned, text: str) -> None:
    with pytest.raises(PlanError, match="not a plan of a torch module"):
        read_plan(text, planned.traced, (2, 2), "file")


@pytest.mark.parametrize("mesh", [(), (0,), (2, -1), "ab", 4])
def test_a_mesh_has_sizes(mesh) -> None:
    model, inputs = MODELS["mlp"](torch.float32)
    with pytest.raises(ConfigError, match="expected sizes of at least 1"):
        tofu.torch.plan(model, inputs, mesh=mesh)


def test_a_module_without_data_is_planned() -> None:
    with torch.device("meta"):
        model, inputs = MODELS["gpt"](torch.float32)
    plan = tofu.torch.plan(model, inputs, mesh=(2,))
    model, inputs = MODELS["gpt"](torch.float32)
    assert plan.placements == tofu.torch.plan(model, inputs, mesh=(2,)).placements


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
@pytest.mark.parametrize("name", ["gpt", "mlp"])
def test_replication_finds_data_parallelism_where_it_is_cheaper(name, mesh) -> None:
    traced = tofu.torch.trace(*MODELS[name](torch.float32))
    found = {
        options: plan_traced(traced, mesh, wish=Wish(options, exact=False)).bytes
        for options in (
            SearchOptions(),
            SearchOptions(allow_replication=True),
            SearchOptions(mode="data-parallel"),
        )
    }
    cut, replicated, data_parallel = found.values()
    assert replicated <= min(cut, data_parallel)


class Spectrum(torch.nn.Module):
    """A layer, and an operator that no plan can divide."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, data):
        return torch.fft.rfft(self.linear(data)).abs().mean()


def test_what_stays_whole_is_told_with_its_cost() -> None:
    text = tofu.torch.plan(Spectrum(), (torch.randn(64, 8),), mesh=(2,)).to_text()
    told = re.search(r"Whole on every rank: (\d+) of (\d+) operators, .* write ([\d.]+) KiB", text)
    assert told is not None, text
    assert 0 < int(told[1]) < int(told[2]) and float(told[3]) >= (64 * 8 * 4 + 64 * 5 * 8) / 1024
    row = r"^  Spectrum\.fft_r2c +aten\._fft_r2c\.default +[\d.]+ KiB$"
    assert re.search(row, text, re.MULTILINE), text
    alone = tofu.torch.plan(Spectrum(), (torch.randn(64, 8),), mesh=(1,)).to_text()
    assert "Whole on every rank" not in alone

"""The benchmarks of PyTorch run on tiny modules."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from tofu.torch.commands.models import MODELS

from .ranks import on_ranks


@pytest.fixture
def run(import_script, monkeypatch, tmp_path):
    """Run a benchmark with --smoke, and return its rows."""

    def rows(name):
        output = tmp_path / f"{name}.json"
        monkeypatch.setattr(sys, "argv", [f"{name}.py", "--smoke", "--output", str(output)])
        import_script(name).main()
        return json.loads(output.read_text())["rows"]

    return rows


def test_all_ways_are_timed(run) -> None:
    pytest.importorskip("transformers")
    rows = run("torch_step")
    assert [row["way"] for row in rows] == [
        "planned, 4", "planned, 2 x 2", "with replication, 4", "with replication, 2 x 2",
        "FSDP2", "DDP", "tensor parallel",
    ]  # fmt: skip
    losses = [row["loss"] for row in rows]
    assert losses == pytest.approx(losses[:1] * 7, rel=1e-5)
    assert all(row["step_s"][0] > 0 and row["processor_s"][0] > 0 for row in rows)
    whole = {row["way"]: row["peak_bytes"] for row in rows}
    assert 0 < whole["planned, 2 x 2"] < whole["DDP"]


def test_all_ways_are_counted(run, capsys) -> None:
    rows = run("torch_bytes")
    sent = {row["way"]: row["bytes"] for row in rows}
    assert len(sent) == 5 and "| gpt | 2 x 2 | data parallel |" in capsys.readouterr().out
    model, _ = MODELS["gpt"](torch.float32)
    assert sent["FSDP2 (formula)"] == 3 * 3 * sum(p.nbytes for p in model.parameters())
    assert 0 < sent["search, with replication"] <= sent["search"]


def test_models_train_as_the_whole(run, capsys) -> None:
    pytest.importorskip("transformers")
    rows = run("torch_models")
    assert [row["model"] for row in rows] == ["gpt2", "lstm"]
    assert all(row["loss"] < 1e-5 and row["gradient"] < 1e-4 and row["bytes"] > 0 for row in rows)
    assert "| gpt2 | text | " in capsys.readouterr().out


def of_a_family(name: str) -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "torch_families.py"
    spec = importlib.util.spec_from_file_location("torch_families", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    row = script.measured(name, script.first_that_runs(name), (2,))
    assert row["outcome"] == "equal" and row["parameters"] < 100_000, row


def test_a_model_of_a_family_trains_as_the_whole(import_script) -> None:
    pytest.importorskip("transformers")
    on_ranks(2, of_a_family, "gpt2")
    script = import_script("torch_families")
    assert {"gpt2", "vit", "t5"} <= script.families().keys()
    rows = [
        {"family": "a", "model": "A", "outcome": "equal"},
        {"family": "b", "model": "B", "outcome": "refused", "reason": "why | not"},
    ]
    assert script.lines(rows)[0] == "1 equal, 1 refused"
    assert script.lines(rows)[-1] == "| b | B | refused | why / not |"


def test_ranks_train_as_the_whole(run, capsys) -> None:
    (row,) = run("torch_ranks")
    assert row["ranks"] == 4 and row["loss"] < 1e-12 and row["gradient"] < 1e-12
    assert row["start_s"] > row["program_s"] > 0 and row["own_mib"] > 0
    assert "| 4 | 2 x 2 |" in capsys.readouterr().out

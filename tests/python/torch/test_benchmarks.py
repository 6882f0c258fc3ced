"""The benchmarks of PyTorch run, on tiny modules."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from tofu.torch.models import MODELS

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def run(name: str, folder: Path) -> None:
    """Run a benchmark with --smoke."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, script)
        patch.setattr(sys, "argv", [f"{name}.py", "--smoke", "--output", str(folder)])
        spec.loader.exec_module(script)
        script.main()


def test_all_ways_are_timed(tmp_path) -> None:
    run("torch_step", tmp_path)
    rows = json.loads((tmp_path / "torch_step.json").read_text())["rows"]
    assert [row["way"] for row in rows] == [
        "planned", "planned, with replication", "FSDP2", "tensor parallel",
    ]  # fmt: skip
    losses = [row["loss"] for row in rows]
    assert losses == pytest.approx(losses[:1] * 4, rel=1e-5)
    assert all(row["median_s"] >= row["least_s"] > 0 and row["bytes"] > 0 for row in rows)


def test_all_ways_are_counted(tmp_path, capsys) -> None:
    run("torch_bytes", tmp_path)
    rows = json.loads((tmp_path / "torch_bytes.json").read_text())["rows"]
    sent = {row["way"]: row["bytes"] for row in rows}
    assert len(sent) == 5 and "| gpt | 2 x 2 | data parallel |" in capsys.readouterr().out
    model, _ = MODELS["gpt"](torch.float32)
    assert sent["FSDP2 (formula)"] == 3 * 3 * sum(p.nbytes for p in model.parameters())
    assert 0 < sent["search, with replication"] <= sent["search"]

"""benchmarks/torch_bytes.py plans in several ways."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import torch

from tofu.torch.models import MODELS

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def test_all_ways_are_counted(tmp_path, monkeypatch, capsys) -> None:
    spec = importlib.util.spec_from_file_location("torch_bytes", BENCHMARKS / "torch_bytes.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    words = ["torch_bytes.py", "--smoke", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    rows = json.loads((tmp_path / "torch_bytes.json").read_text())["rows"]
    sent = {row["way"]: row["bytes"] for row in rows}
    assert len(sent) == 5 and "| gpt | 2 x 2 | data parallel |" in capsys.readouterr().out
    model, _ = MODELS["gpt"](torch.float32)
    assert sent["FSDP2 (formula)"] == 3 * 3 * sum(p.nbytes for p in model.parameters())
    assert 0 < sent["search, with replication"] <= sent["search"]

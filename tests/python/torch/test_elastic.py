"""Training goes on with other numbers of ranks, from the last whole checkpoint."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from .ranks import on_ranks

EXAMPLE = Path(__file__).parents[3] / "examples" / "torch_elastic.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("torch_elastic", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(folder: str, steps: int) -> None:
    example().train(Path(folder), steps)


def test_fewer_ranks_go_on_with_the_same_losses(tmp_path) -> None:
    on_ranks(3, train, str(tmp_path), 2)
    partial = tmp_path / "new"  # as a rank that dies while it saves leaves it
    partial.mkdir()
    (partial / ".metadata").write_text("cut off")
    on_ranks(2, train, str(tmp_path), 4)
    found = [json.loads(line) for line in (tmp_path / "losses").read_text().splitlines()]
    assert [(each["step"], each["ranks"]) for each in found] == [(0, 3), (1, 3), (2, 2), (3, 2)]
    module = example()
    model = module.made()
    optimizer = module.made_optimizer(model)
    losses = [module.train_step(model, optimizer, step) for step in range(4)]
    assert [each["loss"] for each in found] == pytest.approx(losses, rel=1e-12)
    assert [path.name for path in tmp_path.glob("step*")] == ["step000003"]

"""Hugging Face's Trainer trains a distributed model as it trains the whole."""

from __future__ import annotations

import copy
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import tofu.torch

from .ranks import on_ranks

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, which Trainer uses")
EXAMPLE = Path(__file__).parents[3] / "examples" / "torch_trainer.py"


def trained(folder: str) -> None:
    os.chdir(folder)
    spec = importlib.util.spec_from_file_location("torch_trainer", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    for name in example.TORCHRUN:
        os.environ.pop(name, None)
    whole, data = example.made()
    batch = torch.stack([each["input_ids"] for each in data[: example.BATCH]])
    parts = tofu.torch.parallelize(
        copy.deepcopy(whole), (2,), (), {"input_ids": batch, "labels": batch}
    )
    losses = [example.train(model, data, "out") for model in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and len(losses[0]) == example.STEPS + 1


def test_trainer_trains_as_the_whole(tmp_path) -> None:
    on_ranks(2, trained, str(tmp_path))

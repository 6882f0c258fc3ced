"""Hugging Face's Trainer and accelerate train a distributed model as they train the whole."""

from __future__ import annotations

import copy
import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import tofu.torch

from .ranks import on_ranks

pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate, which Trainer uses")
EXAMPLE = Path(__file__).parents[3] / "examples" / "torch_trainer.py"


def as_torchrun() -> Any:
    """Give this rank torchrun's variables; returns the example."""
    rank, size = str(dist.get_rank()), str(dist.get_world_size())
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size)
    spec = importlib.util.spec_from_file_location("torch_trainer", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.take_for_one()
    return example


def trained(folder: str) -> None:
    os.chdir(folder)
    example = as_torchrun()
    whole, data = example.made()
    batch = torch.stack([each["input_ids"] for each in data[: example.BATCH]])
    parts = tofu.torch.parallelize(
        copy.deepcopy(whole), (2,), (), {"input_ids": batch, "labels": batch}
    )
    losses = [example.train(model, data, "out") for model in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and len(losses[0]) == example.STEPS + 1


def accelerated() -> None:
    from accelerate import Accelerator

    example = as_torchrun()
    whole, data = example.made()
    batch = torch.stack([each["input_ids"] for each in data[: example.BATCH]])
    named = {"input_ids": batch, "labels": batch}
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (), named)
    found: list[list[float]] = []
    for model in (whole, parts):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer, loader = accelerator.prepare(
            model, torch.optim.AdamW(model.parameters(), 1e-2), DataLoader(data, example.BATCH)
        )
        found.append([])
        for each in loader:
            with accelerator.accumulate(model):
                loss = model(**each).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    found[-1].append(float(accelerator.clip_grad_norm_(model.parameters(), 0.5)))
                optimizer.step()
                optimizer.zero_grad()
            found[-1].append(float(accelerator.gather(loss)))
    assert found[0] == pytest.approx(found[1], rel=1e-5) and len(found[0]) == 6


def wrapped() -> None:
    model = tofu.torch.parallelize(torch.nn.Linear(4, 4), (2,), torch.ones(6, 4))
    with pytest.raises(RuntimeError, match=r"is already distributed.*hugging-face\.md"):
        DistributedDataParallel(model)


def test_trainer_trains_as_the_whole(tmp_path) -> None:
    on_ranks(2, trained, str(tmp_path))


def test_accelerate_trains_as_the_whole() -> None:
    on_ranks(2, accelerated)


def test_a_second_wrapper_is_refused() -> None:
    on_ranks(2, wrapped)

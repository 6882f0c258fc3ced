"""Trains on as many ranks as there are, and goes on with fewer, or more, after one has died.

    torchrun --nnodes 1:4 --nproc-per-node 1 --max-restarts 20 --rdzv-backend c10d \
        --rdzv-endpoint HOST:29400 examples/torch_elastic.py build/elastic

torchrun starts the ranks that are left again. They plan for their own number, load the last
checkpoint, and take the steps since then once more: docs/elastic.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict as states

import tofu.torch

STEPS, BATCH, FEATURES = 40, 12, 16


def made() -> nn.Module:
    """A small model, alike on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1)).double()


def made_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model, which is distributed already or stays whole."""
    return torch.optim.Adam(model.parameters(), lr=0.01)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data and targets of a step: the whole batch, on every rank."""
    generator = torch.Generator().manual_seed(step)
    data = torch.randn(BATCH, FEATURES, generator=generator, dtype=torch.float64)
    return data, data.square().sum(1, keepdim=True)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> float:
    """Take a step; returns the loss."""
    data, target = batch(step)
    loss = nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


class Checkpoints:
    """The checkpoints of a run, of which only whole ones count.

    Args:
        folder: on storage that all ranks share.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Save what the next step needs; a rank that dies meanwhile leaves the one before."""
        new = self._folder / "new"
        checkpoint.save(_state(model, optimizer), checkpoint_id=new)
        if dist.get_rank() == 0:
            new.rename(self._folder / f"step{step:06d}")
            for old in self._steps()[:-1]:
                shutil.rmtree(self._folder / f"step{old:06d}")
        dist.barrier()

    def load(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Load the last checkpoint, if there is one; returns the next step's number."""
        last = self._last()
        if last is None:
            return 0
        state = _state(model, optimizer)
        checkpoint.load(state, checkpoint_id=self._folder / f"step{last:06d}")
        states.set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        return last + 1

    def _last(self) -> Optional[int]:
        """The last whole checkpoint's step, as rank 0 finds it; removes a part of one."""
        if dist.get_rank() == 0:
            shutil.rmtree(self._folder / "new", ignore_errors=True)
        found = [self._steps()[-1] if self._steps() else None]
        dist.broadcast_object_list(found)
        return found[0]

    def _steps(self) -> list[int]:
        return sorted(int(path.name[4:]) for path in self._folder.glob("step*"))


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    own, optimizers = states.get_state_dict(model, optimizer)
    return {"model": own, "optimizer": optimizers}


def train(folder: Path, steps: int) -> None:
    """Train from the last checkpoint on, and note each loss with the number of ranks."""
    ranks = dist.get_world_size()
    model = tofu.torch.parallelize(made(), (ranks,), batch(0)[:1])
    optimizer = made_optimizer(model)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(folder)
    for step in range(checkpoints.load(model, optimizer), steps):
        loss = train_step(model, optimizer, step)
        if dist.get_rank() == 0:
            with open(folder / "losses", "a") as file:
                print(json.dumps({"step": step, "loss": loss, "ranks": ranks}), file=file)
        checkpoints.save(step, model, optimizer)


def main() -> None:
    """Train on the ranks that torchrun has started."""
    parser = argparse.ArgumentParser(description="Trains on as many ranks as there are.")
    parser.add_argument("folder", type=Path, help="where checkpoints and losses go")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    dist.init_process_group()
    train(options.folder, options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains a small network on all ranks: plain PyTorch, but for the line with parallelize.

torchrun --nproc-per-node 2 examples/torch_train.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

import tofu.torch

BATCH, STEPS = 32, 5


def main() -> None:
    """Train on all ranks of torchrun."""
    dist.init_process_group()
    torch.manual_seed(0)  # parameters are rank 0's, the data must be alike on all ranks
    images, classes = torch.randn(256, 3, 16, 16), torch.randint(0, 10, (256,))
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    model(images[:2])  # gives LazyLinear its size
    model = tofu.torch.parallelize(model, (dist.get_world_size(),), images[:BATCH])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        data, labels = (x[step * BATCH : (step + 1) * BATCH] for x in (images, classes))
        loss = nn.functional.cross_entropy(model(data), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

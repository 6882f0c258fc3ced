"""Small modules that compute their loss, with example inputs."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """Linear layers with a batch norm and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.batch = nn.BatchNorm1d(32)
        self.layer = nn.LayerNorm(32)
        self.second = nn.Linear(32, 8)

    def forward(self, data, label):
        hidden = self.layer(torch.relu(self.batch(self.first(data))))
        return F.cross_entropy(self.second(hidden), label)


class Gpt(nn.Module):
    """A decoder of causal attention."""

    def __init__(self, words=64, length=16, width=32, heads=4, layers=2) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words, label):
        batch, length = words.shape
        hidden = self.words(words) + self.places[:length]
        for block in self.blocks:
            parts = block["qkv"](block["norm"](hidden)).split(hidden.shape[-1], -1)
            q, k, v = (x.view(batch, length, self.heads, -1).transpose(1, 2) for x in parts)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            hidden = hidden + block["out"](mixed.transpose(1, 2).reshape(batch, length, -1))
            hidden = hidden + block["down"](F.gelu(block["up"](block["norm2"](hidden))))
        scores = self.head(self.norm(hidden))
        return F.cross_entropy(scores.flatten(0, 1), label.flatten())


def mlp(dtype: torch.dtype, batch: int = 8):
    """A module and its inputs."""
    inputs = torch.randn(batch, 16, dtype=dtype), torch.randint(0, 8, (batch,))
    return Mlp().to(dtype), inputs


def gpt(dtype: torch.dtype, batch: int = 8):
    """A module and its inputs."""
    inputs = torch.randint(0, 64, (batch, 16)), torch.randint(0, 64, (batch, 16))
    return Gpt().to(dtype), inputs

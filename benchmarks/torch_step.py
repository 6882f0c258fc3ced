"""Step time of a small GPT on 4 processes of this machine: planned, FSDP2, tensor parallelism.

The three train in one run, connected by gloo, with the same values and Adam. Rounds take turns, a
few steps each, so load from outside meets all alike; the table has the median round and the
extremes. Bytes are counted where tofu exchanges tiles. Those of others are formulas: 3 (k - 1) S
for parameters of S bytes, and four all-reduces of the activations of each layer.

    python benchmarks/torch_step.py --output docs/results/torch_step.json
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F

import tofu.torch
from tofu.plans import SearchOptions
from tofu.torch.parallelize import program_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json

RANKS = 4
WORDS, WIDTH, HEADS, LAYERS, LENGTH = 2048, 256, 8, 4, 128
BATCHES = (4, 32)
ROUNDS, STEPS = 5, 1


class Block(nn.Module):
    """Attention and a feed-forward layer; the number of heads follows from the weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Any) -> Any:
        """The block's output."""
        batch, length, _ = hidden.shape
        given = self.norm(hidden)
        q, k, v = (
            layer(given).view(batch, length, -1, self.size).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return hidden + self.down(F.gelu(self.up(self.norm2(hidden))))


class Gpt(nn.Module):
    """A decoder that returns its loss."""

    def __init__(self, words: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words: Any, label: Any) -> Any:
        """The mean loss."""
        hidden = self.words(words) + self.places
        for block in self.blocks:
            hidden = block(hidden)
        return F.cross_entropy(self.head(self.norm(hidden)).flatten(0, 1), label.flatten())


def planned(model: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    """The plan for 2 x 2."""
    return tofu.torch.parallelize(model, (2, 2), inputs)


def replicated(model: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    """The same where tensors may stay whole."""
    options = SearchOptions(allow_replication=True)
    return tofu.torch.parallelize(model, (2, 2), inputs, options=options)


def sharded(model: Any, inputs: tuple[Any, ...]) -> nn.Module:
    """FSDP2, block by block."""
    mesh = init_device_mesh("cpu", (RANKS,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(model: Any, inputs: tuple[Any, ...]) -> nn.Module:
    """Heads and inner features are divided; embedding and head stay whole."""
    mesh = init_device_mesh("cpu", (RANKS,))
    styles = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    styles |= {name: RowwiseParallel() for name in ("out", "down")}
    for block in model.blocks:
        parallelize_module(block, mesh, styles)
    return model


WAYS: dict[str, Callable[[Any, Any], nn.Module]] = {
    "planned": planned,
    "planned, with replication": replicated,
    "FSDP2": sharded,
    "tensor parallel": tensor_parallel,
}


def step(model: nn.Module, optimizer: Any, inputs: tuple[Any, ...], share: slice) -> float:
    """One training step; returns its loss, a mean over this rank's share of the batch."""
    loss = model(*(each[share] for each in inputs))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def measure(sizes: tuple[int, ...], batch: int, rounds: int) -> list[dict[str, Any]]:
    """Train in all ways, in turns."""
    torch.manual_seed(0)
    whole = Gpt(*sizes)
    inputs = tuple(torch.randint(0, sizes[0], (batch, sizes[4])) for _ in range(2))
    each = batch // RANKS
    own = slice(dist.get_rank() * each, (dist.get_rank() + 1) * each)
    sends: dict[str, int] = {}
    runs, times, losses = {}, {way: [] for way in WAYS}, {}  # type: ignore[var-annotated]
    for way, make in WAYS.items():
        model = make(copy.deepcopy(whole), inputs)
        foreach = way != "tensor parallel"  # its parameters are of two kinds
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=foreach)
        share = own if way == "FSDP2" else slice(None)
        runs[way] = functools.partial(step, model, optimizer, inputs, share)
        first = torch.tensor([runs[way]()])  # which also warms up
        if way == "FSDP2":
            dist.all_reduce(first)
            first /= RANKS
        losses[way] = float(first)
        if way.startswith("planned"):
            count = torch.tensor([program_of(model).exchange.received_bytes])
            dist.all_reduce(count)
            sends[way] = int(count)
    for _ in range(rounds):
        for way, run in runs.items():
            dist.barrier()
            started = time.perf_counter()
            for _ in range(STEPS):
                run()
            dist.barrier()
            times[way].append((time.perf_counter() - started) / STEPS)
    size = sum(p.nbytes for p in whole.parameters())
    act = batch * sizes[4] * sizes[1] * 4
    sends |= {
        "FSDP2": 3 * (RANKS - 1) * size,
        "tensor parallel": 4 * sizes[3] * 2 * (RANKS - 1) * act,
    }
    return [
        {
            "batch": batch, "way": way, "median_s": statistics.median(times[way]),
            "least_s": min(times[way]), "most_s": max(times[way]), "loss": losses[way],
            "bytes": sends[way],
        }
        for way in WAYS
    ]  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = ["| batch | way | ms a step | least to most | MiB a step | first loss |"]
    lines.append("| --: | --- | --: | --: | --: | --: |")
    for row in rows:
        spread = f"{row['least_s'] * 1e3:,.0f} to {row['most_s'] * 1e3:,.0f}"
        lines.append(
            f"| {row['batch']} | {row['way']} | {row['median_s'] * 1e3:,.0f} | {spread} | "
            f"{row['bytes'] / 2**20:,.1f} | {row['loss']:.5f} |"
        )
    return "\n".join(lines) + "\n"


def rank(number: int, meeting: str, smoke: bool, output: str) -> None:
    """What each process does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=RANKS)
    sizes = (64, 32, 4, 1, 8) if smoke else (WORDS, WIDTH, HEADS, LAYERS, LENGTH)
    rows = []
    for batch in BATCHES[:1] if smoke else BATCHES:
        rows += measure(sizes, batch, 1 if smoke else ROUNDS)
    if number == 0:
        sys.stdout.write(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n\n")
        sys.stdout.write(table(rows))
        sys.stdout.flush()
        if output:
            document = {"torch": torch.__version__, "load": os.getloadavg(), "rows": rows}
            write_json(Path(output), document)
    dist.destroy_process_group()


def main() -> None:
    """Start the processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny module, one round")
    parser.add_argument("--output", default="", metavar="FILE", help="where to write JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        torch.multiprocessing.start_processes(
            rank, (meeting, given.smoke, given.output), nprocs=RANKS, start_method="fork"
        )


if __name__ == "__main__":
    main()

"""Starts many gloo ranks of a tiny GPT on this machine, and compares them with the whole module.

Ranks are forked after the imports, so they share torch's memory. Each trains a step in float64,
whole and distributed. The table has the largest differences of the loss and of a gradient, relative
to the largest value; the processor time that a rank takes for `parallelize` and for its own
program, and the memory that it shares with no other process.

    python benchmarks/torch_ranks.py --output docs/results/torch_ranks.json
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import tofu.torch
from tofu.torch.commands.models import MODELS
from tofu.torch.programs.rank_program import Program

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json

MESHES = ((8,), (4, 8), (64,), (4, 4, 4))
SMOKE_MESHES = ((2, 2),)


def difference(one: Any, other: Any) -> float:
    """The largest difference, relative to the largest value."""
    return float((one - other).abs().max() / (one.abs().max() + 1e-3))


def processor_s(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the processor time that it takes."""
    began = time.process_time()
    return call(), time.process_time() - began


def own_mib() -> float:
    """The memory of this process that it shares with no other, in MiB."""
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    lines = [line.split() for line in text.splitlines() if line.startswith("Private_")]
    return sum(int(words[1]) for words in lines) / 1024


def measured(mesh: tuple[int, ...]) -> dict[str, Any]:
    """Train a step whole and distributed."""
    torch.manual_seed(0)
    whole, inputs = MODELS["gpt"](torch.float64)
    parts = copy.deepcopy(whole)
    _, start_s = processor_s(lambda: tofu.torch.parallelize(parts, mesh, inputs))
    program = tofu.torch.program_of(parts)
    again, program_s = processor_s(lambda: Program(program.plan, program.mesh))
    losses = whole(*inputs), parts(*inputs)
    for loss in losses:
        loss.backward()
    gradients = [
        difference(own.grad, part.grad.full_tensor())
        for own, part in zip(whole.parameters(), parts.parameters())
    ]
    return {
        "steps": len(again.forward_steps) + len(again.backward_steps),
        "loss": difference(losses[0].detach(), losses[1].detach()),
        "gradient": max(gradients),
        "start_s": round(start_s, 4),
        "program_s": round(program_s, 4),
        "own_mib": round(own_mib(), 1),
    }


def rank(number: int, meeting: str, mesh: tuple[int, ...]) -> None:
    """Measures one rank, and writes what it found beside the meeting place."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    where = f"file://{meeting}"
    dist.init_process_group("gloo", init_method=where, rank=number, world_size=math.prod(mesh))
    found = measured(mesh)
    Path(f"{meeting}.{number}").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def row_of(mesh: tuple[int, ...]) -> dict[str, Any]:
    """The largest differences of all ranks, and their median times and memory."""
    ranks = math.prod(mesh)
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        torch.multiprocessing.start_processes(
            rank, (meeting, mesh), nprocs=ranks, start_method="fork"
        )
        texts = [Path(f"{meeting}.{k}").read_text(encoding="utf-8") for k in range(ranks)]
    found = [json.loads(text) for text in texts]
    row: dict[str, Any] = {"mesh": list(mesh), "ranks": ranks}
    row |= {key: max(each[key] for each in found) for key in ("steps", "loss", "gradient")}
    for key in ("start_s", "program_s", "own_mib"):
        row[key] = statistics.median(each[key] for each in found)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| ranks | mesh | loss | gradient | parallelize, s | program, s | own memory, MiB |",
        "| --: | --- | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        cells = [str(row["ranks"]), " x ".join(map(str, row["mesh"]))]
        cells += [f"{row['loss']:.0e}", f"{row['gradient']:.0e}", f"{row['start_s']:.2f}"]
        cells += [f"{row['program_s']:.3f}", f"{row['own_mib']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the meshes, and write a row for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="4 ranks alone")
    parser.add_argument("--meshes", nargs="*", metavar="4,8", help="sizes of a mesh's dimensions")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    args = parser.parse_args()
    given = [tuple(map(int, text.split(","))) for text in args.meshes or ()]
    rows = [row_of(mesh) for mesh in given or (SMOKE_MESHES if args.smoke else MESHES)]
    if args.output:
        write_json(args.output, {"torch": torch.__version__, "rows": rows})
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()

"""Bytes that a training step of PyTorch modules communicates, planned in several ways.

Nothing is run. All rows count alike: bytes that all devices together receive, and the bytes of a
device at the worst moment of a step. Rows of the search are its plans; "data parallel" is the plan
in which every operator is split along the batch; "tensor parallel" pins the weights as Megatron-LM
cuts them, and searches the others. FSDP2 is a formula: k devices gather all parameters forward and
backward, and reduce-scatter their gradients, 3 (k - 1) S bytes for parameters of S.

    python benchmarks/torch_bytes.py --output docs/results/torch_bytes.json
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import tofu.torch
from tofu.planner.wish import Wish
from tofu.plans import SearchOptions
from tofu.torch.commands.models import MODELS
from tofu.torch.planning import plan_traced
from tofu.torch.programs.rank_memory import with_memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json

# Module, meshes, and the weights that Megatron-LM cuts: by rows (outputs), by columns (inputs).
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], tuple[str, ...], tuple[str, ...]]] = {
    "gpt-2": (
        ((8,), (2, 4), (4, 2), (2, 2, 2)),
        ("*.qkv.weight", "*.up.weight"),
        ("*.out.weight", "*.down.weight"),
    ),
    "resnet-50": (((8,), (2, 2, 2)), (), ()),
    "long-context": (
        ((8,), (2, 2, 2)),
        ("words.weight", "head.weight", "*.qkv.weight", "*.up.weight"),
        ("*.out.weight", "*.down.weight"),
    ),
    "llama-8b": (
        ((8, 8),),
        ("*.q.weight", "*.k.weight", "*.v.weight", "*.gate.weight", "*.up.weight", "words.weight",
         "head.weight"),
        ("*.out.weight", "*.down.weight"),
    ),
}  # fmt: skip
SMOKE = {"gpt": (((2, 2),), CASES["gpt-2"][1], CASES["gpt-2"][2])}
LIMIT_S = 20.0


def tensor_parallel(rows: tuple[str, ...], columns: tuple[str, ...], steps: int) -> SearchOptions:
    """Weights whole over the first steps, where the batch is cut, and Megatron's over the last."""
    before = (-1,) * (steps - 1)
    pins = [(name, (*before, 0)) for name in rows] + [(name, (*before, 1)) for name in columns]
    return SearchOptions(pins=tuple(pins), allow_replication=True, time_limit_s=LIMIT_S)


def measure(name: str, cases: Any) -> Iterator[dict[str, Any]]:
    """The rows of a module."""
    meshes, by_rows, by_columns = cases
    with torch.device("meta"):
        model, inputs = MODELS[name](torch.float32)
    started = time.perf_counter()
    traced = tofu.torch.trace(model, inputs)
    tracing_s = time.perf_counter() - started
    size = sum(parameter.nbytes for parameter in model.parameters())
    for mesh in meshes:
        count = math.prod(mesh)
        yield {
            "module": name, "mesh": mesh, "way": "FSDP2 (formula)", "bytes": 3 * (count - 1) * size,
        }  # fmt: skip
        ways = {
            "search": SearchOptions(time_limit_s=LIMIT_S),
            "search, with replication": SearchOptions(allow_replication=True, time_limit_s=LIMIT_S),
            "data parallel": SearchOptions(mode="data-parallel", time_limit_s=LIMIT_S),
        }
        if by_rows:
            ways["tensor parallel (pins)"] = tensor_parallel(by_rows, by_columns, len(mesh))
        for way, options in ways.items():
            started = time.perf_counter()
            plan = plan_traced(traced, mesh, wish=Wish(options, exact=False))
            planning_s = time.perf_counter() - started
            yield {
                "module": name,
                "mesh": mesh,
                "way": way,
                "bytes": plan.received_bytes,
                "device_bytes": sum(with_memory(plan).memory.values()),
                "tracing_s": tracing_s,
                "planning_s": planning_s,
                "status": plan.details.status,
            }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| module | mesh | way | MiB a step | MiB a device | planning s |",
        "| --- | --- | --- | --: | --: | --: |",
    ]
    for row in rows:
        held = f"{row['device_bytes'] / 2**20:,.0f}" if "device_bytes" in row else ""
        spent = f"{row['planning_s']:.1f}" if "planning_s" in row else ""
        mesh = " x ".join(map(str, row["mesh"]))
        lines.append(
            f"| {row['module']} | {mesh} | {row['way']} | {row['bytes'] / 2**20:,.0f} | {held} | "
            f"{spent} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Plan, print, and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a small module only")
    parser.add_argument("--module", choices=sorted(CASES), help="one module only")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    args = parser.parse_args()
    cases = SMOKE if args.smoke else CASES
    rows: list[dict[str, Any]] = []
    for name, case in cases.items():
        if args.module in (None, name):
            rows += measure(name, case)
    sys.stdout.write(table(rows))
    if args.output is not None:
        write_json(args.output, {"torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()

"""Step time and peak memory of 25 models on 4 gloo processes: planned, FSDP2, DDP and others.

All ways train in one run with the same values and Adam. In each round every way takes a step, so
load from outside meets all alike: the table has the medians of a round's ratios, of the clock and
of the processor time of all ranks. Peak memory is the most that a rank's allocations hold in the
second step of a run of its own, parameters and optimizer included. Bytes are counted where tofu
exchanges tiles; the others' bytes are formulas: 3 (k - 1) S for FSDP2's parameters of S bytes,
2 (k - 1) S for DDP's gradients.

    python benchmarks/torch_step.py --output docs/results/torch_step.json
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

import tofu.torch
from tofu.plans import SearchOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json
from _step_models import CASES, Case

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler prints its starts otherwise
RANKS = 4
ROUNDS, SMOKE_ROUNDS = 7, 1
SMOKE = ("llama, batch 8",)


def planned(
    model: nn.Module, inputs: dict[str, Any], case: Case, *, mesh: tuple[int, ...], whole: bool
) -> nn.Module:
    """The plan of a mesh, where tensors may stay whole or not."""
    options = SearchOptions(allow_replication=whole)
    return tofu.torch.parallelize(model, mesh, (), inputs, options=options)


def fsdp2(model: Any, inputs: dict[str, Any], case: Case) -> nn.Module:
    """FSDP2, block by block."""
    mesh = init_device_mesh("cpu", (RANKS,))
    for module in model.modules():
        if type(module).__name__ in case.blocks:
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def ddp(model: nn.Module, inputs: dict[str, Any], case: Case) -> nn.Module:
    """The whole model on every rank; it would wait for gradients that never come."""
    model(**inputs).backward()
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def tensor_parallel(model: nn.Module, inputs: dict[str, Any], case: Case) -> nn.Module:
    """Tensor parallelism: heads and inner features are divided, other dimensions stay whole."""
    mesh = init_device_mesh("cpu", (RANKS,))
    for module in model.modules():
        if type(module).__name__ in case.blocks:
            parallelize_module(module, mesh, dict(case.styles))
    return model


Make = Callable[[Any, dict[str, Any], Case], nn.Module]
PLANNED: Mapping[str, Make] = {
    "planned, 4": functools.partial(planned, mesh=(4,), whole=False),
    "planned, 2 x 2": functools.partial(planned, mesh=(2, 2), whole=False),
    "with replication, 4": functools.partial(planned, mesh=(4,), whole=True),
    "with replication, 2 x 2": functools.partial(planned, mesh=(2, 2), whole=True),
}
OTHERS: Mapping[str, Make] = {"FSDP2": fsdp2, "DDP": ddp, "tensor parallel": tensor_parallel}
WAYS = {**PLANNED, **OTHERS}
PARTS = ("FSDP2", "DDP")  # each rank has a part of the batch


def ways_of(case: Case) -> list[str]:
    """The ways in which a model trains."""
    return [way for way in WAYS if way != "tensor parallel" or case.styles]


class Run:
    """A model that trains in one way.

    Args:
        way: one of WAYS.
        case: the model.
        smoke: whether it is tiny.
    """

    def __init__(self, way: str, case: Case, smoke: bool) -> None:
        self.way = way
        whole, inputs = case.made(smoke)
        self.parameter_bytes = sum(p.nbytes for p in whole.parameters())
        self.model = WAYS[way](whole, inputs, case)
        foreach = way != "tensor parallel"  # its parameters are of two kinds
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, foreach=foreach)
        size, rank = case.batch // RANKS, dist.get_rank()
        part = slice(rank * size, (rank + 1) * size) if way in PARTS else slice(None)
        self.inputs = {name: value[part] for name, value in inputs.items()}

    def step(self) -> float:
        """A training step; returns its loss."""
        loss = self.model(**self.inputs)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def first_loss(self) -> float:
        """The loss of the whole batch in the first step."""
        return summed(self.step()) / RANKS

    def sent_bytes(self) -> int:
        """Bytes that all ranks receive in a step; 0 if no formula is known."""
        if self.way in PLANNED:
            return int(tofu.torch.program_of(self.model).plan.received_bytes)
        passes = {"FSDP2": 3, "DDP": 2}.get(self.way, 0)
        return passes * (RANKS - 1) * self.parameter_bytes


def summed(value: float) -> float:
    """The sum over the ranks."""
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor)
    return float(tensor)


def timed(name: str, smoke: bool, rounds: int) -> list[dict[str, Any]]:
    """Train a model in all ways, in turns."""
    case = CASES[name]
    runs = [Run(way, case, smoke) for way in ways_of(case)]
    rows: list[dict[str, Any]] = [
        {"model": name, "way": run.way, "loss": run.first_loss(), "bytes": run.sent_bytes(),
         "step_s": [], "processor_s": []}
        for run in runs
    ]  # fmt: skip
    for number in range(rounds):
        order = list(zip(runs, rows))
        for run, row in order if number % 2 == 0 else reversed(order):
            gc.collect()
            dist.barrier()
            began, worked = time.perf_counter(), time.process_time()
            run.step()
            worked = time.process_time() - worked
            dist.barrier()
            row["step_s"].append(round(time.perf_counter() - began, 5))
            row["processor_s"].append(round(summed(worked), 5))
    return rows


def peaks(name: str, smoke: bool) -> dict[str, int]:
    """The most bytes that a rank holds in the second step, by way."""
    return {way: int(greatest(peak(way, CASES[name], smoke))) for way in ways_of(CASES[name])}


def greatest(value: float) -> float:
    """The greatest of the ranks' values."""
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor)


def peak(way: str, case: Case, smoke: bool) -> int:
    """This rank's peak: all allocations since before the model was made, less those freed."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        run = Run(way, case, smoke)
        run.step()
        gc.collect()
        with torch.profiler.record_function("second step"):
            run.step()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    begin = next(e.start_ns() for e in events if e.name() == "second step")
    held = most = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        if event.start_ns() >= begin:
            most = max(most, held)
    return most


def ratio(row: Mapping[str, Any], base: Mapping[str, Any], key: str) -> float:
    """The median over the rounds of a row's ratio to another's."""
    return statistics.median(a / b for a, b in zip(row[key], base[key]))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown, with ratios to FSDP2's."""
    lines = [
        "| model | way | ms a step | of FSDP2 | processor ms | of FSDP2 | MiB a step | peak MiB |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        base = next(o for o in rows if o["model"] == row["model"] and o["way"] == "FSDP2")
        cells = [row["model"], row["way"]]
        for key in ("step_s", "processor_s"):
            cells += [f"{statistics.median(row[key]) * 1e3:,.0f}", f"{ratio(row, base, key):.2f}"]
        cells.append(f"{row['bytes'] / 2**20:,.0f}" if row["bytes"] else "")
        cells.append(f"{row['peak_bytes'] / 2**20:,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rank(number: int, meeting: str, job: str, name: str, smoke: bool, rounds: int) -> None:
    """Measures the times, or the peaks, of a model in one process of the group."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=RANKS)
    results: Any = timed(name, smoke, rounds) if job == "times" else peaks(name, smoke)
    if number == 0:
        Path(f"{meeting}.json").write_text(json.dumps(results), encoding="utf-8")
    dist.destroy_process_group()


def on_ranks(job: str, name: str, smoke: bool, rounds: int) -> Any:
    """Run a job on all ranks, and return the rows of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        torch.multiprocessing.start_processes(
            rank, (meeting, job, name, smoke, rounds), nprocs=RANKS, start_method="fork"
        )
        return json.loads(Path(f"{meeting}.json").read_text(encoding="utf-8"))


def main() -> None:
    """Measure the models, and write the rows of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny module, one round")
    parser.add_argument("--models", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    args = parser.parse_args()
    models, rounds = (SMOKE, SMOKE_ROUNDS) if args.smoke else (args.models, args.rounds)
    rows: list[dict[str, Any]] = []
    if args.output and args.output.exists():  # rows of other models stay
        earlier = json.loads(args.output.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in earlier if row["model"] in CASES and row["model"] not in models]
    for name in models:
        before = os.getloadavg()[0]
        times = on_ranks("times", name, args.smoke, rounds)
        most = on_ranks("peaks", name, args.smoke, rounds)
        rows += [{**row, "peak_bytes": most[row["way"]], "load": before} for row in times]
        if args.output:
            write_json(args.output, {"torch": torch.__version__, "rows": rows})
    sys.stdout.write(table(rows))


if __name__ == "__main__":
    main()

"""Runs a function on several ranks: forked processes of this machine, connected by gloo."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import multiprocessing as mp

TIMEOUT_S = 600


def _rank(number: int, count: int, meeting: str, function: Callable[..., None], args: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=count)
    try:
        function(*args)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def on_ranks(count: int, function: Callable[..., None], *args: Any) -> None:
    """Call a function of a module on every rank; fails if it fails on any."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        ranks = mp.start_processes(
            _rank, (count, meeting, function, args), nprocs=count, join=False, start_method="fork"
        )
        try:
            end = time.monotonic() + TIMEOUT_S
            while not ranks.join(timeout=max(end - time.monotonic(), 0)):
                assert time.monotonic() < end, f"ranks take more than {TIMEOUT_S} s"
        finally:
            for process in ranks.processes:
                if process.is_alive():
                    process.kill()

"""Runs a function on several ranks: processes of this machine, connected by gloo.

Ranks serve all tests of a session. A server forks them that has traced nothing, because newer
versions of torch run no autograd in a process that was forked after a trace.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import marshal
import multiprocessing
import os
import pickle
import random
import sys
import tempfile
import time
import traceback
import types
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Callable

import torch
import torch.distributed as dist

TIMEOUT_S = 600
ROOT = str(Path(__file__).parents[3])


class Rank:
    """A process that runs functions one after the other."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tofu.torch"])
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def answer(self) -> str:
        """The error of the function; "" if it ended well, or its process with the status 0."""
        try:
            text: str = self.pipe.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            text = f"the process ended with {code}" if code else ""
        return text


_RANKS: list[Rank] = []


def on_ranks(count: int, function: Callable[..., None], *args: Any) -> None:
    """Call a function of a module on every rank; fails if it fails on any."""
    if ROOT not in sys.path:
        sys.path.append(ROOT)  # where ranks find this module
    while len(_RANKS) < count:
        _RANKS.append(Rank())
    text = dumped((function, args))
    with tempfile.TemporaryDirectory() as folder:
        waiting = {rank.pipe: number for number, rank in enumerate(_RANKS[:count])}
        for pipe, number in waiting.items():
            pipe.send((number, count, str(Path(folder) / "meeting"), text))
        try:
            _await(waiting)
        finally:
            if waiting or not all(rank.process.is_alive() for rank in _RANKS):
                for rank in _RANKS:
                    rank.process.kill()
                _RANKS.clear()


def _await(waiting: dict[Any, int]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while waiting:
        ready = wait(list(waiting), max(end - time.monotonic(), 0))
        assert ready, f"ranks {sorted(waiting.values())} take more than {TIMEOUT_S} s"
        for pipe in ready:
            error = next(rank for rank in _RANKS if rank.pipe is pipe).answer()
            assert not error, f"rank {waiting[pipe]}: {error}"
            del waiting[pipe]


def serve(pipe: Connection) -> None:
    """Run the functions that come through a pipe, and answer with their errors."""
    torch.set_num_threads(1)
    faulthandler.enable(2)  # a rank that a signal ends says where
    while True:
        number, count, meeting, text = pipe.recv()
        where, environment = os.getcwd(), dict(os.environ)
        torch.manual_seed(0)
        random.seed(0)
        try:
            dist.init_process_group(
                "gloo", init_method=f"file://{meeting}", rank=number, world_size=count
            )
            function, args = pickle.loads(text)
            function(*args)
            dist.barrier()
            dist.destroy_process_group()
        except BaseException:
            pipe.send(traceback.format_exc())
            raise
        os.chdir(where)
        os.environ.clear()
        os.environ.update(environment)
        pipe.send("")


# --- Functions without a name, as bytes -----------------------------------------------------


def dumped(value: Any) -> bytes:
    """A pickle of a value, in which there may be lambdas and functions inside functions."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, types.FunctionType) or _has_name(value):
            return NotImplemented
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        code = marshal.dumps(value.__code__)
        return _function, (code, value.__module__, value.__defaults__, cells)


def _has_name(function: types.FunctionType) -> bool:
    found = getattr(sys.modules.get(function.__module__), function.__qualname__, None)
    return found is function


def _function(code: bytes, module: str, defaults: Any, cells: list[Any]) -> Any:
    names = vars(importlib.import_module(module))
    closure = tuple(map(types.CellType, cells))
    return types.FunctionType(marshal.loads(code), names, None, defaults, closure)

"""Shared by the scripts of the paper's figures and tables: problems, contexts, files."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Optional

from _results import write_json

from tofu import models
from tofu.analysis.strategy_table import strategy_table
from tofu.mx.model.mxnet_programs import MXNET
from tofu.plans import Problem

__all__ = ["context", "problem", "write"]


def problem(
    model: str,
    *,
    batch_size: Optional[int] = None,
    workers: int = 8,
    reduced: bool = False,
    optimizer: str = "sgd_mom",
) -> Problem:
    """A model's training graph and strategy table.

    Args:
        model: a name of tofu.models.
        batch_size: number of examples; None for the model's own.
        workers: number of workers.
        reduced: whether to take the small version of the same structure.
        optimizer: its update; by default one with a history, which the paper counts.
    """
    graph = models.build(model, batch_size, reduced=reduced).training_graph(optimizer=optimizer)
    name = f"{model}, reduced" if reduced else model
    return Problem(name, strategy_table(graph)[0], workers, front_end=MXNET)


def context() -> dict[str, Any]:
    """Machine and versions, to record with the measurements."""
    import mxnet

    return {
        "machine": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "mxnet": mxnet.__version__,
    }


def write(folder: Path, name: str, document: dict[str, Any]) -> Path:
    """Write raw data into `folder`/`name`.json."""
    path = folder / f"{name}.json"
    write_json(path, document)
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

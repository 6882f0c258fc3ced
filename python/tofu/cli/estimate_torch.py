"""``tofu estimate MODULE:FUNCTION --mesh 2,4``: the memory of a module's step on meshes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import click

from tofu.cli.model import parse_mesh, torch_module
from tofu.errors import ConfigError
from tofu.planner.estimate import OPTIMIZERS
from tofu.plans.plan import format_bytes
from tofu.tables import table

__all__ = ["estimate_module"]

_STATE = "optimizer_state"
_COUNTED = "sgd_mom"  # whose state is as large as the parameters


@dataclasses.dataclass(frozen=True)
class _Row:
    """Memory of a mesh's rank at its worst moment; without a mesh, of one device."""

    mesh: tuple[int, ...]
    kinds: Mapping[str, int]
    sent_bytes: int

    def held_bytes(self, optimizer: str) -> int:
        others = sum(size for kind, size in self.kinds.items() if kind != _STATE)
        return others + OPTIMIZERS[optimizer] * self.kinds[_STATE]


def estimate_module(
    target: str, meshes: Sequence[str], *, optimizer: str, limit: Optional[int], form: str
) -> bool:
    """Print the memory of a rank on one device and on every mesh.

    Returns:
        Whether the step fits somewhere within the limit, if there is one.

    Raises:
        ConfigError: torch is not installed, no mesh is given, or the target is no module.
        GraphError: the module cannot be traced.
    """
    if not meshes:
        raise ConfigError(f"tofu estimate {target}: give meshes, such as --mesh 2 --mesh 2,4")
    sizes = [parse_mesh(mesh) for mesh in meshes]
    rows = _rows(target, sizes)
    if form == "json":
        click.echo(json.dumps(_document(target, rows, optimizer, limit), indent=1))
    else:
        click.echo("\n".join(_lines(rows, optimizer, limit)))
    return limit is None or any(row.held_bytes(optimizer) <= limit for row in rows)


def _rows(target: str, meshes: Sequence[tuple[int, ...]]) -> list[_Row]:
    planning = torch_module("planning", "tofu estimate")
    memory = torch_module("rank_memory", "tofu estimate")
    model, args, kwargs = torch_module("loading", "tofu estimate").load(target)
    traced = torch_module("module_trace", "tofu estimate").trace(model, args, kwargs)
    rows: list[_Row] = []
    for mesh in meshes:
        searched = planning.plan_traced(traced, mesh, optimizer=_COUNTED, name=target)
        plan = memory.with_memory(searched)
        if not rows:
            rows.append(_Row((), plan.serial_memory, 0))
        rows.append(_Row(mesh, plan.memory, plan.received_bytes))
    return rows


def _document(
    target: str, rows: Sequence[_Row], optimizer: str, limit: Optional[int]
) -> dict[str, Any]:
    return {
        "format": "tofu-estimate",
        "version": 1,
        "target": target,
        "memory": "lives",
        "optimizer": optimizer,
        "limit_bytes": limit,
        "estimates": [
            {
                "workers": math.prod(row.mesh),
                "mesh": list(row.mesh),
                "bytes_per_worker": {k: size for k, size in row.kinds.items() if k != _STATE},
                "total_bytes": {name: row.held_bytes(name) for name in OPTIMIZERS},
                "communicated_bytes": row.sent_bytes,
            }
            for row in rows
        ],
    }


def _lines(rows: Sequence[_Row], optimizer: str, limit: Optional[int]) -> list[str]:
    kinds = [kind for kind in rows[0].kinds if kind != _STATE]
    header = ["mesh", *(kind.replace("_", " ") for kind in kinds)]
    header += [*(f"with {name}" for name in OPTIMIZERS), "communicated"]
    cells = [
        [
            " x ".join(map(str, row.mesh)) or "one device",
            *(format_bytes(row.kinds[kind]) for kind in kinds),
            *(_marked(row.held_bytes(name), limit) for name in OPTIMIZERS),
            format_bytes(row.sent_bytes) if row.mesh else "",
        ]
        for row in rows
    ]
    lines = table(header, cells, right=range(1, len(header)))
    lines += ["", "What a rank holds at the worst moment of a step. State of adam: as of AdamW."]
    if limit is not None:
        lines += [f"+ fits in {format_bytes(limit)}, - does not.", _advice(rows, optimizer, limit)]
    return lines


def _marked(size: int, limit: Optional[int]) -> str:
    """Bytes, and whether they are within the limit."""
    return format_bytes(size) + ("" if limit is None else " +" if size <= limit else " -")


def _advice(rows: Sequence[_Row], optimizer: str, limit: int) -> str:
    """The fewest devices that would do."""
    size = format_bytes(limit)
    fits = [row for row in rows if row.held_bytes(optimizer) <= limit]
    if not fits:
        least = min(row.held_bytes(optimizer) for row in rows)
        return f"Nothing fits in {size} with {optimizer}: the least is {format_bytes(least)}."
    first = min(fits, key=lambda row: math.prod(row.mesh))
    if not first.mesh:
        return f"It fits in {size} with {optimizer} on one device."
    mesh = " x ".join(map(str, first.mesh))
    return f"{mesh} has the fewest devices that fit with {optimizer}."

"""Plan files: small, versioned files with plans for later runs, each for one graph.

``tofu plan --save PLAN`` writes one, and a run with ``TOFU_PLAN=PLAN`` uses it. The plans in
it contain no names of tensors. A hash identifies a plan's graph, which has the names, and the
file stores the cuts of each node in the order of the graph's nodes (docs/formats.md).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from tofu import _core
from tofu.errors import ConfigError, PlanError

from .plan import Plan

__all__ = ["FORMAT", "VERSION", "PlanFile", "read", "save"]

FORMAT = "tofu-plan-file"
VERSION = 1
_ADVICE = "save it again with tofu plan --save"


@dataclasses.dataclass(frozen=True)
class PlanFile:
    """The plans of a file.

    Attributes:
        path: the file.
        plans: its plans in stored form, by graph hash and number of workers.
    """

    path: Path
    plans: Mapping[tuple[str, int], Mapping[str, Any]]

    @property
    def workers(self) -> tuple[int, ...]:
        """The numbers of workers that the file has plans for."""
        return tuple(sorted({workers for _, workers in self.plans}))

    def check_workers(self, workers: int) -> None:
        """Raise ConfigError unless it has a plan for this number of workers."""
        if workers not in self.workers:
            found = " and ".join(map(str, self.workers))
            raise ConfigError(
                f"{self.path}: a plan for {found} workers, but this run has {workers}; set "
                f"TOFU_WORKERS={self.workers[0]}, or {_ADVICE} --workers {workers}"
            )

    def plan_for(self, table: _core.StrategyTable, workers: int) -> Optional[_core.Plan]:
        """The plan of a graph, or None if the file has none.

        Raises:
            ConfigError: the stored plan does not fit the graph.
        """
        stored = self.plans.get((table.graph.hash, workers))
        if stored is None:
            return None
        try:
            return _core.Plan(json.dumps(_expand(stored, table.graph)), table)
        except PlanError as error:
            raise ConfigError(f"{self.path}: its plan cannot be used: {error}") from None
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ConfigError(f"{self.path}: damaged ({error!r}); {_ADVICE}") from None


def read(path: Path) -> PlanFile:
    """Read a plan file.

    Raises:
        ConfigError: the file does not exist, is not a plan file, has another version, or is
            damaged.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {_ADVICE}") from None
    except ValueError as error:
        raise ConfigError(
            f"{path}: not a plan file, or cut off ({type(error).__name__}: {error}); {_ADVICE}"
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f'{path}: not a plan file (no "format": "{FORMAT}"); {_ADVICE}')
    if document.get("version") != VERSION:
        raise ConfigError(
            f"{path}: version {document.get('version')!r} of the format, but this tofu reads "
            f"version {VERSION}; {_ADVICE}"
        )
    plans = document.get("plans")
    if not isinstance(plans, list) or not plans or document.get("sha256") != _digest(plans):
        raise ConfigError(f"{path}: damaged (its checksum does not match its plans); {_ADVICE}")
    return PlanFile(path, {(plan["graph_hash"], plan["workers"]): plan for plan in plans})


def save(path: Path, plan: Plan) -> None:
    """Add a plan to a file, which keeps its plans for other graphs.

    Raises:
        ConfigError: the file exists and is not a plan file, or cannot be written.
    """
    plans = dict(read(path).plans) if path.exists() else {}
    plans[plan.graph_hash, plan.workers] = _pack(json.loads(plan.to_json()))
    kept = list(plans.values())
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in kept)
    head = json.dumps({"format": FORMAT, "version": VERSION, "sha256": _digest(kept)})
    beside = path.with_name(f"{path.name}.part")
    try:
        beside.write_text(f'{head[:-1]}, "plans": [\n{lines}\n]}}\n', encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise ConfigError(
            f"--save {path}: cannot be written ({error.strerror}); choose another file"
        ) from None


def _digest(plans: Sequence[Any]) -> str:
    text = json.dumps(plans, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _pack(document: Mapping[str, Any]) -> dict[str, Any]:
    """The stored form of a plan document: nodes that are cut alike share one entry."""
    packed = {k: v for k, v in document.items() if k not in ("tensors", "operators")}
    operators = {operator["node"]: operator for operator in document["operators"]}
    outputs: dict[str, list[Any]] = {}
    for tensor in document["tensors"]:
        outputs.setdefault(tensor["node"], []).append(tensor["cuts"])
    alike: dict[str, int] = {}
    nodes, sizes = [], []
    for name, cuts in outputs.items():
        operator = operators.get(name)
        key = json.dumps([cuts, operator and operator["cuts"]])
        nodes.append(alike.setdefault(key, len(alike)))
        if operator:
            sizes.append(operator["bytes"])
    packed["alike"] = [json.loads(key) for key in alike]
    packed["nodes_alike"] = nodes
    packed["operator_bytes"] = sizes
    return packed


def _expand(packed: Mapping[str, Any], graph: _core.Graph) -> dict[str, Any]:
    """The plan document, with the names and shapes of its graph."""
    stored = ("alike", "nodes_alike", "operator_bytes")
    document: dict[str, Any] = {k: v for k, v in packed.items() if k not in stored}
    sizes = iter(packed["operator_bytes"])
    tensors, operators = [], []
    nodes = graph.nodes
    if len(nodes) != len(packed["nodes_alike"]):
        raise ValueError(f"{len(packed['nodes_alike'])} nodes")
    for node, number in zip(nodes, packed["nodes_alike"]):
        cuts, split = packed["alike"][number]
        for output, (cut, (shape, dtype)) in enumerate(zip(cuts, node.outputs)):
            tensors.append(
                {
                    "node": node.name,
                    "output": output,
                    "shape": shape,
                    "dtype": dtype,
                    "cuts": cut,
                }
            )
        if node.op:
            operators.append(
                {"node": node.name, "op": node.op, "cuts": split, "bytes": next(sizes)}
            )
    return {**document, "tensors": tensors, "operators": operators}

"""Plan files: small, versioned files with plans for later runs, each for one graph.

``tofu plan --save PLAN`` writes one, and a run with ``TOFU_PLAN=PLAN`` uses it. A hash
identifies a plan's graph, and the file stores the cuts of each node in the order of the graph's
nodes (docs/formats.md). It also lists the nodes, to show a plan without its graph and to tell
how two graphs differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from tofu import _core
from tofu.config import MAX_WORKERS
from tofu.dtypes import dtype_name
from tofu.errors import ConfigError, PlanError

from .plan import Plan

__all__ = [
    "FORMAT", "MODULE_FORMAT", "VERSION", "PlanFile", "check_target", "read", "read_saved", "save",
    "save_module",
]  # fmt: skip

FORMAT = "tofu-plan-file"
MODULE_FORMAT = "tofu-torch-plan"  # of a PyTorch module's plan
VERSION = 1
_ADVICE = "save it again with tofu plan --save"
# json.loads raises these for a text that is not JSON, or nests too deep.
_NOT_JSON = (ValueError, RecursionError)
_DAMAGE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
_LONGEST_NAME = 240  # in bytes; the temporary file's name has a few more
_MODE = 0o666  # of a new file, less the umask


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
            counts = " and ".join(map(str, self.workers))
            raise ConfigError(
                f"{self.path}: a plan for {counts} workers, but this run has {workers}; set "
                f"TOFU_WORKERS={self.workers[0]}, or {_ADVICE} --workers {workers}"
            )

    def recomputations(self, workers: int) -> list[int]:
        """The limits of activations of its plans that compute some again (plan.recompute)."""
        records = (each.get("recompute") for (_, k), each in self.plans.items() if k == workers)
        try:
            return sorted({int(each["limit_bytes"]) for each in records if each is not None})
        except _DAMAGE as error:
            raise _damaged(self.path, error) from None

    def kept_whole(self, graph_hash: str, workers: int) -> tuple[str, ...]:
        """The BatchNorms that its plan for a graph keeps whole; () if all are in parts.

        Raises:
            ConfigError: the file is damaged.
        """
        for (_, count), stored in self.plans.items():
            names = stored.get("kept_whole", [])
            if count == workers and names and _origin(stored) == graph_hash:
                if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                    raise _damaged(self.path, ValueError(f"kept_whole is {names!r:.40}"))
                return tuple(names)
        return ()

    def plan_for(self, table: _core.StrategyTable, workers: int) -> Optional[_core.Plan]:
        """The plan of a graph, or None if the file has none.

        Raises:
            ConfigError: the stored plan does not fit the graph.
        """
        stored = self.plans.get((table.graph.hash, workers))
        if stored is None:
            return None
        try:
            document = _expand(stored, list(map(_record, table.graph.nodes)))
            return _core.Plan(json.dumps(document), table)
        except PlanError as error:
            raise ConfigError(f"{self.path}: its plan cannot be used: {error}") from None
        except _DAMAGE as error:
            raise _damaged(self.path, error) from None

    def read_plans(self) -> list[Plan]:
        """The file's plans, without their graphs, in the order in which they were saved.

        Raises:
            ConfigError: a plan is damaged, or was saved without the list of its nodes.
        """
        plans = []
        for stored in self.plans.values():
            if "nodes_listed" not in stored:
                raise ConfigError(
                    f"{self.path}: saved by an earlier tofu, without the names of its tensors; "
                    f"{_ADVICE}"
                )
            try:
                document = _expand(stored, _listed(stored))
                plans.append(Plan.from_json(json.dumps(document)))
            except PlanError as error:
                raise ConfigError(f"{self.path}: {error}") from None
            except _DAMAGE as error:
                raise _damaged(self.path, error) from None
        return plans

    def difference(self, graph: _core.Graph) -> str:
        """The difference of a graph from the file's most similar one, in words; "" if unknown."""
        nodes = list(map(_record, graph.nodes))
        best: tuple[int, str] = (-1, "")
        for stored in self.plans.values():
            try:
                stored_nodes = _listed(stored)
            except _DAMAGE:
                continue
            alike = sum(a == b for a, b in zip(nodes, stored_nodes))
            if alike > best[0]:
                best = alike, _difference(stored_nodes, nodes)
        return best[1]


def read_saved(path: Path) -> list[Plan]:
    """Read the plans of a plan file, or the one in the document of a PyTorch module's plan.

    Raises:
        ConfigError: as `read`.
    """
    document = _document(path)
    if not isinstance(document, dict) or document.get("format") != MODULE_FORMAT:
        return read(path).read_plans()
    try:
        return [Plan.from_json(json.dumps(document["plan"]))]
    except (PlanError, *_DAMAGE) as error:
        raise _damaged(path, error) from None


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {_ADVICE}") from None
    except _NOT_JSON as error:
        raise ConfigError(
            f"{path}: not a plan file, or cut off ({type(error).__name__}: {error}); {_ADVICE}"
        ) from None


def read(path: Path) -> PlanFile:
    """Read a plan file.

    Raises:
        ConfigError: the file does not exist, is not a plan file, has another version, or is
            damaged.
    """
    document = _document(path)
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
    return PlanFile(path, {_key(path, plan): plan for plan in plans})


def check_target(path: Path, reader: Callable[[Path], Any] = read_saved) -> None:
    """Raise ConfigError for a file that a plan must not be saved to, before anything is searched.

    Args:
        path: the file.
        reader: reads a file that a plan may be saved to.
    """
    if os.path.exists(path):
        try:
            reader(path)
        except ConfigError as error:
            reason = str(error).removeprefix(f"{path}: ").removesuffix(f"; {_ADVICE}")
            raise ConfigError(
                f"--save {path}: exists and is not a plan file to add to, so it stays as it is "
                f"({reason}); choose another name"
            ) from None
    elif not os.access(path.parent, os.W_OK):
        what = "permission denied" if os.path.isdir(path.parent) else "no such folder"
        raise ConfigError(f"--save {path}: cannot be written ({what}); choose another file")
    elif len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise ConfigError(f"--save {path}: cannot be written (File name too long); choose another")


def save(
    path: Path,
    plan: Plan,
    graph: Optional[_core.Graph] = None,
    *,
    origin: Optional[_core.Graph] = None,
    kept_whole: Collection[str] = (),
) -> None:
    """Add a plan to a file, which keeps its plans for other graphs.

    Args:
        path: the file.
        plan: the plan.
        graph: its graph, whose nodes the file lists; None: they are not listed.
        origin: the graph that a run makes first, if it replaces that by this one.
        kept_whole: the BatchNorms that only this graph keeps whole.

    Raises:
        ConfigError: the file exists and is not a plan file, or cannot be written.
    """
    check_target(path, read)
    packed = _pack(plan.document())
    if origin is not None:
        packed["origin_hash"] = origin.hash
    if kept_whole:
        packed["kept_whole"] = sorted(kept_whole)
    plans = dict(read(path).plans) if path.exists() else {}
    for key, stored in list(plans.items()):
        if key[1] == plan.workers and _origin(stored) == _origin(packed):
            del plans[key]  # a run would find either
    plans[plan.graph_hash, plan.workers] = {**packed, **(_list(graph) if graph else {})}
    packed_plans = list(plans.values())
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in packed_plans)
    head = json.dumps({"format": FORMAT, "version": VERSION, "sha256": _digest(packed_plans)})
    _write(path, f'{head[:-1]}, "plans": [\n{lines}\n]}}\n')


def save_module(path: Path, document: Mapping[str, Any]) -> None:
    """Write the plan of a module of PyTorch, in the place of another.

    Raises:
        ConfigError: the file exists and is something else, or cannot be written.
    """
    check_target(path, _read_module)
    _write(path, json.dumps(document))


def _read_module(path: Path) -> None:
    if isinstance(document := _document(path), dict) and document.get("format") == MODULE_FORMAT:
        return
    raise ConfigError(f"{path}: not the plan of a module")


def _write(path: Path, text: str) -> None:
    try:
        _replace(path, text)
    except OSError as error:
        raise ConfigError(
            f"--save {path}: cannot be written ({error.strerror}); choose another file"
        ) from None


def _origin(stored: Mapping[str, Any]) -> Any:
    """The hash of the graph that a run makes before it takes a plan's."""
    return stored.get("origin_hash", stored["graph_hash"])


def _replace(path: Path, text: str) -> None:
    """Write a file at once: readers see the old text or the new one, never a part.

    The text goes to a new file first, whose name no one can guess and which is created
    exclusively, so a link that waits in the folder is not followed.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else _MODE & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _key(path: Path, plan: Any) -> tuple[str, int]:
    """The graph's hash and the number of workers of a stored plan. Raises ConfigError."""
    graph_hash, workers = "graph_hash", "workers"
    if not isinstance(plan, dict):
        raise _damaged(path, ValueError(f"a plan is {plan!r:.40}, expected an object"))
    if not isinstance(plan.get(graph_hash), str):
        raise _damaged(path, ValueError(f"graph_hash is {plan.get(graph_hash)!r:.40}"))
    count = plan.get(workers)
    if type(count) is not int or not 1 <= count <= MAX_WORKERS:
        raise _damaged(path, ValueError(f"workers is {count!r:.40}, expected a whole number"))
    return plan[graph_hash], count


def _damaged(path: Path, error: Exception) -> ConfigError:
    detail = str(error) if type(error) is ValueError else repr(error)
    return ConfigError(f"{path}: damaged ({detail}); {_ADVICE}")


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


class _Node(NamedTuple):
    """A node as plan files have it: outputs are shapes with their type flags."""

    name: str
    op: str
    outputs: tuple[tuple[tuple[int, ...], int], ...]


def _record(node: _core.Node) -> _Node:
    outputs = tuple((tuple(shape), dtype) for shape, dtype in node.outputs)
    return _Node(node.name, node.op, outputs)


def _list(graph: _core.Graph) -> dict[str, Any]:
    """The nodes of a graph as a file lists them: those of one kind share an entry."""
    kinds: dict[str, int] = {}
    listed = []
    for node in map(_record, graph.nodes):
        key = json.dumps([node.op, node.outputs])
        listed.append([node.name, kinds.setdefault(key, len(kinds))])
    return {"node_kinds": [json.loads(key) for key in kinds], "nodes_listed": listed}


def _listed(stored: Mapping[str, Any]) -> list[_Node]:
    """The nodes that `_list` has listed."""
    nodes = []
    for name, number in stored["nodes_listed"]:
        op, outputs = stored["node_kinds"][number]
        if not (isinstance(name, str) and isinstance(op, str) and number >= 0):
            raise ValueError(f"node {name!r:.40} of kind {op!r:.40}")
        shapes = tuple((tuple(map(int, shape)), int(dtype)) for shape, dtype in outputs)
        nodes.append(_Node(name, op, shapes))
    return nodes


def _difference(stored: Sequence[_Node], nodes: Sequence[_Node]) -> str:
    for there, here in zip(stored, nodes):
        if there != here:
            return f"the plan's graph has {_shown(there)} where this one has {_shown(here)}"
    if len(stored) != len(nodes):
        longer, whose = (stored, "the plan's") if len(stored) > len(nodes) else (nodes, "this")
        return f"only {whose} graph has {_shown(longer[min(len(stored), len(nodes))])}"
    return "its attributes or the way in which its operators are connected differ"


def _shown(node: _Node) -> str:
    shapes = ", ".join(
        f"{'x'.join(map(str, shape)) or 'one number'} of {dtype_name(dtype)}"
        for shape, dtype in node.outputs[:2]
    )
    return f"{node.name} ({f'{node.op}, ' if node.op else ''}{shapes})"


def _expand(packed: Mapping[str, Any], nodes: Sequence[_Node]) -> dict[str, Any]:
    """The plan document, with the names and shapes of its graph."""
    stored = (
        "alike", "nodes_alike", "operator_bytes", "node_kinds", "nodes_listed", "origin_hash",
        "kept_whole",
    )  # fmt: skip
    document: dict[str, Any] = {k: v for k, v in packed.items() if k not in stored}
    if len(nodes) != len(packed["nodes_alike"]):
        raise ValueError(f"{len(packed['nodes_alike'])} nodes, expected {len(nodes)}")
    count = sum(bool(node.op) for node in nodes)
    if len(packed["operator_bytes"]) != count:
        raise ValueError(f"{len(packed['operator_bytes'])} operator_bytes, expected {count}")
    tensors: list[dict[str, Any]] = []
    operators: list[dict[str, Any]] = []
    for node, cuts, split in _ways(packed, nodes):
        for output, (cut, (shape, dtype)) in enumerate(zip(cuts, node.outputs)):
            tensor = {"node": node.name, "output": output, "shape": shape, "dtype": dtype}
            tensors.append({**tensor, "cuts": cut})
        if node.op:
            size = packed["operator_bytes"][len(operators)]
            operators.append({"node": node.name, "op": node.op, "cuts": split, "bytes": size})
    return {**document, "tensors": tensors, "operators": operators}


def _ways(
    packed: Mapping[str, Any], nodes: Sequence[_Node]
) -> Iterator[tuple[_Node, Sequence[Any], Any]]:
    """Each node with the cuts of its outputs and its operator's split."""
    for node, number in zip(nodes, packed["nodes_alike"]):
        if type(number) is not int or not 0 <= number < len(packed["alike"]):
            raise ValueError(f"{node.name} is cut in way {number!r:.40}")
        cuts, split = packed["alike"][number]
        if len(cuts) != len(node.outputs):
            outputs = len(node.outputs)
            raise ValueError(f"cuts of {len(cuts)} outputs of {node.name}, which has {outputs}")
        yield node, cuts, split

"""Reads problems of costs and memory: step problems, and those of the IOPDDL contest (ASPLOS 2025).

    text = step_problem_text(read_text(Path("problem.json.gz")))

A problem of the contest is {"problem": {"nodes": {"costs", "usages", "intervals"}, "edges":
{"nodes", "costs"}, "usage_limit"}}: node v costs costs[v][x] under its strategy x and uses
usages[v][x] bytes from the first of intervals[v] up to the second; an edge costs a cell of its
table, row by row.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tofu.errors import ConfigError, PlanError

__all__ = ["read_text", "step_problem_text", "to_step_problem"]

_UNLIMITED = 2**62 - 1  # the largest limit of a step problem


def read_text(path: Path) -> str:
    """The text of a file, gzipped or not. Raises ConfigError if it cannot be read."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; expected a problem's JSON") from None


def step_problem_text(text: str) -> str:
    """A problem's text in the solver's format; problems of the contest are converted."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text  # which the solver refuses, and says where
    if not isinstance(document, dict) or "problem" not in document:
        return text
    return json.dumps(to_step_problem(document["problem"]))


def to_step_problem(problem: Mapping[str, Any]) -> dict[str, Any]:
    """A problem of the contest as a step problem (docs/formats.md).

    Raises:
        PlanError: the document is no such problem. Numbers are not checked; the solver does this.
    """
    try:
        return _converted(problem)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        message = f"{type(error).__name__}: {error}"
        raise PlanError(f"problem: {message}; expected one of the contest's format") from None


def _converted(problem: Mapping[str, Any]) -> dict[str, Any]:
    nodes, edges = problem["nodes"], problem["edges"]
    unary = [list(costs) for costs in nodes["costs"]]
    _expect(nodes["usages"], len(unary), "nodes.usages: expected as many as nodes.costs")
    _expect(nodes["intervals"], len(unary), "nodes.intervals: expected as many as nodes.costs")
    _expect(edges["costs"], len(edges["nodes"]), "edges.costs: expected as many as edges.nodes")
    pairs = []
    for (a, b), cells in zip(edges["nodes"], edges["costs"]):
        if a != b:
            pairs.append([a, b, cells])
            continue
        count = len(unary[a])
        if a < 0 or len(cells) != count**2:
            raise ValueError(f"edges: expected {count**2} costs from node {a} to itself")
        unary[a] = [cost + cells[x * (count + 1)] for x, cost in enumerate(unary[a])]
    uses = [
        [v, begin, end, usage]
        for v, ((begin, end), usage) in enumerate(zip(nodes["intervals"], nodes["usages"]))
    ]
    limit = problem["usage_limit"]
    return {
        "format": "tofu-step-problem",
        "version": 2,
        "constant": 0,
        "domains": [len(costs) for costs in unary],
        "unary": unary,
        "pairs": pairs,
        "memory": {"limit": _UNLIMITED if limit is None else limit, "uses": uses},
    }


def _expect(values: Any, count: int, complaint: str) -> None:
    if len(values) != count:
        raise ValueError(complaint)

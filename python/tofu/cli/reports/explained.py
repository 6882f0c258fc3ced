"""Resolves the names of ``--explain`` to tensors and operators."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tofu.errors import ConfigError
from tofu.plans import Problem
from tofu.plans.names import is_pattern, matching, near_text

__all__ = ["explained_in", "explained_names"]


def explained_names(problems: Sequence[Problem], names: Sequence[str]) -> list[list[str]]:
    """Resolves names and patterns to each graph's tensors and operators.

    Raises ConfigError for a name of none.
    """
    names_of_each: list[dict[str, None]] = [{} for _ in problems]
    for name in names:
        node_names: dict[str, None] = {}
        for problem, matches in zip(problems, names_of_each):
            node_names.update(dict.fromkeys(node.name for node in problem.graph.nodes))
            matches.update(_matches(name, problem))
        if not any(matching(name, {**node_names, **matches}) for matches in names_of_each):
            what = "that fits" if is_pattern(name) else "of that name"
            raise ConfigError(
                f"--explain {name}: {' and '.join(p.name for p in problems)} "
                f"{'have' if len(problems) > 1 else 'has'} no tensor or operator {what}"
                + near_text(name, node_names)
            )
    return [list(matches) for matches in names_of_each]


def explained_in(problem: Problem, names: Sequence[str], before: Sequence[str]) -> list[str]:
    """Resolves names in the planned graph, which may keep BatchNorms whole.

    Warns of names that only stand for parts of such BatchNorms.

    Args:
        problem: the planned graph.
        names: names and patterns.
        before: the tensors and operators that they stood for before the graph was planned.
    """
    nodes: dict[str, None] = {}
    for name in names:
        matches = _matches(name, problem)
        nodes.update(matches)
        if not matches and matching(name, dict.fromkeys(before)):
            click.echo(
                f"tofu: {name}: a part of a BatchNorm that stays whole in this plan; explain that "
                "instead",
                err=True,
            )
    return list(nodes)


def _matches(name: str, problem: Problem) -> dict[str, None]:
    nodes = dict.fromkeys(node.name for node in problem.graph.nodes)
    outputs = dict.fromkeys([*nodes, *problem.graph.tensor_names])
    return dict.fromkeys(matching(name, nodes) or matching(name, outputs))

"""The tensors and operators that the names of ``--explain`` stand for."""

from __future__ import annotations

from collections.abc import Sequence

from tofu.errors import ConfigError
from tofu.plan import Problem
from tofu.plan.names import is_pattern, matching, near_text

__all__ = ["explained_names"]


def explained_names(problems: Sequence[Problem], names: Sequence[str]) -> list[list[str]]:
    """For each graph the tensors and operators that names and patterns stand for.

    Raises ConfigError for a name of none.
    """
    found: list[dict[str, None]] = [{} for _ in problems]
    for name in names:
        known: dict[str, None] = {}
        for problem, own in zip(problems, found):
            nodes = dict.fromkeys(node.name for node in problem.graph.nodes)
            outputs = dict.fromkeys([*nodes, *problem.graph.tensor_names])
            known.update(nodes)
            own.update(dict.fromkeys(matching(name, nodes) or matching(name, outputs)))
        if not any(matching(name, {**known, **own}) for own in found):
            what = "that fits" if is_pattern(name) else "of that name"
            raise ConfigError(
                f"--explain {name}: {' and '.join(p.name for p in problems)} "
                f"{'have' if len(problems) > 1 else 'has'} no tensor or operator {what}"
                + near_text(name, known)
            )
    return [list(own) for own in found]

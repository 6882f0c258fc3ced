"""The rooms below, as the Gluon layer uses them: the one place to put others in.

with rooms.using(dataclasses.replace(rooms.current(), program=Fake)): ...
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Optional

__all__ = ["Rooms", "current", "using"]


@dataclasses.dataclass(frozen=True)
class Rooms:
    """What this layer needs of others.

    Attributes:
        training_graph: tofu.mx.build.training_graph.training_graph
        strategy_table: tofu.analysis.strategy_table.strategy_table
        compile_graph: tofu.plan.compile_graph, for one executor where MXNet can run halves
        usable_fetch: tofu.mx.run.fetch_check.usable_fetch
        program: tofu.mx.run.program.Program
        layouts: from the variables of a partitioned graph to each one's tiles.
        scatter: tofu.mx.run.layout.scatter
        gather: tofu.mx.run.layout.gather
    """

    training_graph: Callable[..., str]
    strategy_table: Callable[[str], tuple[str, list[str]]]
    compile_graph: Callable[..., Any]
    usable_fetch: Callable[..., tuple[str, Optional[str]]]
    program: Callable[..., Any]
    layouts: Callable[[Mapping[str, Any]], dict[str, Any]]
    scatter: Callable[..., list[Any]]
    gather: Callable[..., Any]


_current: list[Rooms] = []


def current() -> Rooms:
    """The rooms in use, tofu's own unless ``using`` says otherwise."""
    if not _current:
        _current.append(_own())
    return _current[-1]


@contextlib.contextmanager
def using(others: Rooms) -> Iterator[None]:
    """Use other rooms inside this context."""
    _current.append(others)
    try:
        yield
    finally:
        _current.remove(others)


def _own() -> Rooms:
    from tofu.analysis import strategy_table
    from tofu.mx.build import training_graph
    from tofu.mx.run import extension, fetch_check, layout, program
    from tofu.plan import compile_graph

    def compile_joint(*args: Any, **options: Any) -> Any:
        return compile_graph(*args, joint=extension.runs_parts(), **options)

    return Rooms(
        training_graph=training_graph.training_graph,
        strategy_table=strategy_table.strategy_table,
        compile_graph=compile_joint,
        usable_fetch=fetch_check.usable_fetch,
        program=program.Program,
        layouts=layout.layouts,
        scatter=layout.scatter,
        gather=layout.gather,
    )

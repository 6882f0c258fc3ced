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
        training_graph: tofu.mx.graph.training_graph
        strategy_table: tofu.mx.graph.strategy_table
        compile_graph: tofu.plan.compile_graph, for one executor where MXNet can run halves
        usable_fetch: tofu.mx.fetching.usable_fetch
        program: tofu.mx.program.Program
        layouts: from the variables of a partitioned graph to each one's tiles.
        scatter: tofu.mx.tiles.scatter
        gather: tofu.mx.tiles.gather
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
    from tofu.mx import fetching, graph, program, runtime, tiles
    from tofu.plan import compile_graph

    def compile_joint(*args: Any, **options: Any) -> Any:
        return compile_graph(*args, joint=runtime.runs_parts(), **options)

    return Rooms(
        training_graph=graph.training_graph,
        strategy_table=graph.strategy_table,
        compile_graph=compile_joint,
        usable_fetch=fetching.usable_fetch,
        program=program.Program,
        layouts=tiles.layouts,
        scatter=tiles.scatter,
        gather=tiles.gather,
    )

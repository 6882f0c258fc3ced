"""The functions that the Gluon layer needs from the layers below; tests replace them here."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, Callable, Optional

__all__ = ["Backend", "own"]


@dataclasses.dataclass(frozen=True)
class Backend:
    """The functions of other layers that this one calls; see ``own``."""

    training_graphs: Callable[..., Callable[[Optional[Collection[str]]], Any]]
    refined: Callable[[Callable[[Any], Any], Any], Any]
    strategy_table: Callable[[Any], tuple[Any, dict[str, str]]]
    search: Callable[..., Any]
    compile_plan: Callable[..., Any]
    serial_memory: Callable[[Any], int]
    step_memory: Callable[..., Any]
    usable_fetch: Callable[..., Any]
    program: Callable[..., Any]
    scatter: Callable[..., list[Any]]
    gather: Callable[..., Any]
    relay: Callable[..., list[Any]]
    parts_of: Callable[..., list[Any]]
    spread_parts: Callable[..., None]
    views_of: Callable[..., Optional[Any]]
    tiles: Callable[..., Any]
    cuts_of: Callable[..., Optional[tuple[int, ...]]]
    is_random: Callable[[str], bool]


def own() -> Backend:
    """Return tofu's own functions."""
    from tofu.analysis import strategy_table
    from tofu.analysis.described import is_random
    from tofu.mx import extension
    from tofu.mx.graphs import training_graph
    from tofu.mx.graphs.lower import fused_norm
    from tofu.mx.run import fetch_check, program, transfer
    from tofu.planner.compile_plan import compile_plan
    from tofu.planner.limits import serial_memory
    from tofu.planner.search import search
    from tofu.plans import layout

    def compile_joint(plan: Any, **options: Any) -> Any:
        return compile_plan(plan, joint=extension.runs_parts(), **options)

    def memory(*args: Any) -> Any:
        from tofu.mx.memory.step_memory import step_memory  # only for memory limits

        return step_memory(*args)

    return Backend(
        training_graphs=training_graph.training_graphs,
        refined=fused_norm.refined,
        strategy_table=strategy_table.strategy_table,
        search=search,
        compile_plan=compile_joint,
        serial_memory=serial_memory,
        step_memory=memory,
        usable_fetch=fetch_check.usable_fetch,
        program=program.Program,
        scatter=transfer.scatter,
        gather=transfer.gather,
        relay=transfer.relay,
        parts_of=transfer.parts_of,
        spread_parts=transfer.spread_parts,
        views_of=transfer.views_of,
        tiles=transfer.Tiles,
        cuts_of=layout.cuts_of,
        is_random=is_random,
    )

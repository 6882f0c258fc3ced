"""What a user has said about plans, graph by graph: saved plans (TOFU_PLAN) and pins.

A run has more graphs than a plan file: one for each batch size, one to predict with, those
of further blocks. The first graph that trains must be one that the file has a plan for:
otherwise the script, or its batch size, is not the one the plan was made for. Every
other graph without a plan is searched as usual; parameters keep the tiles they have.

A pin applies to each graph that has its tensor.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from tofu import _core
from tofu.errors import ConfigError, PlanError
from tofu.plan import SearchOptions

from . import messages
from .session import Session

__all__ = ["checked_pins", "options_for", "plan_for"]


def plan_for(
    name: str,
    table: _core.StrategyTable,
    pins: Mapping[str, Sequence[int]],
    parts: Sequence[int],
    session: Session,
    *,
    training: bool,
) -> Optional[_core.Plan]:
    """The saved plan of a graph, or None where it is to be searched.

    Args:
        name: the block, for what the user is told.
        table: the strategy table of its training graph.
        pins: the cuts of parameters that are tiled already.
        parts: into how many parts each step cuts these; empty where there are none.
        session: the workers and the saved plans.
        training: whether the graph has gradients.

    Raises:
        ConfigError: the first graph that trains is none of those that the file is for.
    """
    plans, state = session.plans, session.state
    if plans is None:
        return None
    found = plans.plan_for(table, session.workers)
    if found is not None and _keeps(found, pins, parts):
        state.plan_matched = True
        return found
    if training and not state.plan_matched:
        raise ConfigError(
            f"{plans.path}: no plan for the training graph of {name}; it is for another graph "
            f"({', '.join(sorted(key for key, _ in plans.plans))}). Layers, shapes, batch size "
            "and optimizer must be those it was made for: make it again with tofu plan --save, "
            "or unset TOFU_PLAN"
        )
    if not state.plan_missing:
        state.plan_missing = True
        messages.plan_missing(name, plans.path)
    return None


def options_for(
    name: str, table: _core.StrategyTable, session: Session, *, training: bool
) -> SearchOptions:
    """How to search a graph: with the pins of its own tensors.

    A pin that fits nothing in the first graph that trains is warned of: it may be misspelt,
    or belong to a later block.
    """
    options = session.options
    if not options.pins:
        return options
    names = set(table.graph.tensor_names)
    own = tuple(pin for pin in options.pins if pin[0] in names)
    if training and not session.state.pins_checked:
        session.state.pins_checked = True
        if len(own) < len(options.pins):
            absent = [pin for pin, _ in options.pins if pin not in names]
            messages.unpinned(name, absent, names)
    return dataclasses.replace(options, pins=own)


@contextlib.contextmanager
def checked_pins(options: SearchOptions) -> Iterator[None]:
    """Let a pin of the user's that does not fit the graph end the run.

    Raises:
        ConfigError: in place of the PlanError of such a pin.
    """
    try:
        yield
    except PlanError as error:
        if any(f'pin of "{name}"' in str(error) for name, _ in options.pins):
            raise ConfigError(f"TOFU_PINS: {error}") from None
        raise


def _keeps(plan: _core.Plan, pins: Mapping[str, Sequence[int]], parts: Sequence[int]) -> bool:
    """Whether a plan cuts the pinned variables as they are pinned."""
    if parts and plan.parts != list(parts):
        return False
    names = set(plan.table.graph.tensor_names)
    return all(plan.cuts(name) == list(pin) for name, pin in pins.items() if name in names)

"""The user's settings for the plan of each graph: saved plans (TOFU_PLAN) and pins.

A run has more graphs than a plan file: one per batch size, one for prediction, and those
of other blocks. The file must have a plan for the first graph that trains; otherwise the
plan was made for another script or batch size. Every other graph without a plan is
searched as usual, and parameters keep their tiles.

A pin applies to every graph that has its tensor.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Callable, Optional

from tofu import _core
from tofu.errors import ConfigError, PlanError
from tofu.gluon.session import messages
from tofu.gluon.session.session import Session
from tofu.planner.recomputation import recomputed
from tofu.plans import SearchOptions
from tofu.plans.options import pinned
from tofu.plans.parts import Parts

__all__ = ["check_pins", "checked_pins", "options_for", "plan_for"]


def plan_for(
    name: str,
    table: _core.StrategyTable,
    pins: Mapping[str, Sequence[int]],
    parts: Sequence[int],
    session: Session,
    *,
    training: bool,
    with_whole_norms: Optional[Callable[[Collection[str]], _core.StrategyTable]],
) -> Optional[_core.Plan]:
    """Return the saved plan of a graph, or None if it must be searched.

    The plan may be for a graph that computes the same with recomputation or whole BatchNorms.

    Args:
        name: the block's name, for messages.
        table: the strategy table of its training graph.
        pins: the cuts of parameters that are tiled already.
        parts: the number of parts that each step cuts them into; empty if there are none.
        session: the workers and the saved plans.
        training: whether the graph has gradients.
        with_whole_norms: makes the table of the graph in which the BatchNorms of these names stay
            whole; None if none can.

    Raises:
        ConfigError: the file has no plan for the first graph that trains.
    """
    plans, state = session.plans, session.state
    if plans is None:
        return None
    base, plan = table, plans.plan_for(table, session.workers)
    whole = plans.kept_whole(table.graph.hash, session.workers)
    if plan is None and whole and with_whole_norms is not None:
        base = with_whole_norms(whole)
        plan = plans.plan_for(base, session.workers)
    for limit in plans.recomputations(session.workers) if training and plan is None else ():
        plan = plan or plans.plan_for(recomputed(base, limit).table, session.workers)
    if plan is not None and _keeps(plan, pins, parts):
        state.plan_matched = True
        return plan
    if training and not state.plan_matched:
        differs = plans.difference(table.graph) if plan is None else ""
        raise ConfigError(
            f"{plans.path}: no plan for the training graph of {name}; "
            + (f"{differs}. " if differs else "the file is for another graph. ")
            + f"(Graph {', '.join(sorted({key for key, _ in plans.plans}))}, here "
            f"{table.graph.hash}.) Layers, shapes, batch size and optimizer must be the same: "
            "save the plan again with tofu plan --save, or unset TOFU_PLAN"
        )
    if not state.plan_missing:
        state.plan_missing = True
        messages.plan_missing(name, plans.path)
    return None


def options_for(
    name: str, table: _core.StrategyTable, session: Session, *, training: bool
) -> SearchOptions:
    """Return the search options for a graph: the session's, with the pins of its tensors.

    Notes pins that match no tensor: they may be misspelt, or meant for a later block.
    """
    options = session.wish.options
    if not options.pins:
        return options
    names = dict.fromkeys(table.graph.tensor_names)
    try:
        pins, absent = pinned(options.pins, names)
    except PlanError as error:
        raise ConfigError(f"TOFU_PINS: {error}") from None
    if training:
        state = session.state
        before = set(absent) if state.absent_pins is None else state.absent_pins
        state.absent_pins = before & set(absent)
        if absent:
            state.tensor_names.update(names)
    return dataclasses.replace(options, pins=tuple(pins.items()))


@contextlib.contextmanager
def checked_pins(options: SearchOptions) -> Iterator[None]:
    """Turn the PlanError of a user's pin that does not fit the graph into a ConfigError.

    A ConfigError ends the run; after a PlanError the block would run serially.

    Raises:
        ConfigError: a pin does not fit the graph.
    """
    try:
        yield
    except PlanError as error:
        if any(f'pin of "{name}"' in str(error) for name, _ in options.pins):
            raise ConfigError(f"TOFU_PINS: {error}") from None
        raise


def check_pins(options: SearchOptions, plan: _core.Plan, path: Path) -> None:
    """Raise ConfigError for a pin that a saved plan contradicts."""
    names = set(plan.table.graph.tensor_names)
    for name, pin in options.pins:
        cuts = plan.cuts(name) if name in names else list(pin)
        if cuts != list(pin) and cuts != list(pin) * len(cuts):
            raise ConfigError(
                f"TOFU_PINS: pin {name}={','.join(map(str, pin))}: {path} cuts it along "
                f"{','.join(map(str, cuts))} (-1: not at all); leave out the pin, or save a plan "
                "with it: tofu plan --pin ... --save"
            )


def _keeps(plan: _core.Plan, pins: Mapping[str, Sequence[int]], parts: Sequence[int]) -> bool:
    """Whether a plan cuts the pinned variables as their pins say."""
    if parts and Parts.of(plan) != parts:
        return False
    names = set(plan.table.graph.tensor_names)
    return all(plan.cuts(name) == list(pin) for name, pin in pins.items() if name in names)

"""Keeps the programs of a run within the memory that a worker may hold (TOFU_MEMORY).

What a program takes is predicted before it is bound: its own tensors for each time that it is
bound, and its parameters and optimizer state, which programs of the same parameters share.
Programs that nothing waits for are unbound where that makes room.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np

from tofu.errors import MemoryLimitError
from tofu.gluon.session import messages
from tofu.gluon.session.session import Session
from tofu.plans import Compiled, Plan, SearchOptions
from tofu.plans.layout import heads_of
from tofu.plans.recompute import fit_with_recomputation, recomputed
from tofu.plans.within import Fit, check_fits, fit_within, held_bytes, keep_what_fits

__all__ = ["Footprint", "check_room", "compile_within", "limit_of"]

_KEPT = ("parameters", "optimizer_state")


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What a program takes on the fullest worker.

    Attributes:
        plan: its plan, with its memory.
        parameters: ids of its parameters.
    """

    plan: Plan
    parameters: frozenset[int]

    @property
    def kept_bytes(self) -> int:
        """Parameters and optimizer state."""
        return sum(self.plan.bytes_per_worker.get(kind, 0) for kind in _KEPT)

    @property
    def bound_bytes(self) -> int:
        """What every bound program takes besides."""
        return held_bytes(self.plan) - self.kept_bytes


def limit_of(session: Session) -> Optional[int]:
    """What a worker may hold, in bytes: as the user has set, else what the GPUs have."""
    if session.memory_bytes is not None:
        return session.memory_bytes
    if session.contexts[0].device_type != "gpu":
        return None
    return min(int(mx.context.gpu_memory_info(each.device_id)[1]) for each in session.contexts)


def compile_within(
    name: str,
    compile_graph: Callable[[Any, SearchOptions, bool], Compiled],
    table: Any,
    options: SearchOptions,
    parameters: Mapping[str, Any],
    session: Session,
    *,
    recompute: str,
    is_saved: bool,
) -> tuple[Compiled, Optional[Footprint]]:
    """The cheapest program found that fits next to the others; without a limit, the cheapest.

    Args:
        name: the block, for messages.
        compile_graph: makes a program of a graph's table, with options to search with; told
            whether parts of the graph run again.
        table: the strategy table of the graph.
        options: how to search without a limit.
        parameters: the block's parameters.
        session: the workers.
        recompute: which activations are computed again, one of config.RECOMPUTES.
        is_saved: whether the plan is given, so that there is nothing to search.

    Raises:
        MemoryLimitError: none fits in what the user has set.
    """
    limit = limit_of(session)
    if limit is None:
        if recompute != "all":
            return compile_graph(table, options, False), None
        most = recomputed(table)
        return compile_graph(most.table, options, most.segments > 0), None
    ids = frozenset(map(id, parameters.values()))

    def fitting(room: int) -> Fit[tuple[Compiled, Footprint]]:
        def fit_graph(graph: Any, repeats: bool) -> Fit[tuple[Compiled, Footprint]]:
            searched: dict[int, Mapping[str, Any]] = {}

            def found_with(**changes: Any) -> tuple[Compiled, Footprint]:
                changed = dataclasses.replace(options, **changes)
                compiled = compile_graph(graph, changed, repeats)
                searched[id(compiled)] = changes
                return compiled, _footprint(compiled, parameters, session)

            def keeping(size: int) -> tuple[Compiled, Footprint]:
                changes = searched[id(fit.found[0])]
                return found_with(**changes, keep_fetched_bytes=size)

            if is_saved:
                found = found_with()
                fit = Fit(found, _held(found), _held(found) <= room)
            else:
                fit = fit_within(
                    lambda tiles: found_with(memory_limit_bytes=tiles),
                    _held,
                    room,
                    # Whole tensors may take more than the limit of tiles counts.
                    (lambda: found_with(allow_replication=False))
                    if options.allow_replication
                    else None,
                )
            if options.keep_fetched_bytes is not None:
                return fit
            return keep_what_fits(fit, keeping, _held, room)

        return fit_with_recomputation(table, fit_graph, recompute, room).fit

    fit = fitting(limit - _taken(session, ids))
    if not fit.fits and _release(session):
        fit = fitting(limit - _taken(session, ids))
    compiled, found = fit.found
    if not fit.fits:
        _refuse(name, found, limit, _taken(session, ids), session)
    return compiled, found


def _held(found: tuple[Compiled, Footprint]) -> int:
    return held_bytes(found[1].plan)


def _footprint(compiled: Compiled, parameters: Mapping[str, Any], session: Session) -> Footprint:
    memory = session.state.backend.step_memory(compiled.step, session.contexts)
    kinds = dict(memory.kinds)
    added = [name for name, parameter in parameters.items() if parameter.grad_req == "add"]
    # What is added to is divided like the parameter; what is added, too, before that.
    heads = {head.role: head.layout for head in heads_of(compiled.step.backward_heads)}
    for name in added:
        layout = compiled.variables[name].layout
        made = heads.get(f"gradient:{name}", layout)
        copies = 1 if made.boxes == layout.boxes else 2
        kinds["gradients"] += copies * _tile_bytes(layout)
    plan = dataclasses.replace(
        compiled.plan, bytes_per_worker=kinds, memory="exact", peak=memory.peak
    )
    return Footprint(plan, frozenset(map(id, parameters.values())))


def _tile_bytes(layout: Any) -> int:
    return int(math.prod(layout.boxes[0].shape) * np.dtype(layout.dtype).itemsize)


def check_room(name: str, pool: Any, bound: int, session: Session) -> None:
    """Make room for one more program of a pool.

    Args:
        name: the block, for messages.
        pool: the pool, or another key of the session's footprints.
        bound: how many of its programs are bound.
        session: the workers.

    Raises:
        MemoryLimitError: it does not fit in what the user has set.
    """
    own: Optional[Footprint] = session.state.footprints.get(pool)
    limit = limit_of(session)
    if own is None or limit is None:
        return

    room = limit - held_bytes(own.plan) - bound * own.bound_bytes
    if _taken(session, own.parameters, pool) > room:
        _release(session, pool)
        taken = _taken(session, own.parameters, pool)
        if taken > room:
            _refuse(name, own, limit, taken + bound * own.bound_bytes, session)


def _refuse(name: str, found: Footprint, limit: int, taken: int, session: Session) -> None:
    """Raise MemoryLimitError for what does not fit; only warn if the limit is what GPUs have."""
    try:
        check_fits(name, found.plan, limit, taken_bytes=taken, recompute=session.recompute)
    except MemoryLimitError as error:
        if session.memory_bytes is not None:
            raise
        if "memory" not in session.state.told:
            session.state.told.add("memory")
            messages.warn(f"{error}. It runs as planned, as TOFU_MEMORY is not set")


def _others(session: Session, pool: Any) -> Iterable[tuple[Any, Footprint]]:
    return ((key, each) for key, each in list(session.state.footprints.items()) if key is not pool)


def _taken(session: Session, parameters: frozenset[int], pool: Any = None) -> int:
    """What programs of other pools hold, without parameters that are given."""
    total, counted = 0, parameters
    for other, each in _others(session, pool):
        total += other.bound * each.bound_bytes
        if not each.parameters <= counted:
            total += each.kept_bytes
            counted |= each.parameters
    return total


def _release(session: Session, pool: Any = None) -> bool:
    """Unbind the programs of other pools that nothing waits for; whether there were any."""
    released = False
    for other, _ in _others(session, pool):
        before = other.bound
        other.release()
        released |= other.bound < before
    return released

"""Keeps the programs of a run within the memory that a worker may hold (TOFU_MEMORY).

A program's memory is predicted before it is bound: its own tensors each time that it is bound, and
its parameters and optimizer state, which it shares with other programs of the same parameters.
Programs that nothing waits for are unbound to make room.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, Optional

import mxnet as mx
import numpy as np

from tofu.errors import MemoryLimitError
from tofu.gluon.session import messages
from tofu.gluon.session.session import Session
from tofu.planner.compile_plan import Compiled
from tofu.planner.decide import Programs, decide
from tofu.planner.limits import check_fits, held_bytes
from tofu.planner.search import Searched
from tofu.planner.wish import Wish
from tofu.plans import Plan, Problem, SearchOptions
from tofu.plans.layout import heads_of
from tofu.plans.machine_files import read_machine

from .saved_plans import checked_pins

__all__ = ["BlockPrograms", "Footprint", "check_room", "decide_within", "limit_of"]

_KEPT = ("parameters", "optimizer_state")


@dataclasses.dataclass(frozen=True)
class Footprint:
    """A program's memory on the fullest worker.

    Attributes:
        plan: the program's plan, with its memory.
        parameters: ids of the program's parameters.
    """

    plan: Plan
    parameters: frozenset[int]

    @property
    def kept_bytes(self) -> int:
        """Bytes of parameters and optimizer state."""
        return sum(self.plan.bytes_per_worker.get(kind, 0) for kind in _KEPT)

    @property
    def bound_bytes(self) -> int:
        """The bytes that all other bound programs take."""
        return held_bytes(self.plan) - self.kept_bytes


def limit_of(session: Session) -> Optional[int]:
    """The bytes that a worker may hold: the user's setting, else the memory of the smallest GPU.

    Where the search gives GPUs tiles by their memory, it is that of the largest.
    """
    if session.wish.limit_bytes is not None:
        return session.wish.limit_bytes
    if session.contexts[0].device_type != "gpu":
        return None
    sizes = [int(mx.context.gpu_memory_info(each.device_id)[1]) for each in session.contexts]
    return max(sizes) if _is_shared(session.wish.options) else min(sizes)


def _is_shared(options: SearchOptions) -> bool:
    """Whether unlike devices get unlike tiles."""
    return options.objective == "time" and read_machine(options.machine).is_mixed


def decide_within(
    problem: Problem, wish: Wish, programs: BlockPrograms, session: Session
) -> tuple[Compiled, Optional[Footprint]]:
    """Return the cheapest program found that fits next to the others, if there is a limit.

    Args:
        problem: the block's graph.
        wish: how to plan.
        programs: makes programs of the block.
        session: the workers.

    Raises:
        MemoryLimitError: none fits in the limit that the user has set.
    """
    limit = limit_of(session)
    programs.counts_memory = limit is not None or wish.whole_share is not None
    if limit is None:
        return decide(problem, wish, programs).made
    ids = frozenset(map(id, programs.parameters.values()))
    room = limit - _taken(session, ids)
    decision = decide(problem, wish, programs, room_bytes=room)
    if not decision.fits and _release(session):
        room = limit - _taken(session, ids)
        decision = decide(problem, wish, programs, room_bytes=room)
    compiled, footprint = decision.made
    if not decision.fits and footprint is not None:
        _refuse(problem.name, footprint, limit, _taken(session, ids), session)
    return compiled, footprint


class BlockPrograms(Programs[tuple[Compiled, Optional[Footprint]]]):
    """Programs of a block: searches and compiles with the session's backend.

    Args:
        parameters: the block's parameters.
        fetch: how workers can fetch, as the backend's ``usable_fetch`` found.
        session: the workers.
    """

    def __init__(self, parameters: Mapping[str, Any], fetch: Any, session: Session) -> None:
        self.parameters = parameters
        self.counts_memory = False
        self._fetch = fetch
        self._session = session

    def search(self, problem: Problem, options: SearchOptions) -> Searched:
        """Search a plan, or take the saved one."""
        doing = "reading the plan" if problem.saved else "searching a plan"
        wish = self._session.wish
        with checked_pins(options), messages.phase(problem.name, doing, self._session):
            searched: Searched = self._session.state.backend.search(
                problem, options, fetch=self._fetch.kind, dump_dir=wish.dump_dir
            )
        return searched

    def make(
        self, searched: Searched, keep_fetched_bytes: int
    ) -> tuple[Compiled, Optional[Footprint]]:
        """Partition and schedule; count the memory if there is a limit."""
        session = self._session
        with messages.phase(searched.problem.name, "partitioning", session):
            compiled: Compiled = session.state.backend.compile_plan(
                searched.plan,
                fetch=self._fetch,
                keep_fetched_bytes=keep_fetched_bytes,
                dump_dir=session.wish.dump_dir,
            )
        session.state.lookers.see_compiled(compiled)
        return compiled, self._footprint(compiled) if self.counts_memory else None

    def held_bytes(self, made: tuple[Compiled, Optional[Footprint]]) -> int:
        """The bytes of a program on the fullest worker."""
        return 0 if made[1] is None else held_bytes(made[1].plan)

    def _footprint(self, compiled: Compiled) -> Footprint:
        memory = self._session.state.backend.step_memory(compiled.step, self._session.contexts)
        kinds = dict(memory.kinds)
        added = [name for name, each in self.parameters.items() if each.grad_req == "add"]
        # The sum is divided like the parameter, and so, before that, is each gradient.
        heads = {head.role: head.layout for head in heads_of(compiled.step.backward_heads)}
        for name in added:
            layout = compiled.variables[name].layout
            gradient = heads.get(f"gradient:{name}", layout)
            copies = 1 if gradient.boxes == layout.boxes else 2
            kinds["gradients"] += copies * _tile_bytes(layout)
        plan = dataclasses.replace(
            compiled.plan, bytes_per_worker=kinds, memory="exact", peak=memory.peak
        )
        return Footprint(plan, frozenset(map(id, self.parameters.values())))


def _tile_bytes(layout: Any) -> int:
    return int(math.prod(layout.boxes[0].shape) * np.dtype(layout.dtype).itemsize)


def check_room(name: str, pool: Any, bound: int, session: Session) -> None:
    """Make room for one more program of a pool.

    Args:
        name: the block, for messages.
        pool: the pool, or another key of the session's footprints.
        bound: the number of its programs that are bound.
        session: the workers.

    Raises:
        MemoryLimitError: it does not fit in the limit that the user has set.
    """
    footprint: Optional[Footprint] = session.state.footprints.get(pool)
    limit = limit_of(session)
    if footprint is None or limit is None:
        return

    room = limit - held_bytes(footprint.plan) - bound * footprint.bound_bytes
    if _taken(session, footprint.parameters, pool) > room:
        _release(session, pool)
        taken_bytes = _taken(session, footprint.parameters, pool)
        if taken_bytes > room:
            _refuse(name, footprint, limit, taken_bytes + bound * footprint.bound_bytes, session)


def _refuse(
    name: str, footprint: Footprint, limit: int, taken_bytes: int, session: Session
) -> None:
    """Raise MemoryLimitError; only warn if the user has set no limit."""
    try:
        check_fits(
            name, footprint.plan, limit, taken_bytes=taken_bytes, recompute=session.wish.recompute
        )
    except MemoryLimitError as error:
        if session.wish.limit_bytes is not None:
            raise
        if "memory" not in session.state.told:
            session.state.told.add("memory")
            messages.warn(f"{error}. It runs as planned, as TOFU_MEMORY is not set")


def _others(session: Session, pool: Any) -> Iterable[tuple[Any, Footprint]]:
    return ((key, each) for key, each in list(session.state.footprints.items()) if key is not pool)


def _taken(session: Session, parameters: frozenset[int], pool: Any = None) -> int:
    """Bytes that programs of other pools hold, except for these parameters."""
    total, counted = 0, parameters
    for other_pool, footprint in _others(session, pool):
        total += other_pool.bound * footprint.bound_bytes
        if not footprint.parameters <= counted:
            total += footprint.kept_bytes
            counted |= footprint.parameters
    return total


def _release(session: Session, pool: Any = None) -> bool:
    """Unbind idle programs of other pools. Returns whether there were any."""
    released = False
    for other_pool, _ in _others(session, pool):
        before = other_pool.bound
        other_pool.release()
        released |= other_pool.bound < before
    return released

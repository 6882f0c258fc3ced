"""Searches within a memory limit: lowers the limit of tiles until the plan found fits.

A search limits tiles only (src/passes/search/tilings/memory_limit.h). The memory that a plan
really takes, with the regions that operators fetch and the blocks that MXNet cannot reuse, is known
afterwards; the limit of the tiles is lowered by the excess, until the plan fits.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Generic, Optional, TypeVar

from tofu import _core
from tofu.errors import MemoryLimitError, PlanError
from tofu.plans import Plan, Problem
from tofu.plans.plan import format_bytes
from tofu.plans.render.peak import held_groups, peak_text

__all__ = ["Fit", "check_fits", "fit_within", "held_bytes", "keep_what_fits", "serial_memory"]

Found = TypeVar("Found")
_TRIES = 6
_LEAST_CUT = 0.01  # of the limit, between two tries
_HELD_SHOWN = 3
_LEAST_KEPT = 0.002  # of the limit, for which another partition is not worth it


def serial_memory(problem: Problem) -> int:
    """Estimate the memory of one device, counted as a run's summary counts a worker's."""
    return _core.plan(problem.table, workers=1).memory_bytes


def held_bytes(plan: Plan) -> int:
    """Bytes that the fullest worker holds."""
    return sum(plan.bytes_per_worker.values())


@dataclasses.dataclass(frozen=True)
class Fit(Generic[Found]):
    """Result of the searches within a limit.

    Attributes:
        found: the cheapest that fits; if none does, the one that holds least.
        held_bytes: the bytes that it holds.
        fits: whether it fits.
    """

    found: Found
    held_bytes: int
    fits: bool

    @classmethod
    def of(cls, found: Found, held: Callable[[Found], int], limit_bytes: int) -> Fit[Found]:
        """Compare the bytes that a plan holds with the limit."""
        size = held(found)
        return cls(found, size, size <= limit_bytes)


def fit_within(
    search: Callable[[Optional[int]], Found],
    held: Callable[[Found], int],
    limit_bytes: int,
    fallback: Optional[Callable[[], Found]] = None,
) -> Fit[Found]:
    """Find the cheapest plan of a few searches within a limit.

    Args:
        search: finds the cheapest plan whose tiles take at most so many bytes; None: any number.
        held: counts the bytes that a plan really takes.
        limit_bytes: bytes that a worker can hold.
        fallback: finds another plan that may hold less, tried last.

    Raises:
        PlanError: even the search without a limit finds nothing.
    """
    least = Fit.of(search(None), held, limit_bytes)
    finest = int(_LEAST_CUT * limit_bytes)
    tiles, last, step = limit_bytes, least.held_bytes, 0
    low, high = 0, limit_bytes + finest  # no plan's tiles fit in `low`; those of `high` hold more
    for _ in range(_TRIES):
        if least.fits or high - low < finest:
            break
        try:
            limited = Fit.of(search(tiles), held, limit_bytes)
        except PlanError:
            low = tiles
        else:
            least = min(least, limited, key=lambda fit: fit.held_bytes)
            high, excess = tiles, max(limited.held_bytes - limit_bytes, finest)
            # A limit far above the plan's tiles changes nothing, so the next goes twice as far.
            step = 2 * step if step and limited.held_bytes == last else excess
            last = limited.held_bytes
        tiles = high - step if high - step > low else (low + high) // 2
    if not least.fits and fallback is not None:
        other = Fit.of(fallback(), held, limit_bytes)
        least = min(least, other, key=lambda fit: fit.held_bytes)
    return least


def keep_what_fits(
    fit: Fit[Found],
    keep: Callable[[int], Found],
    held: Callable[[Found], int],
    limit_bytes: int,
) -> Fit[Found]:
    """Keep as many fetched regions of a plan as the limit has memory for.

    Args:
        fit: a plan that keeps none between forward and backward.
        keep: makes the plan whose peaks grow by so many bytes for regions.
        held: counts the bytes that a plan really takes.
        limit_bytes: bytes that a worker can hold.
    """
    spare = limit_bytes - fit.held_bytes
    for _ in range(_TRIES):
        if not fit.fits or spare < _LEAST_KEPT * limit_bytes:
            break
        larger = Fit.of(keep(spare), held, limit_bytes)
        if larger.fits:
            return larger
        spare -= max(larger.held_bytes - limit_bytes, spare // 4)
    return fit


def check_fits(
    name: str, plan: Plan, limit_bytes: int, *, taken_bytes: int = 0, recompute: str = "all"
) -> None:
    """Raise MemoryLimitError unless a plan fits; the message lists what takes the memory.

    Args:
        name: the name of what is planned.
        plan: the plan that holds least, with its memory.
        limit_bytes: bytes that a worker can hold.
        taken_bytes: the part of the limit that other graphs of the run hold.
        recompute: whether recomputation was tried, one of config.RECOMPUTES.
    """
    held = held_bytes(plan)
    if held + taken_bytes <= limit_bytes:
        return
    workers = f"{plan.workers} worker{'s' * (plan.workers > 1)}"
    advice = "recomputation (TOFU_RECOMPUTE=auto), " if recompute == "none" else ""
    others = f", next to {format_bytes(taken_bytes)} of other graphs" if taken_bytes else ""
    raise MemoryLimitError(
        f"{name}: no plan over {workers} was found that fits in {format_bytes(limit_bytes)}"
        f"{others}; the least that one holds is {format_bytes(held)}. {_worst_moment(plan)}"
        f"Use more workers, a smaller batch, {advice}or an optimizer with less state"
    )


def _worst_moment(plan: Plan) -> str:
    """Describe the memory, and the moment when a worker holds most; an estimate has no moment."""
    kinds = ((size, kind.replace("_", " ")) for kind, size in plan.bytes_per_worker.items())
    shares = ", ".join(
        f"{format_bytes(size)} {kind}" for size, kind in sorted(kinds, reverse=True) if size
    )
    text = f"That is {shares}. "
    if plan.peak is None or not plan.peak.nodes:
        return text
    groups = held_groups(plan)[:_HELD_SHOWN]
    largest = "; ".join(
        f"{group.name}{f' (x {len(group)})' * (len(group) > 1)}: {format_bytes(group.bytes)}"
        for group in groups
    )
    moment = peak_text(plan)[0]
    return f"{text}{moment[0].upper()}{moment[1:]}. Largest then: {largest}. "

"""Table, for a terminal, of a worker's memory at its worst moment."""

from __future__ import annotations

from tofu.errors import PlanError
from tofu.tables import table

from ..names import readable
from ..peak import Held, operator_of
from ..plan import Plan, format_bytes
from .grouping import Repeated, repeated
from .text import ROWS, summary

__all__ = ["held_groups", "peak_text", "render_peak"]


def render_peak(plan: Plan, *, everything: bool = False) -> str:
    """The worst moment: its time, and the tensors alive then.

    Raises:
        PlanError: the plan has estimated memory only.
    """
    groups = held_groups(plan)
    shown = groups if everything else groups[:ROWS]
    lines = [*summary(plan), *peak_text(plan), ""]
    header = ("alive then, written by or fetched for", "x N", "", "bytes")
    lines += table(header, map(_row, shown), right=(3,))
    rest = groups[len(shown) :]
    if rest:
        count, size = sum(map(len, rest)), sum(group.bytes for group in rest)
        lines.append(f"... and {count:,} more, {format_bytes(size)} together; --all shows all")
    return "\n".join(lines) + "\n"


def _row(group: Repeated[Held]) -> tuple[str, ...]:
    kind = "" if group.first.kind == "tensor" else group.first.kind
    times = f"x {len(group)}" if len(group) > 1 else ""
    return group.name, times, kind, format_bytes(group.bytes)


def held_groups(plan: Plan) -> list[Repeated[Held]]:
    """Tensors alive at the worst moment, grouped by names that differ in a number only."""
    if plan.peak is None:
        raise PlanError("plan: what a worker holds needs exact memory (--count exact)")
    return repeated(
        plan.peak.held,
        name=lambda held: held.name,
        alike=lambda held: (held.kind, held.bytes),
        size=lambda held: held.bytes,
    )


def peak_text(plan: Plan) -> list[str]:
    """Describes the worst moment in words."""
    peak = plan.peak
    if peak is None or not peak.nodes:
        return []
    needed, at = peak.bytes[peak.moment], peak.moment
    allocated = format_bytes(peak.allocated_bytes)
    allocation = f", for which MXNet allocates {allocated}" if peak.allocated_bytes else ""
    return [
        f"worker {peak.worker} needs most while it runs {readable(operator_of(peak.nodes[at]))} "
        f"(operator {at + 1:,} of {len(peak.nodes):,}): {format_bytes(peak.fixed_bytes + needed)}",
        f"{format_bytes(peak.fixed_bytes)} of that are parameters, states and inputs, which stay; "
        f"{format_bytes(needed)} are tensors between operators{allocation}",
    ]

"""Tells of a planned kind of call, in a line on standard error."""

from __future__ import annotations

import logging
import math

from tofu.planner.limits import held_bytes
from tofu.planner.search import is_kept
from tofu.plans.plan import format_bytes
from tofu.plans.report_level import LOG, in_short
from tofu.torch.graphs.torch_plan import TorchPlan

__all__ = ["tell_planned"]


def tell_planned(name: str, plan: TorchPlan, device: str, origin: str, *, first: bool) -> None:
    """Tell of a plan, for later kinds of call at level debug alone.

    Args:
        name: the module's name.
        plan: its plan.
        device: the type of the ranks' devices.
        origin: the file of the plan, or other words for it; "": it was searched.
        first: whether it is for the module's first kind of call.
    """
    variables = (v for v in plan.traced.variables if v.kind == "parameter")
    ranks = math.prod(plan.mesh)
    LOG.log(
        logging.INFO if first else logging.DEBUG,
        "%s (%s operators, %s parameters) over %d rank%s (%s, %s): %s communicated per step, "
        "about %s on a rank, %s",
        name,
        f"{len(plan.traced.operators):,}",
        in_short(sum(math.prod(v.meta.shape) for v in variables)),
        ranks,
        "" if ranks == 1 else "s",
        " x ".join(map(str, plan.mesh)),
        device,
        format_bytes(plan.received_bytes),
        format_bytes(held_bytes(plan.details)),
        origin or _found(plan),
    )


def _found(plan: TorchPlan) -> str:
    searched = plan.details.searched
    if searched is not None and is_kept(searched):
        return "plan of an earlier run (TOFU_CACHE=0 searches again)"
    return f"search {plan.details.search_seconds:.2f} s"

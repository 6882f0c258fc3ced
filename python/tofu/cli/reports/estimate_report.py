"""What an estimate of memory is of, and what it means, in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

from tofu.planner.estimate import OPTIMIZERS, Estimate, estimate, fewest
from tofu.planner.model import Devices, Model
from tofu.planner.recomputation import recomputing
from tofu.plans import Problem
from tofu.plans.plan import format_bytes, format_seconds
from tofu.plans.price_file import Price
from tofu.plans.render.peak import held_groups, peak_text
from tofu.plans.render.text import unequal_sizes

__all__ = ["Report", "advice", "batch_text"]

_HELD_SHOWN = 3
_SAVES = 0.99  # of the bytes: less is worth a word


@dataclasses.dataclass(frozen=True)
class Report:
    """Options for printing an estimate.

    Attributes:
        target: what was estimated.
        found: an estimate for each number of workers.
        optimizer: the one that has to fit.
        exact: whether bytes are what MXNet will allocate.
        limit: what a worker can hold, in bytes; None if there is no limit.
        batches: the largest batch that fits, by devices; 0: none.
        about: whether batches are extrapolated.
        recomputes: whether as few activations as possible are kept.
        again: if nothing fits, the least with recomputation.
        machine: the machine that predicts the time of a step; "" for none.
        price: the price of one of its devices, or None.
        masters: as has_masters of Estimate.
    """

    target: str
    found: Sequence[Estimate]
    optimizer: str
    exact: bool
    limit: Optional[int] = None
    batches: Mapping[Devices, int] = dataclasses.field(default_factory=dict)
    about: bool = False
    recomputes: bool = False
    again: Optional[Estimate] = None
    machine: str = ""
    price: Optional[Price] = None
    masters: bool = False

    def estimated(self, model: Model, devices: Sequence[Devices]) -> Iterator[Estimate]:
        """The memory over some devices."""

        def problem_for(each: Devices) -> Problem:
            problem = model.problem(each)
            return recomputing(problem) if self.recomputes else problem

        return estimate(
            problem_for, devices=devices, exact=self.exact, machine=self.machine,
            has_masters=self.masters,
        )  # fmt: skip

    def best(self) -> Optional[Estimate]:
        """The fewest workers that fit, if any do."""
        return fewest(self.found, self.optimizer, self.limit or 0)

    def money(self, each: Estimate) -> Optional[float]:
        """The price of a step over some workers; None if it is unknown."""
        if self.price is None or each.step_seconds is None:
            return None
        return self.price.of(each.workers, each.step_seconds)

    def least(self) -> Estimate:
        """The workers that hold least."""
        planned = [each for each in self.found if each.plan]
        return min(planned, key=lambda each: each.held_bytes(self.optimizer))


def batch_text(batch: int, *, about: bool) -> str:
    """A batch size; two digits of it, rounded down, if it is extrapolated."""
    if not about or not batch:
        return str(batch) if batch else "none"
    unit = 10 ** max(len(str(batch)) - 2, 0)
    return f"about {batch // unit * unit}"


def advice(report: Report) -> list[str]:
    """Explains the table in words."""
    lines = ["Memory of the fullest worker" + ("." if report.exact else ", an estimate.")]
    lines[0] += " State of sgd_mom: as of NAG and RMSProp; of adam: as of LAMB."
    if any(each.plan and not each.kinds["gradients"] for each in report.found):
        lines.append("Gradients take 0 bytes where there are none at the worst moment of a step.")
    if report.masters:
        lines.append("State is in float32, with a float32 copy of each parameter of fewer bits.")
    lines += _unequal(report.found)
    if report.limit is None:
        return lines
    size = format_bytes(report.limit)
    lines.append(f"+ fits in {size}, - does not.")
    best = report.best()
    if best is None:
        return lines + _nothing_fits(report, size)
    lines += _money_text(report)
    if best.workers == 1:
        step = _step_text(best, report.machine)
        return [*lines, f"It fits in {size} with {report.optimizer} without tofu{step}."]
    held = format_bytes(best.held_bytes(report.optimizer))
    price = format_bytes(best.plan.total_bytes if best.plan else 0)
    tried = {each.workers for each in report.found}
    given = "" if tried >= set(range(1, best.workers)) else " of these"
    return [
        *lines,
        f"{best.devices} workers are the fewest{given} that fit with {report.optimizer}: {held} on "
        f"each, {price} communicated in a step{_step_text(best, report.machine)}.",
    ]


def _step_text(each: Estimate, machine: str) -> str:
    if each.step_seconds is None:
        return ""
    return f"; a step takes {format_seconds(each.step_seconds)} on {machine}, as predicted"


def _money_text(report: Report) -> list[str]:
    """A line on the workers that fit and cost least in a step, if there is a price."""
    fitting = [
        (money, each)
        for each in report.found
        if each.plan and each.held_bytes(report.optimizer) <= (report.limit or 0)
        for money in [report.money(each)]
        if money is not None
    ]
    if report.price is None or not fitting:
        return []
    money, least = min(fitting, key=lambda each: each[0])
    workers = f"{least.devices} worker{'s' * (least.workers > 1)}"
    return [f"{workers} cost least: {report.price.text(1000 * money)} for 1,000 steps."]


def _unequal(estimates: Sequence[Estimate]) -> list[str]:
    """A line with an example of tiles that are not equal, if some are not."""
    for each in estimates:
        plan = each.plan
        if plan is None:
            continue
        for tensor in sorted(plan.tensors, key=lambda tensor: -tensor.bytes):
            sizes = unequal_sizes(tensor, plan.parts)
            if sizes:
                return [
                    f"Not all tiles are equal: over {each.devices} workers those of {tensor.label} "
                    f"have {sizes}."
                ]
    return []


def _nothing_fits(report: Report, size: str) -> list[str]:
    """Lines on the least memory that would do, the tensors that take it, and possible changes."""
    least = report.least()
    held = format_bytes(least.held_bytes(report.optimizer))
    over = f"{least.devices} worker{'s' * (least.workers > 1)}"
    again = ", with recomputation" * report.recomputes
    lines = [
        f"Nothing fits in {size} with {report.optimizer}: the least is {held}, over {over}{again}"
        f"{_with_recomputation(report, least)}."
    ]
    plan = least.plan
    if plan is not None and plan.peak is not None:
        lines += peak_text(plan)
        groups = held_groups(plan)[:_HELD_SHOWN]
        named = [
            f"{g.name}{f' (x {len(g)})' * (len(g) > 1)}: {format_bytes(g.bytes)}" for g in groups
        ]
        lines += [f"largest then: {'; '.join(named)}"] if named else []
    return [*lines, f"What would help: {'; '.join(_changes(report, least))}."]


def _with_recomputation(report: Report, least: Estimate) -> str:
    """The result of the attempt with recomputation, if there was one."""
    if report.again is None:
        return ""
    held = report.again.held_bytes(report.optimizer)
    if held >= _SAVES * least.held_bytes(report.optimizer):
        return "; recomputation hardly helps"
    return f"; with recomputation it is {format_bytes(held)}"


def _changes(report: Report, least: Estimate) -> list[str]:
    """Suggests changes that would make the graph fit."""
    fitting = {devices: batch for devices, batch in report.batches.items() if batch}
    lines = []
    if fitting:
        devices, batch = max(fitting.items(), key=lambda item: item[1])
        size = batch_text(batch, about=report.about)
        lines.append(f"a batch of {size} over {devices} worker{'s' * (devices.workers > 1)}")
    held = report.again.held_bytes(report.optimizer) if report.again else 0
    if held and held < _SAVES * least.held_bytes(report.optimizer):
        lines.append(f"--recompute all, with which it is {format_bytes(held)}")
    others = [name for name, states in OPTIMIZERS.items() if states < OPTIMIZERS[report.optimizer]]
    lighter = [name for name in others if least.held_bytes(name) <= (report.limit or 0)]
    lines += [f"{lighter[-1]} instead of {report.optimizer}"] if lighter else []
    return [*lines, f"more than {max(each.workers for each in report.found)} workers"]

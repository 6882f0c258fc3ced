"""The options of the plan search (``_core.plan``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Optional

from tofu import _core
from tofu.config import Config
from tofu.errors import PlanError

from .names import is_pattern, matching, near_text

__all__ = ["Pins", "TIME_LIMIT_S", "SearchOptions", "check_pins", "pinned"]

TIME_LIMIT_S = 60.0  # as PlanOptions has it (src/passes/search/make_plan.h)
Pins = Mapping[str, Sequence[int]]


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The user's options for the search.

    Attributes:
        mode: one of config.MODES.
        time_limit_s: seconds after which the search takes its best plan; None: TIME_LIMIT_S.
        pins: tensor and the dimension to cut, one for all steps or one per step;
            -1 leaves it whole. A tensor is a name, a pattern ("*_weight"), or the end of one
            name ("dense0_weight").
        allow_replication: whether large tensors may stay whole if that is cheaper.
        objective: what to minimise, one of config.OBJECTIVES.
        machine: a machine file or name that predicts a step's time; "" for none.
        coarsen: whether to decide once for tensors and operators that are partitioned alike.
        parts: the number of parts that each step cuts into; empty: the search chooses.
        memory_limit_bytes: what the tiles of a worker may take at a time, without fetched
            regions (tofu.planner.limits counts all); None: any size.
        keep_fetched_bytes: by how much a worker's peak may grow for fetched regions that it
            keeps, also from forward to backward, instead of fetching them again; None: by
            what a memory limit leaves (tofu.planner.limits).
        tie_updates: whether gradients and optimizer states are cut like their parameter where
            it stays whole, too.
        is_balanced: whether times are those of devices whose tiles are as large as they are fast,
            on a machine where these differ.
        equal_tiles: whether all tiles of a tensor must have one size: steps cut only
            dimensions that their parts divide.
    """

    mode: str = "tofu"
    time_limit_s: Optional[float] = None
    pins: tuple[tuple[str, tuple[int, ...]], ...] = ()
    allow_replication: bool = False
    coarsen: bool = True
    parts: tuple[int, ...] = ()
    objective: str = "bytes"
    machine: str = ""
    memory_limit_bytes: Optional[int] = None
    keep_fetched_bytes: Optional[int] = 0
    tie_updates: bool = False
    equal_tiles: bool = False
    is_balanced: bool = False

    @classmethod
    def of(cls, config: Config, time_limit_s: Optional[float] = None) -> SearchOptions:
        """Take the options of the search from the configuration."""
        return cls(
            config.search,
            time_limit_s,
            config.pins,
            config.replication,
            objective=config.objective,
            machine=config.machine,
            keep_fetched_bytes=config.keep_fetched_bytes,
        )

    @property
    def limit_s(self) -> float:
        """The time limit, given or not."""
        return TIME_LIMIT_S if self.time_limit_s is None else self.time_limit_s

    @property
    def ties_states(self) -> bool:
        """Whether the search cuts optimizer states like their parameter."""
        return self.tie_updates or _core.ties_updates(self.mode, self.allow_replication)

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of ``_core.plan`` that differ from its defaults."""
        changed: dict[str, Any] = {"mode": self.mode}
        if self.time_limit_s is not None:
            changed["time_limit_s"] = self.time_limit_s
        if self.parts:
            changed["parts"] = list(self.parts)
        if self.allow_replication:
            changed["allow_replication"] = True
        if self.tie_updates:
            changed["tie_updates"] = True
        if self.equal_tiles:
            changed["equal_tiles"] = True
        if self.memory_limit_bytes is not None:
            changed["memory_limit"] = self.memory_limit_bytes
        if not self.coarsen:
            changed["coarsen"] = False
        return changed


def pinned(
    pins: Iterable[tuple[str, Sequence[int]]], names: Collection[str]
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """The tensors that pins stand for, with their cuts, and the pins that stand for none.

    A pin of a name counts more than a pattern that fits it.

    Raises:
        PlanError: two patterns cut a tensor differently.
    """
    cuts_of: dict[str, tuple[int, ...]] = {}
    origin: dict[str, str] = {}
    absent = []
    for name, cuts in sorted(pins, key=lambda pin: is_pattern(pin[0])):  # exact names first
        tensors = matching(name, names)
        if not tensors:
            absent.append(name)
        for tensor in tensors:
            before = cuts_of.setdefault(tensor, tuple(cuts))
            first = origin.setdefault(tensor, name)
            if before != tuple(cuts) and is_pattern(first):
                raise PlanError(
                    f"pin {name}: {tensor} also fits the pin {first}, which cuts it differently; "
                    f"pin {tensor} itself"
                )
    return cuts_of, absent


def check_pins(
    pins: Iterable[tuple[str, Sequence[int]]], names: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """The cuts of the tensors that pins stand for. Raises PlanError for a pin of none."""
    cuts_of, absent = pinned(pins, names)
    if absent:
        what = "that fits" if is_pattern(absent[0]) else "of that name"
        raise PlanError(
            f"pin {absent[0]}: the graph has no tensor {what}" + near_text(absent[0], names)
        )
    return cuts_of

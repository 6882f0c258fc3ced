"""The plans of other systems: single points next to a frontier, and candidates for time.

TensorOpt (Cai et al., section 5.1) compares its frontier with these; the other search modes can
be named, too.

The search for time only estimates a step, and the simulator may find a plan of another mode faster.
So such plans take part where the objective is time.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Callable

from tofu import _core
from tofu.config import MODES, OBJECTIVES, parse_mode
from tofu.errors import ConfigError, PlanError
from tofu.plans import SearchOptions

__all__ = ["RIVALS", "candidates", "cuts_of", "fast_rivals", "rivals_of"]

# Modes that keep tensors cut, and modes that hold whole weights. "flat" may take minutes.
_CUT = ("recursion", "equalchop", "soybean", "spartan", "allrow-greedy", "icml18")
_WHOLE = ("mesh-tensorflow", "data-parallel")
_NEAR = 1.25  # plans above this multiple of the shortest predicted step are not simulated
_MOST = 5  # are simulated, which takes seconds for a large graph


def _data_parallel(options: SearchOptions) -> SearchOptions:
    return dataclasses.replace(options, mode="data-parallel")


def _tofu(options: SearchOptions) -> SearchOptions:
    """Tofu's own plan: fewest bytes step by step, every tensor cut, under every objective."""
    return dataclasses.replace(options, mode="recursion", objective="bytes")


def _optcnn(options: SearchOptions) -> SearchOptions:
    """OptCNN's and FlexFlow's plan: the least time, however much memory that takes."""
    if options.objective != "time":
        raise ConfigError(
            "rival optcnn: it minimises the time of a step, which only --machine predicts; name "
            "a machine, or leave the rival out"
        )
    return dataclasses.replace(options, allow_replication=True)


RIVALS: Mapping[str, Callable[[SearchOptions], SearchOptions]] = {
    "data-parallel": _data_parallel,
    "tofu": _tofu,
    "optcnn": _optcnn,
}


def rivals_of(names: Iterable[str], options: SearchOptions) -> dict[str, SearchOptions]:
    """The searches that find the rivals' plans.

    Args:
        names: of RIVALS, or search modes.
        options: how the frontier is searched.

    Raises:
        ConfigError: a name is neither, or the rival needs a machine.
    """
    searches = {}
    for name in names:
        rival = RIVALS.get(name)
        mode = name if rival else parse_mode(name, "--rivals")
        searches[name] = rival(options) if rival else dataclasses.replace(options, mode=mode)
    return searches


def candidates(options: SearchOptions) -> dict[str, SearchOptions]:
    """The mode's own searches for time, by name; of equally fast plans the first is chosen."""
    searches = {"time": options}
    if options.allow_replication:
        searches["time, all operators split"] = dataclasses.replace(
            options, allow_replication=False
        )
    searches["bytes"] = dataclasses.replace(options, objective="bytes")
    return searches


def fast_rivals(
    options: SearchOptions,
    plans: Iterable[_core.Plan],
    plan_of: Callable[[SearchOptions], _core.Plan],
) -> dict[str, tuple[_core.Plan, SearchOptions]]:
    """The plans of other modes that are predicted to be about as fast as the best, by name.

    A mode that the user chose has no rivals. Within a memory limit only the default mode can
    search.

    Args:
        options: the search for time.
        plans: its plans, and others that are simulated in any case.
        plan_of: searches a plan.
    """
    if options.mode != MODES[0] or options.memory_limit_bytes is not None:
        return {}
    seen = {cuts_of(plan): plan for plan in plans}
    searched: dict[str, tuple[_core.Plan, SearchOptions]] = {}
    for name, rival in _rival_searches(options).items():
        with contextlib.suppress(PlanError):  # the mode cannot obey the pins
            plan = plan_of(rival)
            if seen.setdefault(cuts_of(plan), plan) is plan:
                searched[name] = plan, rival
    most = _NEAR * min(map(_predicted_ns, seen.values()))
    near = {name: each for name, each in searched.items() if _predicted_ns(each[0]) <= most}
    return dict(sorted(near.items(), key=lambda item: _predicted_ns(item[1][0]))[:_MOST])


def _rival_searches(options: SearchOptions) -> dict[str, SearchOptions]:
    modes = _CUT + _WHOLE if options.allow_replication else _CUT
    return {
        f"{objective}, {mode}": dataclasses.replace(
            options, mode=mode, objective=objective, allow_replication=False
        )
        for mode in modes
        for objective in OBJECTIVES
    }


def cuts_of(plan: _core.Plan) -> str:
    """A key that two plans share if they cut everything alike."""
    return repr((plan.tensors, [(name, splits) for name, _, splits, _ in plan.operators]))


def _predicted_ns(plan: _core.Plan) -> int:
    """The step that the search predicts on its machine."""
    assert plan.predicted is not None
    step_ns: int = plan.predicted["step_ns"]
    return step_ns

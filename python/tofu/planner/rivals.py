"""The plans of other systems, as single points next to a frontier.

TensorOpt (Cai et al., section 5.1) compares its frontier with these; the other search modes can
be named, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Callable

from tofu.config import parse_mode
from tofu.errors import ConfigError
from tofu.plans import SearchOptions

__all__ = ["RIVALS", "rivals_of"]


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
        known = RIVALS.get(name)
        mode = name if known else parse_mode(name, "--rivals")
        searches[name] = known(options) if known else dataclasses.replace(options, mode=mode)
    return searches

"""Messages to the user: one line per partitioned model, one warning per surprise."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tofu.errors import ConfigError
from tofu.planner.compile_plan import Compiled
from tofu.plans import progress
from tofu.plans.names import is_pattern, near_text, readable
from tofu.plans.plan import format_bytes, undescribed_text

from .session import Session

__all__ = [
    "TofuWarning",
    "check_eager",
    "check_pins",
    "check_serial",
    "gathered",
    "left_out",
    "many_workers",
    "nothing_partitioned",
    "phase",
    "plain_fetch",
    "plan_missing",
    "replicated",
    "stale_text",
    "undescribed",
    "warn",
    "warn_serial",
]

# A replicated tensor is worth a warning if it holds this share of the graph's bytes.
_LARGE_SHARE = 0.01
_LARGE_BYTES = 1024  # with fewer, only if most of the graph is replicated
_MOST = 0.5
_MANY_WORKERS = 128  # with more, the first step may take minutes
_NAMES_SHOWN = 8
_PATIENCE_S = 2.0  # before a slow first step reports its stage

_log = logging.getLogger("tofu")


class TofuWarning(UserWarning):
    """Something runs differently than a reader of the script would expect."""


def warn(text: str) -> None:
    """Issue a warning that points at the line of the script that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"tofu: {text}", TofuWarning, stacklevel=level)


@contextlib.contextmanager
def phase(name: str, doing: str, session: Session) -> Iterator[None]:
    """Count the time of a part of a block's set-up; name the part if it exceeds two seconds.

    Only terminals and the log level debug get such lines.
    """
    begin = time.monotonic()
    timer = threading.Timer(_PATIENCE_S, _log.info, ("%s: %s ...", name, doing))
    timer.daemon = True
    if progress.is_terminal() or _log.isEnabledFor(logging.DEBUG):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        session.state.depth.setup_seconds += time.monotonic() - begin


def nothing_partitioned(session: Session) -> bool:
    """Report at a script's end that nothing was partitioned. Returns whether that is an error."""
    if session.state.partitioned:
        return False
    text = (
        "nothing was partitioned: tofu partitions Gluon blocks that are called under "
        "autograd.record(), and Modules that are bound for training, and their predictions after "
        "that. Symbols, and scripts that never train, run as in plain MXNet"
    )
    if session.strict:
        _log.error("TOFU_STRICT=1: %s", text)
    else:
        _log.info("%s", text)
    return session.strict


def gathered(name: str, number: int, tiles: Any, session: Session) -> None:
    """Report, once for each output, that a script reads it, which gathers it on one device."""
    key = f"gathered {name} {number}"
    if key in session.state.told:
        return
    session.state.told.add(key)
    layout = tiles.layout
    size = math.prod(layout.shape) * np.dtype(layout.dtype).itemsize
    _log.debug(
        "%s: output %d (%s of %s, %s) is gathered, as the script reads it",
        name,
        number,
        "x".join(map(str, layout.shape)) or "one number",
        layout.dtype,
        format_bytes(size),
    )


def plan_missing(name: str, path: Path) -> None:
    """Log that a saved plan does not cover every graph of the run."""
    _log.info(
        "%s has no plan for a graph of %s (another batch size, a prediction or another block); "
        "such graphs are searched as usual, and parameters keep their tiles",
        path,
        name,
    )


def check_serial(name: str, reason: str, session: Session) -> None:
    """Raise ConfigError if a setting, or a saved plan, forbids that a block runs serially."""
    required = _required_by(session)
    if required:
        raise ConfigError(f"{name} cannot be partitioned, as {required} requires: {reason}")
    _check_plan_is_used(f"{name} cannot be partitioned: {reason}", session)


def warn_serial(name: str, reason: str) -> None:
    """Warn that a block runs serially, in plain MXNet."""
    warn(f"{name} runs serially: {reason}")


def check_eager(name: str, advice: str, session: Session) -> None:
    """Raise ConfigError if the user, or a saved plan, forbids that a block trains eagerly."""
    required = _required_by(session)
    if required:
        raise ConfigError(
            f"{name} is not hybridized and cannot be partitioned, as {required} requires; {advice}"
        )
    _check_plan_is_used(f"{name} is not hybridized; {advice}", session)


def _required_by(session: Session) -> str:
    """The setting that makes serial running an error; "" if none does."""
    if session.strict:
        return "TOFU_STRICT"
    return "" if session.wish.limit_bytes is None else "TOFU_MEMORY"


def undescribed(name: str, operators: Mapping[str, str], compiled: Compiled) -> None:
    """Warn of operators without a description, and give the bytes that they cost."""
    # Operators whose gradient runs them again appear as Custom operators in the graph.
    cost_bytes = compiled.searched.operator_bytes([*operators, "Custom"])
    warn(undescribed_text(name, operators, cost_bytes))


def check_pins(session: Session) -> None:
    """Raise ConfigError for a pin of a tensor that no training graph so far has."""
    state = session.state
    for pin in sorted(state.absent_pins or ()):
        what = "that fits" if is_pattern(pin) else "of that name"
        raise ConfigError(
            f"TOFU_PINS: pin {pin}: what the script trains has no tensor {what}"
            + near_text(pin, state.tensor_names)
        )


def plain_fetch(reason: str, session: Session) -> None:
    """Warn, once per reason, that workers copy with MXNet's own operators."""
    if reason not in session.state.told:
        session.state.told.add(reason)
        warn(
            f"MultiFetch does not work here: {reason}; workers fetch with MXNet's own operators "
            "instead (set TOFU_FETCH=plain to choose them)"
        )


def many_workers(session: Session) -> None:
    """Warn, once, before a first step that takes minutes."""
    if session.workers > _MANY_WORKERS and "many workers" not in session.state.told:
        session.state.told.add("many workers")
        warn(
            f"{session.workers} workers: the first step may take minutes, as every operator is "
            "prepared for each worker, and the memory for that grows with their number"
        )


def replicated(name: str, compiled: Compiled) -> None:
    """Warn of large tensors that every worker stores whole."""
    indivisible = compiled.searched.indivisible_bytes()
    sizes = dict(sorted(indivisible.items(), key=lambda item: (-item[1], item[0])))
    large = {
        tensor: size
        for tensor, size in sizes.items()
        if size >= _LARGE_SHARE * max(compiled.serial_bytes, 1)
    }
    mostly_whole = sum(sizes.values()) >= _MOST * compiled.serial_bytes
    if not large or (max(large.values()) < _LARGE_BYTES and not mostly_whole):
        return
    shown = [f"{readable(tensor)} ({format_bytes(size)})" for tensor, size in large.items()]
    more = f" and {len(shown) - _NAMES_SHOWN} more" if len(shown) > _NAMES_SHOWN else ""
    warn(
        f"{name}: no dimension of {', '.join(shown[:_NAMES_SHOWN])}{more} has an element for "
        "each worker; they are replicated. To split them, choose fewer workers, or a larger batch "
        "or layer"
    )


def left_out(rank: int, path: str) -> None:
    """Report, at level debug, that another process writes a checkpoint."""
    _log.debug("worker process %d leaves %s to process 0", rank, path)


def stale_text(parameter: Any) -> str:
    """MXNet's warning about a parameter whose gradient is older than its last update."""
    return (
        f"Gradient of Parameter `{parameter.name}` on context {parameter.list_ctx()[0]} has "
        "not been updated by backward since last `step`. This could mean a bug in your model "
        "that made it only use a subset of the Parameters (Blocks) for this iteration. If you "
        "are intentionally only using a subset, call step with ignore_stale_grad=True to "
        "suppress this warning and skip updating of Parameters with stale gradient"
    )


def _check_plan_is_used(reason: str, session: Session) -> None:
    """Raise ConfigError if the first block that trains runs without the saved plan."""
    if session.plans is not None and not session.state.plan_matched:
        raise ConfigError(
            f"{session.plans.path}: the saved plan is not used, as {reason}. "
            "Unset TOFU_PLAN to run it serially"
        )


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("tofu", "mxnet")

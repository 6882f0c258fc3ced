"""Messages to the user: one line per partitioned block, one warning per surprise."""

from __future__ import annotations

import difflib
import json
import logging
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tofu.errors import ConfigError
from tofu.plan import Compiled
from tofu.plan.plan import format_bytes, undescribed_text

from .session import Session, describe_contexts

__all__ = [
    "TofuWarning",
    "eager",
    "partitioned",
    "plain_fetch",
    "plan_missing",
    "replicated",
    "serial",
    "set_level",
    "undescribed",
    "unpinned",
    "warn",
]

_LEVELS = {"quiet": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
# A replicated tensor is worth a warning if it holds this share of the graph's bytes.
_LARGE_SHARE = 0.01
_NAMES_SHOWN = 8

_log = logging.getLogger("tofu")


class TofuWarning(UserWarning):
    """Something runs differently from what a reader of the script would expect."""


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current sys.stderr, not the one from when tofu was turned on."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_handler = _Stderr()
_handler.setFormatter(logging.Formatter("tofu: %(message)s"))


def set_level(level: str) -> None:
    """Show lines of this level and above on standard error."""
    _log.setLevel(_LEVELS[level])
    _log.propagate = False
    if _handler not in _log.handlers:
        _log.addHandler(_handler)


def warn(text: str) -> None:
    """Issue a warning that points at the line of the script that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"tofu: {text}", TofuWarning, stacklevel=level)


def partitioned(
    name: str, compiled: Compiled, parameters: int, session: Session, *, first: bool
) -> None:
    """Log what was partitioned over which workers; a block's later programs at level debug.

    With a dump directory, also append the numbers to ``summary.json`` there, one line of
    JSON for every program.
    """
    plan = compiled.searched
    if session.dump_dir is not None:
        record = {"block": name, "parameters": parameters, **compiled.summary()}
        with open(session.dump_dir / "summary.json", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    _log.log(
        logging.INFO if first else logging.DEBUG,
        "%s (%s operators, %s parameters) over %d worker%s %s: "
        "%s communicated per step, search %.2f s",
        name,
        f"{plan.num_operators:,}",
        _in_short(parameters),
        session.workers,
        "" if session.workers == 1 else "s",
        describe_contexts(session.contexts),
        format_bytes(compiled.fetched_bytes),
        plan.search_seconds,
    )


def plan_missing(name: str, path: Path) -> None:
    """Log that a saved plan does not cover every graph of the run."""
    _log.info(
        "%s has no plan for a graph of %s (another batch size, a prediction or another block); "
        "such graphs are searched as usual, and parameters keep their tiles",
        path,
        name,
    )


def serial(name: str, reason: str, session: Session) -> None:
    """Warn that a block runs serially, in plain MXNet.

    Raises:
        ConfigError: TOFU_STRICT makes that an error.
    """
    if session.strict:
        raise ConfigError(f"{name} cannot be partitioned, as TOFU_STRICT requires: {reason}")
    warn(f"{name} runs serially: {reason}")


def eager(name: str, advice: str, session: Session) -> None:
    """Warn that a block trains without being hybridized.

    Raises:
        ConfigError: TOFU_STRICT makes that an error.
    """
    if session.strict:
        raise ConfigError(
            f"{name} is not hybridized and cannot be partitioned, as TOFU_STRICT requires; {advice}"
        )
    warn(f"{name} is not hybridized and runs eagerly, not partitioned; {advice}")


def undescribed(name: str, operators: Mapping[str, str], compiled: Compiled) -> None:
    """Warn of operators without a description, and say what they cost."""
    # Operators whose gradient runs them again appear as Custom operators in the graph.
    cost_bytes = compiled.searched.operator_bytes([*operators, "Custom"])
    warn(undescribed_text(name, operators, cost_bytes))


def unpinned(name: str, pins: Sequence[str], tensors: Collection[str]) -> None:
    """Warn of pins on tensors that a block does not have."""
    near = {near: None for pin in pins for near in difflib.get_close_matches(pin, tensors, n=2)}
    warn(
        f"{name} has no tensor {', '.join(pins)}, which TOFU_PINS pins"
        + (f"; did you mean {', '.join(near)}?" if near else "; a later block may have it")
    )


def plain_fetch(reason: str, session: Session) -> None:
    """Warn, once per reason, that workers copy with MXNet's own operators."""
    if reason not in session.state.told:
        session.state.told.add(reason)
        warn(
            f"MultiFetch does not work here: {reason}; workers fetch with MXNet's own operators "
            "instead (set TOFU_FETCH=plain to choose them)"
        )


def replicated(name: str, compiled: Compiled) -> None:
    """Warn of large tensors that every worker stores whole."""
    found = compiled.searched.indivisible_bytes()
    sizes = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
    large = {
        tensor: size
        for tensor, size in sizes.items()
        if size >= _LARGE_SHARE * max(compiled.serial_bytes, 1)
    }
    if not large:
        return
    shown = [f"{tensor} ({format_bytes(size)})" for tensor, size in large.items()]
    more = f" and {len(shown) - _NAMES_SHOWN} more" if len(shown) > _NAMES_SHOWN else ""
    warn(
        f"{name}: no dimension of {', '.join(shown[:_NAMES_SHOWN])}{more} divides by the number "
        "of workers; they are replicated. To split them, choose a batch or layer size that is a "
        "multiple of it"
    )


def _in_short(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return str(count)


def _is_inside(module: str) -> bool:
    return module.partition(".")[0] in ("tofu", "mxnet")

"""Reports each block that a run partitioned, in a line when the script's call returns."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, Optional

from tofu.errors import ConfigError
from tofu.planner.compile_plan import Compiled
from tofu.planner.search import is_kept
from tofu.plans.parts import Parts
from tofu.plans.plan import format_bytes
from tofu.plans.report_level import in_short

from . import messages
from .session import Session, describe_contexts

__all__ = ["Partitioned", "first_step", "partitioned", "tell_call", "untraced"]

_log = logging.getLogger("tofu")


class Partitioned(NamedTuple):
    """The facts of a message about a partitioned block.

    Attributes:
        name: the block's name.
        operators, parameters: their numbers.
        forward_operators: those of its forward pass, as the script has it.
        fetched_bytes: bytes that workers fetch from each other per step.
        memory_bytes: bytes that a worker holds, an estimate.
        serial_bytes: bytes that one device would hold, counted in the same way.
        search_seconds: from graph to plan.
        is_kept: whether an earlier run searched it.
        plan_file: the file of the saved plan that was used instead of a search, or None.
    """

    name: str
    operators: int
    forward_operators: int
    parameters: int
    fetched_bytes: int
    memory_bytes: int
    serial_bytes: int
    search_seconds: float
    is_kept: bool
    plan_file: Optional[Path] = None

    @classmethod
    def of(
        cls,
        name: str,
        compiled: Compiled,
        *,
        parameters: int,
        forward_operators: int,
        serial_bytes: int,
        plan_file: Optional[Path] = None,
    ) -> Partitioned:
        """The facts of a compiled block."""
        plan = compiled.searched
        return cls(
            name,
            plan.num_operators,
            forward_operators,
            parameters,
            compiled.fetched_bytes,
            plan.memory_bytes,
            serial_bytes,
            plan.search_seconds,
            is_kept(plan),
            plan_file,
        )


def _tell_plan(name: str, compiled: Compiled) -> None:
    plan = compiled.searched
    _log.debug(
        "%s: plan of graph %s: %s, %s; tensors of %s as a whole, %s on the fullest worker; "
        "fetches: %s, %s saved by sharing",
        name,
        plan.table.graph.hash,
        Parts.of(plan).text or "one worker",
        plan.status,
        format_bytes(compiled.serial_bytes),
        format_bytes(max(compiled.bytes_per_worker)),
        compiled.fetch,
        format_bytes(compiled.shared_bytes),
    )


def partitioned(block: Partitioned, compiled: Compiled, session: Session, *, first: bool) -> None:
    """Report a partitioned block when the outermost call of a block returns.

    Later programs of a block, and blocks without parameters (losses), are reported at level debug
    only. With a dump directory the numbers also go to ``summary.json`` there, one line of
    JSON for every program.
    """
    session.state.partitioned = True
    if session.wish.dump_dir is not None:
        record = {"block": block.name, "parameters": block.parameters, **compiled.summary()}
        with open(session.wish.dump_dir / "summary.json", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
    if _log.isEnabledFor(logging.DEBUG):  # a graph's hash takes a moment
        _tell_plan(block.name, compiled)
    depth = session.state.depth
    if not first or not block.parameters:
        _tell(logging.DEBUG, block.name, "", [block], session)
    elif depth.level:
        depth.partitioned.append(block)
    else:
        _tell(logging.INFO, block.name, "", [block], session)


def tell_call(name: str, advice: str, share: str, session: Session) -> None:
    """Report the partitioned and eager parts of the outermost call of a block.

    Args:
        name: the block's name.
        advice: the way to have it partitioned, if it trains without being hybridized; or "".
        share: its partitioned part, if another part runs eagerly; or "".
        session: the session.

    Raises:
        ConfigError: it trains without being hybridized, and a setting or a saved plan forbids that.
    """
    depth = session.state.depth
    blocks, depth.partitioned = depth.partitioned, []
    untraced, depth.untraced = depth.untraced, []
    if advice:
        messages.check_eager(name, advice, session)
    if share:
        _warn_partly(name, share, blocks, untraced, advice, session)
        return
    for block, reason in untraced:
        _warn_untraced(block, reason)
    if len(blocks) == 1:
        _tell(logging.INFO, blocks[0].name, "", blocks, session)
    elif blocks:
        _tell(logging.INFO, name, f"{len(blocks)} blocks, ", blocks, session)
    if advice:
        messages.warn(f"{name} is not hybridized and runs eagerly, not partitioned; {advice}")


def _warn_partly(
    name: str,
    share: str,
    blocks: Sequence[Partitioned],
    untraced: Sequence[tuple[str, str]],
    advice: str,
    session: Session,
) -> None:
    inside = f"{len(blocks)} blocks" if len(blocks) > 1 else blocks[0].name
    texts = [f"{name} ({inside} inside it, {share}) {_costs(blocks, session)}"]
    texts += [f"{block} itself runs eagerly: {reason}" for block, reason in untraced]
    texts += [f"to have the rest partitioned, {advice}"] if advice else []
    messages.warn("; ".join(texts))
    _close(blocks, session)


def _tell(
    level: int, name: str, count: str, blocks: Sequence[Partitioned], session: Session
) -> None:
    _log.log(
        level,
        "%s (%s%s operators, %s parameters) %s",
        name,
        count,
        f"{sum(each.operators for each in blocks):,}",
        in_short(sum(each.parameters for each in blocks)),
        _costs(blocks, session),
    )
    _close(blocks if level == logging.INFO else (), session)


def _costs(blocks: Sequence[Partitioned], session: Session) -> str:
    return (
        f"over {session.workers} worker{'' if session.workers == 1 else 's'} "
        f"{describe_contexts(session.contexts)}: "
        f"{format_bytes(sum(each.fetched_bytes for each in blocks))} communicated per step, "
        f"about {format_bytes(sum(each.memory_bytes for each in blocks))} on a worker "
        f"({format_bytes(sum(each.serial_bytes for each in blocks))} serially), "
        f"{_found_by(blocks)}, set up in {session.state.depth.setup_seconds:.2f} s"
    )


def _close(blocks: Sequence[Partitioned], session: Session) -> None:
    """Keep a report for the line about the first step, and count set-up from 0."""
    if session.state.first_step is not None and blocks:
        session.state.first_step.append((blocks, session.state.depth.setup_seconds))
    session.state.depth.setup_seconds = 0.0


def first_step(share: Fraction, session: Session) -> None:
    """Sum up, at the end of the first step, the blocks that were reported one by one.

    share: of the trained parameters' elements, those in partitioned blocks.
    """
    reports, session.state.first_step = session.state.first_step, None
    if reports is None or len(reports) < 2:
        return
    blocks = [block for group, _ in reports for block in group]
    _log.info(
        "first step: %d blocks with %s of the parameters, %s communicated per step, about %s on "
        "a worker (%s serially), set up in %.2f s%s",
        len(blocks),
        "all" if share == 1 else f"{float(share):.1%}",
        format_bytes(sum(each.fetched_bytes for each in blocks)),
        format_bytes(sum(each.memory_bytes for each in blocks)),
        format_bytes(sum(each.serial_bytes for each in blocks)),
        sum(seconds for _, seconds in reports),
        _where_seen(session),
    )


def _where_seen(session: Session) -> str:
    """The command that shows the plans, for a script."""
    is_module = getattr(sys.modules.get("__main__"), "__spec__", None) is not None
    if is_module or not sys.argv[0].endswith(".py"):
        return ""
    command = shlex.join(["tofu", "plan", "--workers", str(session.workers), *sys.argv])
    return f"; see the plans: {command}"


def _found_by(blocks: Sequence[Partitioned]) -> str:
    """The origin of plans: a file, a search, or both."""
    files = dict.fromkeys(str(each.plan_file) for each in blocks if each.plan_file)
    origins = [f"plan {path}" for path in files]
    searched = [each for each in blocks if each.plan_file is None]
    if any(each.is_kept for each in searched):
        origins.append("plan of an earlier run (TOFU_CACHE=0 searches again)")
    if not all(each.is_kept for each in searched):
        seconds = sum(each.search_seconds for each in searched if not each.is_kept)
        origins.append(f"search {seconds:.2f} s")
    return ", ".join(origins)


def untraced(name: str, reason: str, session: Session) -> None:
    """Warn, when the outermost call returns, that a never hybridized block runs serially.

    Raises:
        ConfigError: TOFU_STRICT makes that an error.
    """
    if session.strict:
        raise ConfigError(f"{name} cannot be partitioned, as TOFU_STRICT requires: {reason}")
    if session.state.depth.level:
        session.state.depth.untraced.append((name, reason))
    else:
        _warn_untraced(name, reason)


def _warn_untraced(name: str, reason: str) -> None:
    messages.warn(f"{name} runs eagerly, only the blocks inside it can be partitioned: {reason}")

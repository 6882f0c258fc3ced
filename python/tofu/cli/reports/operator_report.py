"""The report of ``tofu verify``: checks of the descriptions of operators."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence

from tofu.cli.reports.operator_page import NO_CALL, inventory_entry
from tofu.verify.calls.operator_calls import cases_by_operator
from tofu.verify.check.operator import Verdict
from tofu.verify.check.subprocesses import check_all
from tofu.verify.inventory.cache import cached_inventory
from tofu.verify.inventory.inventory import call_of, fingerprint
from tofu.verify.inventory.recorded_results import write_record

__all__ = [
    "known_operators",
    "run_verify",
    "verdicts_document",
    "verdicts_text",
]


_KINDS = ("false", "missing", "explained", "skipped")  # of findings


def known_operators(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The operators to verify: these, or all with a case; and why others cannot be run.

    Raises:
        ConfigError: there is no operator of one of these names.
    """
    cases = cases_by_operator()
    others = [name for name in names if name not in cases]
    if not others:
        return list(names) or sorted(cases), {}
    inventory = cached_inventory()
    known, reasons = [name for name in names if name in cases], {}
    for name in others:
        document = inventory_entry("tofu verify", name, inventory)
        canonical = name if document is None else document["name"]
        if canonical in cases:
            known.append(canonical)
        else:
            reasons[name] = NO_CALL if document is None else document["reason"]
    return list(dict.fromkeys(known)), reasons


def run_verify(
    names: Sequence[str],
    *,
    seed: int,
    processes: int,
    record: bool = False,
    quick: bool = False,
) -> list[Verdict]:
    """Verify operators with a progress bar on standard error; return them sorted by name."""
    from rich.console import Console
    from rich.progress import Progress

    verdicts = []
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("verify", total=len(names))
        for verdict in check_all(names, seed, processes=processes, quick=quick):
            verdicts.append(verdict)
            progress.update(bar, advance=1, description=verdict.op)
    verdicts.sort(key=lambda v: v.op)
    if record:
        _record(verdicts, seed, quick)
    return verdicts


def _record(verdicts: Iterable[Verdict], seed: int, quick: bool) -> None:
    cases = cases_by_operator()
    results: dict[str, dict[str, object]] = {}
    for v in verdicts:
        calls = [call for case in cases[v.op] for call in [call_of(case)] if call is not None]
        proven = v.checked and not v.false
        mark = {"fingerprint": fingerprint(calls), "seed": seed, "checked": v.checked}
        mark.update({"quick": True} if quick else {})
        counts = {"missing": len(v.missing), "explained": len(v.explained)}
        mark.update({kind: number for kind, number in counts.items() if number})
        results[v.op] = mark if proven else {}
    write_record(results)


def verdicts_document(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as JSON."""
    lists = {
        kind: [dataclasses.asdict(f) for v in verdicts for f in getattr(v, kind)] for kind in _KINDS
    }
    document = {"format": "tofu-verification", "version": 1}
    document = {**document, "checked": sum(v.checked for v in verdicts), **lists}
    return json.dumps(document, indent=1) + "\n"


def verdicts_text(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as text: one paragraph per finding, then the numbers."""
    lines = []
    for kind in _KINDS:
        for finding in (f for v in verdicts for f in getattr(v, kind)):
            split = f", split by {finding.strategy}" if finding.strategy else ""
            lines.append(f"{kind}: {finding.case}{split}\n  {finding.detail}")
            lines.append(f"  {finding.reproduce}")
    numbers = (f"{sum(len(getattr(v, k)) for v in verdicts)} {k}" for k in _KINDS)
    checked = sum(v.checked for v in verdicts)
    count = f"{len(verdicts)} operator{'s' * (len(verdicts) != 1)}"
    lines.append(f"{count}, {checked} runs in parts: {', '.join(numbers)}")
    return "\n".join(lines) + "\n"

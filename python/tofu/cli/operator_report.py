"""The reports of ``tofu ops`` and ``tofu verify``: operators, and checks of their descriptions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tofu.errors import ConfigError
from tofu.tables import table
from tofu.verify.calls.registry import cases_by_operator
from tofu.verify.check.operator import Verdict
from tofu.verify.check.processes import check_all
from tofu.verify.inventory.classes import CLASSES, INEXPRESSIBLE
from tofu.verify.inventory.inventory import call_of, fingerprint
from tofu.verify.inventory.record import write_record

__all__ = [
    "known_operators",
    "ops_text",
    "run_verify",
    "summary",
    "verdicts_document",
    "verdicts_text",
]


_KINDS = ("false", "missing", "explained", "skipped")  # of findings

Document = Mapping[str, Any]  # an operator, as in tofu ops --format json


def summary(operators: Sequence[Document]) -> dict[str, int]:
    """The number of operators of each kind."""
    return {
        "registered": len(operators),
        "described": sum(o["described"] for o in operators),
        "verified": sum(o["verified"] for o in operators),
        "inexpressible": sum(not o["described"] for o in operators),
    }


def ops_text(operators: Sequence[Document], form: str) -> str:
    """The inventory as text, JSON or Markdown."""
    if form == "json":
        document = {"summary": summary(operators), "operators": list(operators)}
        return json.dumps(document, indent=1) + "\n"
    return _markdown(operators) if form == "markdown" else _table(operators)


def _table(operators: Sequence[Document]) -> str:
    header = ("operator", "class", "splits", "reduce", "halo", "verified")
    lines = table(header, map(_row, operators), right=(2, 3, 4))
    lines.append(", ".join(f"{value} {name}" for name, value in summary(operators).items()))
    return "\n".join(lines) + "\n"


def _row(operator: Document) -> tuple[str, ...]:
    names = operator["name"], operator["class"]
    if operator["reason"] is not None:
        return (*names, "", "", "", operator["reason"])
    numbers = (str(operator[count]) for count in ("strategies", "reductions", "halos"))
    return (*names, *numbers, "yes" if operator["verified"] else "no")


def _markdown(operators: Sequence[Document]) -> str:
    """The page docs/operators.md."""
    total = summary(operators)
    lines = [
        "# Operators",
        "",
        "Every operator that MXNet 1.9.1 registers. Written by `tofu ops --format markdown`.",
        "",
        f"{total['registered']} operators, {total['described']} described, "
        f"{total['verified']} of those verified by `tofu verify --record`.",
        "",
        "| class | operators | verified | with a reduction | with a halo |",
        "| --- | --: | --: | --: | --: |",
    ]
    for kind in CLASSES:
        own = [o for o in operators if o["class"] == kind]
        numbers = [len(own), *(sum(map(bool, field)) for field in _fields(own))]
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    lines += [
        "",
        "*Splits* is the number of ways to split the operator in the example call that has most;",
        "*reduce* and *halo* are how many of those reduce outputs, or read beyond their part.",
    ]
    for kind in CLASSES[:-1]:
        lines += ["", f"## {kind.capitalize()}", ""]
        lines += ["| operator | other names | splits | reduce | halo | verified |"]
        lines += ["| --- | --- | --: | --: | --: | --- |"]
        for o in (o for o in operators if o["class"] == kind):
            aliases = ", ".join(f"`{a}`" for a in o["aliases"])
            verified = "yes" if o["verified"] else "no"
            numbers_text = f"{o['strategies']} | {o['reductions']} | {o['halos']}"
            lines.append(f"| `{o['name']}` | {aliases} | {numbers_text} | {verified} |")
    lines += ["", f"## {INEXPRESSIBLE.capitalize()}", "", "| operator | reason |", "| --- | --- |"]
    lines += [
        f"| `{o['name']}` | {o['reason']} |" for o in operators if o["class"] == INEXPRESSIBLE
    ]
    return "\n".join(lines) + "\n"


def _fields(operators: Sequence[Document]) -> tuple[list[int], list[int], list[int]]:
    return (
        [int(o["verified"]) for o in operators],
        [o["reductions"] for o in operators],
        [o["halos"] for o in operators],
    )


def known_operators(names: Sequence[str]) -> list[str]:
    """The operators to verify: these, or all with a case. Raises ConfigError."""
    cases = cases_by_operator()
    for name in names:
        if name not in cases:
            raise ConfigError(
                f"tofu verify {name}: no example call is known; expected one of the "
                f"{len(cases)} described operators, by the name that tofu ops lists"
            )
    return list(names) or sorted(cases)


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
    with Progress(console=Console(stderr=True), transient=True) as progress:
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
        found = {"missing": len(v.missing), "explained": len(v.explained)}
        mark.update({kind: number for kind, number in found.items() if number})
        results[v.op] = mark if proven else {}
    write_record(results)


def verdicts_document(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as JSON."""
    lists = {
        kind: [dataclasses.asdict(f) for v in verdicts for f in getattr(v, kind)] for kind in _KINDS
    }
    return json.dumps({"checked": sum(v.checked for v in verdicts), **lists}, indent=1) + "\n"


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
    lines.append(f"{len(verdicts)} operators, {checked} runs in parts: {', '.join(numbers)}")
    return "\n".join(lines) + "\n"

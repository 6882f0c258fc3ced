"""The list of ``tofu ops``: every operator of MXNet, as text, JSON or Markdown.

It needs no MXNet, so the list is quick if the inventory is cached.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tofu.tables import table
from tofu.verify.inventory.classes import CLASSES, INEXPRESSIBLE, UNRUN

__all__ = ["ops_text", "summary"]

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
        document = {
            "format": "tofu-operators",
            "version": 1,
            "summary": summary(operators),
            "operators": list(operators),
        }
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
        members = [o for o in operators if o["class"] == kind]
        numbers = [len(members), *(sum(map(bool, field)) for field in _fields(members))]
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    lines += [
        "",
        "*Splits* is the number of ways to split the operator in the example call that has most;",
        "*reduce* and *halo* are how many of those reduce outputs, or read beyond their part.",
    ]
    for kind in (kind for kind in CLASSES if kind not in (UNRUN, INEXPRESSIBLE)):
        lines += ["", f"## {kind.capitalize()}", ""]
        lines += ["| operator | other names | splits | reduce | halo | verified |"]
        lines += ["| --- | --- | --: | --: | --: | --- |"]
        for o in (o for o in operators if o["class"] == kind):
            aliases = ", ".join(f"`{a}`" for a in o["aliases"])
            verified = "yes" if o["verified"] else "no"
            numbers_text = f"{o['strategies']} | {o['reductions']} | {o['halos']}"
            lines.append(f"| `{o['name']}` | {aliases} | {numbers_text} | {verified} |")
    for kind in (UNRUN, INEXPRESSIBLE):
        lines += ["", f"## {kind.capitalize()}", "", "| operator | reason |", "| --- | --- |"]
        lines += [f"| `{o['name']}` | {o['reason']} |" for o in operators if o["class"] == kind]
    return "\n".join(lines) + "\n"


def _fields(operators: Sequence[Document]) -> tuple[list[int], list[int], list[int]]:
    return (
        [int(o["verified"]) for o in operators],
        [o["reductions"] for o in operators],
        [o["halos"] for o in operators],
    )

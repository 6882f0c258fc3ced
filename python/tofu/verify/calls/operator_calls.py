"""All cases, by the name under which the operator is described."""

from __future__ import annotations

from tofu.analysis.described import load_described
from tofu.analysis.table import described_name
from tofu.verify.calls.case import Case

__all__ = ["cases_by_operator"]


def cases_by_operator() -> dict[str, list[Case]]:
    """The cases of every described operator, after registering the descriptions.

    Other modules and files with descriptions list their cases in ``CASES``.
    """
    from tofu.verify.calls.cases import ALL

    cases = list(ALL)
    for module in load_described():
        cases += getattr(module, "CASES", [])
    found: dict[str, list[Case]] = {}
    for case in cases:
        name, _ = described_name(case.op, case.attrs)
        found.setdefault(name, []).append(case)
    return found

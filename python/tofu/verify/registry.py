"""All cases there are, by operator."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from tofu.verify.case import Case

__all__ = ["cases_by_operator"]


def cases_by_operator(describe: Sequence[str] = ()) -> dict[str, list[Case]]:
    """The cases of every described operator, the descriptions registered.

    Args:
        describe: files with further descriptions; their ``CASES`` are added.
    """
    from tofu.verify.cases import ALL

    importlib.import_module("tofu.tdl")
    found: dict[str, list[Case]] = {}
    for case in ALL:
        found.setdefault(case.op, []).append(case)
    return found

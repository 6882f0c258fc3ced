"""The reasons why some operators have no description."""

from __future__ import annotations

import tofu.tdl  # noqa: F401 registers the descriptions
from tofu.lang import registered
from tofu.tdl.inexpressible import REASONS


def test_no_described_operator_has_a_reason() -> None:
    assert set(REASONS) & set(registered()) == set()


def test_reasons_are_one_short_line() -> None:
    for name, reason in REASONS.items():
        assert reason == reason.strip() and "\n" not in reason, name
        assert 10 < len(reason) < 90, name

"""Plans of the named models are no dearer than those in docs/results/plans.json."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Callable

import pytest

from tofu.models import MODELS

ROOT = Path(__file__).resolve().parents[3]
QUICK = ("alexnet", "mlp")  # the others take seconds to minutes
# The search ends with a plan 1.8% above its bound.
NOT_PROVEN = "densenet-121, 12 workers: "


def unexpected(complaints: list[str]) -> list[str]:
    """All complaints except the known one, which must not get worse."""
    return [text for text in complaints if not text.startswith(NOT_PROVEN) or "before" in text]


@pytest.fixture(scope="module")
def plans(import_script: Callable[[str], ModuleType]) -> ModuleType:
    return import_script("plans")


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, tuple[int, int]]]:
    text = (ROOT / "docs" / "results" / "plans.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, tuple[int, int]]] = json.loads(text)["models"]
    return found


def named(name: str) -> object:
    marks = () if name in QUICK else pytest.mark.whole(rotates=False)
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [named(name) for name in sorted(MODELS)])
def test_plans_are_proven_and_no_dearer_than_recorded(
    name: str, plans: ModuleType, recorded: dict[str, dict[str, tuple[int, int]]]
) -> None:
    now = plans.plan_model(name)
    assert set(recorded[name]) == set(now)
    assert unexpected(plans.complaints(recorded, {name: now})) == []


def test_every_named_model_is_recorded_and_proven(
    plans: ModuleType, recorded: dict[str, dict[str, tuple[int, int]]]
) -> None:
    assert set(recorded) == set(MODELS)
    assert unexpected(plans.complaints({}, recorded)) == []


def test_what_is_dearer_or_not_proven_is_told(plans: ModuleType) -> None:
    before = {"mlp": {"2": (100, 100), "3": (100, 90)}}
    assert plans.complaints(before, {"mlp": {"2": (99, 99), "4": (7, 7)}, "new": {}}) == []
    assert plans.complaints(before, {"mlp": {"2": (101, 101)}}) == [
        "mlp, 2 workers: 101 bytes, 100 before"
    ]
    assert plans.complaints(before, {"mlp": {"3": (100, 95)}}) == [
        "mlp, 3 workers: 100 bytes, not proven: the bound is 95"
    ]

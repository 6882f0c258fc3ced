"""Options: recording budgets instead of comparing with them, and leaving out slow tests."""

import json
from pathlib import Path

import pytest

BUDGETS = Path(__file__).resolve().parent / "budgets.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="record the calls of a step as budgets")
    parser.addoption("--sample", action="store_true", help="leave out the slow tests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: left out with --sample")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--sample"):
        left_out = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def budget(request: pytest.FixtureRequest):
    """A function from a case's keys and its calls to the calls it may make."""

    def look_up(calls: dict[str, int], *keys: str) -> dict[str, int]:
        budgets = json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else {}
        if request.config.getoption("--record"):
            place = budgets
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = calls
            text = json.dumps(budgets, indent=1, sort_keys=True)
            BUDGETS.write_text(text + "\n", encoding="utf-8")
        for key in keys:
            budgets = budgets[key]
        return budgets

    return look_up

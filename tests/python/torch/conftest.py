"""These tests need torch, which is not where MXNet is: ``make test-torch`` runs them."""

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What torch and transformers warn of is theirs."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))

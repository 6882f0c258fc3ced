"""The examples in the documentation print the output shown there."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import linecache
import re
from pathlib import Path

import pytest

TDL = Path(__file__).parents[3] / "docs" / "tdl.md"
MODULES = ["tofu.lang", "tofu.lang.description", "tofu.lang.functions", "tofu.analysis"]
MODULES += ["tofu.analysis.strategies", "tofu.analysis.table"]


def test_the_first_example_prints_its_table() -> None:
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", TDL.read_text(), re.DOTALL)[:2]
    linecache.cache["conv1d.py"] = (len(code), None, code.splitlines(True), "conv1d.py")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "conv1d.py", "exec"), {})
    assert printed.getvalue() == shown


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), verbose=False)
    assert result.failed == 0
    assert result.attempted > 0

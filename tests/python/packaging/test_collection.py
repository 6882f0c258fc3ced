"""Pytest finds every test file."""

import fnmatch
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_folder_with_tests_is_passed_over(pytestconfig):
    patterns = pytestconfig.getini("norecursedirs")
    files = [path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")]
    assert len(files) > 50
    missed = [
        str(path)
        for path in files
        if any(fnmatch.fnmatch(part, p) for part in path.parts[:-1] for p in patterns)
    ]
    assert not missed

"""Prints which tests are of a folder or file of the sources, as variables of a shell.

    python scripts/tests_of.py search               # every folder of this name
    python scripts/tests_of.py planner/estimate.py

The folders of tests mirror those of the sources, or the folders around them. So tests of a file may
lie beside its folder, under its name. Of a folder or file without tests of its own, it prints those
of the folder around it.
"""

from __future__ import annotations

import functools
import re
import shlex
import sys
from pathlib import Path, PurePath

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/python", "tests/cpp")
# Folders of sources, and the folder to which paths of their tests are relative.
SOURCES = {
    **{folder: folder for folder in ("src", "python/tofu", *TESTS)},
    **dict.fromkeys(("tdl", "scripts", "benchmarks", "examples"), ""),
}
_SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+),", re.MULTILINE)


def find_tests(name: str) -> list[Path]:
    """The folders and files of tests of all sources whose path ends with `name`; [] if none."""
    return sorted({test for room in _rooms(PurePath(name).parts) for test in _nearest(room)})


def suites_of(tests: list[Path]) -> str:
    """GoogleTest's filter for the C++ tests among folders and files; empty if there are none."""
    files = [file for test in tests for file in ([test] if test.is_file() else test.rglob("*.cc"))]
    suites = {suite for file in files if file.suffix == ".cc" for suite in _suites(file)}
    return ":".join(
        pattern for suite in sorted(suites) for pattern in (f"{suite}.*", f"*/{suite}.*")
    )


def _suites(file: Path) -> list[str]:
    return _SUITE.findall(file.read_text(encoding="utf-8"))


def _rooms(wanted: tuple[str, ...]) -> list[PurePath]:
    """Where sources and tests of a name are, relative to the top folder of the tests."""
    paths = [path for path in _paths() if path.parts[-len(wanted) :] == wanted]
    tops = (
        (path, next(f for f in SOURCES if PurePath(f) in (path, *path.parents))) for path in paths
    )
    return [path.relative_to(SOURCES[top]) for path, top in tops if str(path) != SOURCES[top]]


@functools.cache
def _paths() -> list[PurePath]:
    """All folders and files of sources and tests, relative to the repository."""
    below = [path for folder in SOURCES for path in (ROOT / folder).rglob("*")]
    kept = (path for path in below if path.is_dir() or path.suffix in (".py", ".cc", ".h"))
    return [PurePath(folder) for folder in SOURCES] + [path.relative_to(ROOT) for path in kept]


def _nearest(room: PurePath) -> list[Path]:
    """The tests of a room, by place or by name, or of the nearest folder around it with some."""
    names = (f"test_{room.stem}.py", f"{room.stem}_test.cc", "")
    around = [folder / name for folder in room.parents for name in names]
    for name in (room, *around):
        found = [ROOT / top / name for top in TESTS if name.parts and (ROOT / top / name).exists()]
        if found:
            return found
    return []


def main() -> None:
    """Print the variables `suites` and `tests`."""
    (name,) = sys.argv[1:]
    tests = find_tests(name)
    if not tests:
        raise SystemExit(f"{name}: no tests; expected a folder or file of {', '.join(SOURCES)}")
    python = [test for test in tests if ROOT / TESTS[0] in test.parents]
    print(f"suites={shlex.quote(suites_of(tests))}")
    print(f"tests={shlex.quote(' '.join(str(test.relative_to(ROOT)) for test in python))}")


if __name__ == "__main__":
    main()

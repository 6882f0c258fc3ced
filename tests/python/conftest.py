"""Settings for all tests before MXNet is imported, and the choice of tests for a run."""

import gc
import importlib.util
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Callable

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = (ROOT / "scripts", ROOT / "benchmarks")

# One thread per operator, so runs can be compared and workers run in parallel.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests see searches run, and leave nothing in the user's folders.
os.environ["TOFU_CACHE"] = "0"

# The tests of PyTorch's front end run only if torch is installed. Otherwise pytest must not even
# look at their folder, as it would import it under torch's name.
if importlib.util.find_spec("torch") is None:
    collect_ignore = ["torch"]

# --rotate takes one in this many of the tests that only --full takes.
ROTATION = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="tests that take a sample take everything")
    parser.addoption(
        "--rotate",
        metavar="KEY",
        default="",
        help=f"also one in {ROTATION} of the tests that only --full takes; each key picks others",
    )


def pytest_report_header(config: pytest.Config) -> str:
    key = config.getoption("--rotate")
    return f"rotating sample: --rotate {key}" if key else "rotating sample: none"


def _keep_environment() -> Iterator[None]:
    """Restore the environment, as commands set variables of their process."""
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


# A file's fixtures run before those of its first test.
_restored_after_files = pytest.fixture(autouse=True, scope="module")(_keep_environment)
_restored_after_tests = pytest.fixture(autouse=True)(_keep_environment)


@pytest.fixture(scope="module")
def import_script() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of scripts/ or benchmarks/ by its name; the module's tests share it."""
    path, before = list(sys.path), dict(sys.modules)
    sys.path[:0] = map(str, SCRIPTS)

    def import_module(name: str) -> ModuleType:
        if name in before and sys.modules[name] is before[name]:
            del sys.modules[name]  # a folder of tests has the same name
        return importlib.import_module(name)

    yield import_module
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").parent in SCRIPTS:
            del sys.modules[name]
    sys.modules.update({name: before[name] for name in set(before) - set(sys.modules)})


@pytest.fixture(scope="session")
def run_script() -> Callable[..., str]:
    """Runs a file of scripts/ or benchmarks/ in its own process, and returns what it prints."""
    from .support import forked

    def run(script: str, *arguments: object, **variables: str) -> str:
        ran = forked.run([ROOT / script, *arguments], env={**os.environ, **variables}, timeout=900)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


@pytest.fixture(scope="session")
def forking_python() -> str:
    """The path of a program that stands in for Python with MXNet loaded (support/forked.py)."""
    from .support import forked

    return forked.python()


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))


def is_taken(nodeid: str, key: str) -> bool:
    """Whether the rotating sample of a key takes a test."""
    return bool(key) and zlib.crc32(f"{key} {nodeid}".encode()) % ROTATION == 0


def may_rotate(item: pytest.Item) -> bool:
    """Whether a test is in rotating samples: tests of minutes are ``whole(rotates=False)``."""
    mark = item.get_closest_marker("whole")
    return mark is None or bool(mark.kwargs.get("rotates", True))


def is_whole(item: pytest.Item, case: int) -> bool:
    """Whether no run has to take a test: it is marked ``whole``.

    Args:
        item: the test.
        case: its number among its function's cases, from 0. Every run takes those below N of a
            function marked ``whole(but=N)``.
    """
    mark = item.get_closest_marker("whole")
    return mark is not None and case >= mark.kwargs.get("but", 0)


def values_of(case: pytest.Item) -> set[tuple[int, str]]:
    """The number of each of a case's lists of parameters, and the name of its value there."""
    specification = getattr(case, "callspec", None)
    return set(enumerate(specification._idlist if specification else [""]))


def one_of_each(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Some of a function's cases, in which each value of each list of parameters occurs.

    They are few where a function has several lists, of which pytest makes the product.
    """
    values = {case: values_of(case) for case in cases}
    if max(map(len, values.values()), default=0) < 2:
        return cases
    missing, taken = set[tuple[int, str]]().union(*values.values()), []
    while missing:
        taken.append(max(values, key=lambda case: len(values[case] & missing)))
        missing -= values.pop(taken[-1])
    return taken


def in_each_run(items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests that every run takes. The others are left to --full and to rotating samples."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    taken = set[pytest.Item]()
    for cases in functions.values():
        chosen = [case for number, case in enumerate(cases) if not is_whole(case, number)]
        taken.update(one_of_each(chosen))
    return taken


def slow_files_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Put files with slow tests first; if one began last, all others would wait for it."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    return sorted(items, key=lambda item: item.path not in slow)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out(config, items)
    items[:] = slow_files_first(items)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that only --full takes."""
    if config.getoption("--full"):
        return
    key, always = config.getoption("--rotate"), in_each_run(items)
    chosen = always.union(i for i in items if may_rotate(i) and is_taken(i.nodeid, key))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through all tests and modules: 5% of the time."""
    gc.collect()
    gc.freeze()

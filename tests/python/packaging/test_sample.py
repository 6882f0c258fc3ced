"""The rotating sample of the tests that only --full takes."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location(
    "sample", Path(__file__).resolve().parents[1] / "conftest.py"
)


@pytest.fixture(scope="module")
def conftest():
    module = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(module)
    return module


def test_a_key_takes_its_share_and_the_next_key_others(conftest):
    tests = [f"test_operators.py::test_by_parts[{i}]" for i in range(4000)]
    taken = {key: {t for t in tests if conftest.is_taken(t, key)} for key in ("a1b2", "c3d4")}
    for each in taken.values():
        assert len(tests) / 2 < len(each) * conftest.ROTATION < len(tests) * 2
        assert each != set(tests)
    assert taken["a1b2"] != taken["c3d4"]
    assert taken["a1b2"] == {t for t in tests if conftest.is_taken(t, "a1b2")}


def test_without_a_key_nothing_is_taken(conftest):
    assert not any(conftest.is_taken(f"test[{i}]", "") for i in range(500))


def test_many_keys_take_every_test(conftest):
    keys = [str(number) for number in range(40 * conftest.ROTATION)]
    assert all(any(conftest.is_taken(f"test[{i}]", key) for key in keys) for i in range(50))


@pytest.mark.parametrize(
    ("mark", "taken"),
    [
        (None, True),
        (pytest.mark.whole, True),
        (pytest.mark.whole(rotates=False), False),
    ],
)
def test_some_tests_are_in_no_sample(conftest, mark, taken):
    class Item:
        nodeid = "test"

        def get_closest_marker(self, name):
            return mark and mark.mark

    keys = [str(number) for number in range(40 * conftest.ROTATION)]
    assert any(not conftest.is_left_out(Item(), key) for key in keys) is taken


def test_the_first_cases_are_always_taken(conftest):
    class Item:
        def __init__(self, nodeid):
            self.nodeid = nodeid

        def get_closest_marker(self, name):
            return pytest.mark.whole(but=2).mark

    class Config:
        def __init__(self):
            self.hook, self.left_out = self, []

        def getoption(self, name):
            return ""

        def pytest_deselected(self, items):
            self.left_out = items

    functions = ("a.py::test", "a.py::test_of_more", "b.py::test")
    items = [Item(f"{name}[{case}]") for case in range(3) for name in functions]
    config = Config()
    conftest.leave_out(config, items)
    assert [item.nodeid for item in items] == [f"{f}[{i}]" for i in range(2) for f in functions]
    assert [item.nodeid for item in config.left_out] == [f"{name}[2]" for name in functions]

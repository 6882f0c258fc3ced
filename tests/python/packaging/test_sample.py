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
        assert 50 < len(each) < 200
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

"""The rotating sample of the tests that only --full takes."""

import importlib.util
import types
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


class Item:
    def __init__(self, nodeid, *values, mark=None):
        self.nodeid, self.mark = nodeid, mark
        self.callspec = types.SimpleNamespace(_idlist=values)

    def get_closest_marker(self, name):
        return self.mark and self.mark.mark


@pytest.mark.parametrize(
    ("mark", "taken"),
    [
        (None, True),
        (pytest.mark.whole, True),
        (pytest.mark.whole(rotates=False), False),
    ],
)
def test_some_tests_are_in_no_sample(conftest, mark, taken):
    assert conftest.may_rotate(Item("test", mark=mark)) is taken


def test_the_first_cases_are_always_taken(conftest):
    mark = pytest.mark.whole(but=2)
    functions = ("a.py::test", "a.py::test_of_more", "b.py::test")
    items = [
        Item(f"{name}[{case}]", f"{case}", mark=mark) for case in range(3) for name in functions
    ]
    assert conftest.in_each_run(items) == set(items[:6])


def test_each_value_of_a_product_is_always_taken(conftest):
    """Of three by four cases, four have each value of both; of a single list, all cases."""
    product = [Item(f"test[{a}-{b}]", a, b) for a in "abc" for b in "1234"]
    listed = [Item(f"test_more[{a}]", a) for a in "abc"]
    taken = conftest.in_each_run([*product, *listed])
    assert taken >= set(listed)
    cases = [item for item in product if item in taken]
    assert len(cases) == 4
    assert {value for item in cases for value in item.callspec._idlist} == set("abc1234")


@pytest.mark.parametrize(("full", "key"), [(True, ""), (False, ""), *((False, k) for k in "abc")])
def test_what_is_left_out_is_told(conftest, full, key):
    told = []
    config = types.SimpleNamespace(
        getoption={"--full": full, "--rotate": key}.get,
        hook=types.SimpleNamespace(pytest_deselected=lambda items: told.extend(items)),
    )
    items = [Item(f"test[{a}-{b}]", a, b) for a in "abcdef" for b in "123456"]
    all_items, always = list(items), conftest.in_each_run(items)
    conftest.leave_out(config, items)
    rotating = [i for i in all_items if i not in always and conftest.is_taken(i.nodeid, key)]
    assert bool(rotating) == bool(key)
    assert set(items) == (set(all_items) if full else always.union(rotating))
    assert set(told) == set(all_items) - set(items)

"""Which tests are of a folder or file: what make test-quick runs."""

import sys

import pytest


@pytest.fixture(scope="module")
def script(import_script):
    return import_script("tests_of")


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("search", ["cpp/passes/search", "python/search"]),  # all folders of the name
        ("src/passes/search", ["cpp/passes/search"]),
        ("passes/search/pins.cc", ["cpp/passes/search/pins_test.cc"]),
        ("cost/routes.h", ["cpp/passes/search/cost/routes_test.cc"]),
        ("torch/tiles/ranks.py", ["python/torch/test_ranks.py"]),  # by its name
        ("plans/render/layers.py", ["python/plans/render"]),  # plans/layers.py has that name
        ("mx/graphs", ["python/mx/graphs"]),
        ("gluon/session", ["python/gluon"]),  # no tests mirror it
        ("tdl/convolution.py", ["python/tdl"]),
        ("scripts/paper.py", ["python/scripts/test_paper.py"]),
        ("no_such_folder", []),
    ],
)
def test_tests_mirror_sources(script, name, tests):
    assert script.find_tests(name) == [script.ROOT / "tests" / test for test in tests]


def test_the_suites_of_a_file(script, tmp_path):
    file = tmp_path / "some_test.cc"
    file.write_text("TEST(One, A) {}\nTEST_P(Other, B) {}\n  // TEST(None, C)\n")
    assert script.suites_of([tmp_path]) == "One.*:*/One.*:Other.*:*/Other.*"


def test_a_shell_reads_it(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tests_of.py", "verify/find"])
    script.main()
    assert capsys.readouterr().out == "suites=''\ntests=tests/python/verify/find\n"
    monkeypatch.setattr(sys, "argv", ["tests_of.py", "nothing.py"])
    with pytest.raises(SystemExit, match=r"nothing\.py: no tests; expected a folder or file of"):
        script.main()

"""The limits of the product, its tests and its folders."""

import pytest


@pytest.fixture
def budget(import_script, monkeypatch):
    script = import_script("budget")
    monkeypatch.setattr(script, "LINES", {"src tdl": 100, "tests": 10})
    monkeypatch.setattr(script, "FOLDER_FILES", 2)
    monkeypatch.setattr(script, "FOLDER_LINES", 40)
    return script


@pytest.fixture
def write(tmp_path):
    def write(name, lines=1):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n" * lines)

    return write


def test_what_fits(budget, write, tmp_path):
    for name in ("src/a/a.cc", "src/a/b.cc", "src/a/c/a.cc", "tdl/a.py"):
        write(name, 20)
    write("tdl/__pycache__/a.pyc", 1000)
    write("tests/a.py", 10)
    assert budget.too_large(tmp_path) == []


def test_each_excess_is_named(budget, write, tmp_path):
    for name in ("src/a/a.cc", "src/a/b.cc", "src/a/c.h"):
        write(name)
    write("src/b/d.cc", 41)
    for name in ("a.py", "b.py", "c.py"):  # the folder of families has no limit
        write(f"tdl/{name}", 20)
    write("tests/a.py", 11)
    assert budget.too_large(tmp_path) == [
        "src + tdl (104 lines; at most 100)",
        "tests (11 lines; at most 10)",
        "src/a (3 files; at most 2)",
        "src/b (41 lines; at most 40)",
    ]


def test_it_says_what_to_do(budget, write, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "ROOT", tmp_path)
    write("tests/a.py", 11)
    with pytest.raises(SystemExit, match=r"^too large: tests \(11 lines; .*; remove .*says why$"):
        budget.main()

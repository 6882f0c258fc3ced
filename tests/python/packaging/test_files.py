"""Files at the top of the repository agree with each other."""

import re
import subprocess
from pathlib import Path

import pytest

from tofu import config

ROOT = Path(__file__).resolve().parents[3]
TEXTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "Makefile"])


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_text_installs_the_other_projects_distribution(path):
    commands = re.findall(r"pip install[^\n`]*", path.read_text(encoding="utf-8"))
    assert not [line for line in commands if re.search(r"(?<![\w/-])tofu(?![\w/.-])", line)]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_files_lead_somewhere(path):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_named_in_texts_exist(path):
    folders = "src|python|tdl|tests|scripts|benchmarks|examples|docs"
    named = re.findall(rf"`((?:{folders})/[\w./]+)`", path.read_text(encoding="utf-8"))
    concrete = [name for name in named if not re.search("LAYER|PASS|KIND", name)]
    assert not [name for name in concrete if not (ROOT / name).exists()]


def test_a_page_lists_every_variable_in_a_row_of_its_own():
    page = (ROOT / "docs" / "variables.md").read_text(encoding="utf-8")
    source = Path(config.__file__).read_text(encoding="utf-8")
    variables = set(re.findall(r'"((?:TOFU|MXNET_GRAPH)_[A-Z_]+)"', source))
    assert {"MXNET_GRAPH_PASS", "TOFU_WORKERS", "TOFU_DEVICE", "TOFU_LOG"} <= variables
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)[0] == "MXNET_GRAPH_PASS"
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(variables)


def test_pages_that_people_start_with_are_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
    tasks = list((ROOT / "docs" / "tasks").glob("*.md"))
    assert len(tasks) == 8
    for page in tasks:
        assert len(page.read_text(encoding="utf-8").splitlines()) < 100, page


def test_make_installs_what_the_build_requires():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    requires = re.search(r"\[build-system\]\nrequires = \[(.*?)\]", pyproject, re.DOTALL)
    assert requires is not None
    for requirement in re.findall(r'"([^"]+)"', requires.group(1)):
        assert f"'{requirement}'" in makefile


@pytest.mark.parametrize("extra", ["mxnet-cpu", "mxnet-cu112"])
def test_pip_refuses_a_python_that_mxnet_does_not_run_on(extra):
    """It refuses at once, before it tries to build NumPy, which has no wheels for that Python."""
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf"^{extra} = \[(.*?)^\]", pyproject, re.DOTALL | re.MULTILINE)
    assert found is not None
    needs = dict(re.findall(r'"(\S+); (python_version .*?)"', found.group(1)))
    later = [need for need, condition in needs.items() if condition == "python_version >= '3.12'"]
    mxnet = {"mxnet-cpu": "mxnet", "mxnet-cu112": "mxnet-cu112"}[extra]
    assert later == [f"{mxnet}>1.9.1,<1.9"], "which no version satisfies"
    earlier = [need for need, condition in needs.items() if condition == "python_version < '3.12'"]
    assert earlier == [f"{mxnet}==1.9.1", "numpy<1.24"]
    assert not re.search(r'"numpy<1.24"', found.group(1))


def find_python(python):
    return subprocess.run(
        [ROOT / "scripts" / "find_python.sh"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_find_python_refuses_a_version_mxnet_does_not_run_on(tmp_path):
    fake = tmp_path / "python3.12"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    ran = find_python(fake)
    assert ran.returncode == 1
    assert "needs Python 3.9, 3.10 or 3.11" in ran.stderr
    assert str(fake) in ran.stderr

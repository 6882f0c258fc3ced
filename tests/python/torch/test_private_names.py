"""One file has all private names of torch, and the versions that have them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tofu.torch
from tofu.torch.tiles import private_names
from tofu.torch.tiles.private_names import _ATTRIBUTES, KNOWN, check_version

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "python" / "tofu" / "torch").rglob("*.py"))
OTHERS = [path for path in SOURCES if path.name != "private_names.py"]


def nodes(paths: list[Path]) -> Iterator[ast.AST]:
    for path in paths:
        yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def test_other_files_import_no_private_name() -> None:
    for node in nodes(OTHERS):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        names = [each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []
        if module.partition(".")[0] == "torch":
            private = [each for each in [*module.split("."), *names] if each[:1] == "_"]
            assert not private, (module, names)


def test_attributes_are_listed() -> None:
    own, used = set(), set()
    for node in nodes(OTHERS):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            own.add(node.name)
        if isinstance(node, ast.Attribute) and node.attr[:1] == "_" and node.attr[:2] != "__":
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            (own if base in ("self", "sys") else used).add(node.attr)
    used = {name for name in used - own if not hasattr(torch.ops.aten, name)}
    assert used - _ATTRIBUTES.keys() == set()
    text = "".join(path.read_text(encoding="utf-8") for path in OTHERS)
    assert [name for name in _ATTRIBUTES if name not in text] == []


def test_the_known_versions_are_the_same_everywhere() -> None:
    oldest, latest = (".".join(map(str, each)) for each in KNOWN)
    after = f"{KNOWN[1][0]}.{KNOWN[1][1] + 1}"
    for name, wanted in [
        ("pyproject.toml", f"torch>={oldest};"),  # users may try later ones, which are warned of
        ("scripts/test_torch.sh", f"torch>={oldest},<{after}'"),
    ]:
        assert wanted in (ROOT / name).read_text(encoding="utf-8"), name
    assert f"PyTorch {oldest} to {latest}" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("version", "warned"), [
    ("2.9.0", False), ("2.14.1+cpu", False), ("2.8.1", True), ("2.15.0a0", True), ("3.0", True),
])  # fmt: skip
def test_other_versions_are_warned_of(version, warned, monkeypatch) -> None:
    monkeypatch.setattr(private_names.torch, "__version__", version)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_version()
    assert bool(said) == warned
    assert all("known to work with torch 2.9 to 2.14, but this is" in str(x.message) for x in said)


def test_the_package_says_what_it_is_for() -> None:
    assert "PyTorch" in (tofu.__doc__ or "")
    described = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("description = ")[2]
    assert "PyTorch" in described.partition("\n")[0]

"""The files that a script's results depend on, found by following its imports.

    digest(sources_of(Path("scripts/figure10.py")))

A module depends on all that it imports, at its top or in functions, and on modules that it names
in texts. A package's __init__.py depends on the modules that it imports at its top; a name that it
imports on first use is followed where the name is used. The C++ library is one dependency.
Comments, docstrings and layout are no part of a digest.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional, Union

__all__ = ["ROOT", "digest", "script_of", "sources_of"]

ROOT = Path(__file__).resolve().parents[1]
_FOLDERS = (ROOT / "scripts", ROOT / "benchmarks")
_PACKAGE, _DESCRIPTIONS = ROOT / "python" / "tofu", ROOT / "tdl"
_LIBRARY = f"{_PACKAGE.name}._core"
_EXTENSION = _PACKAGE / "mx" / "extension.py"  # loads what is built from these folders:
_EXTENSION_FOLDERS = ("mxnet", "kernels")
_MODULE = re.compile(r"tofu(\.\w+)+")
_FACTORY = re.compile(r"\w+:\w+")  # a module of the same package, and its function to call
_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)


def script_of(result: str) -> Optional[Path]:
    """The script in scripts/ or benchmarks/ that has a result's name and makes it."""
    places = [folder / f"{result}.py" for folder in _FOLDERS]
    return next((place for place in places if place.is_file()), None)


def sources_of(script: Path) -> list[Path]:
    """The script, the Python files that it imports, and the C++ files if any of these need them."""
    path_of: dict[str, Optional[Path]] = {}
    waiting = [script.stem]
    while waiting:
        name = waiting.pop()
        if name in path_of:
            continue
        path_of[name] = path = _file_of(name)
        if path is None:
            package, _, member = name.rpartition(".")
            waiting += _later_names(package).get(member, ())
        else:
            waiting += _imports(name, path)
    paths = {path for path in path_of.values() if path is not None}
    if _LIBRARY in path_of:
        paths.update(_library_files(with_extension=_EXTENSION in paths))
    return sorted(paths)


def digest(paths: Iterable[Path]) -> str:
    """Twelve digits that change with the code of the files, or with their names."""
    sum_of_all = hashlib.sha256()
    for path in sorted(paths):
        sum_of_all.update(f"{path.relative_to(ROOT)}\0{_code(path)}\0".encode())
    return sum_of_all.hexdigest()[:12]


def _library_files(*, with_extension: bool) -> Iterator[Path]:
    for path in (ROOT / "src").rglob("*.*"):
        if with_extension or path.relative_to(ROOT / "src").parts[0] not in _EXTENSION_FOLDERS:
            yield path


def _file_of(module: str) -> Optional[Path]:
    """A module's file in this repository; None: it is not Python, or from elsewhere."""
    first, *rest = module.split(".")
    if first != "tofu":
        return script_of(module)
    in_tdl = rest[:1] == ["tdl"]
    base = (_DESCRIPTIONS if in_tdl else _PACKAGE).joinpath(*rest[in_tdl:])
    places = (base / "__init__.py", base.with_suffix(".py"))
    return next((place for place in places if place.is_file()), None)


@functools.cache
def _imports(module: str, path: Path) -> tuple[str, ...]:
    """The modules and their members that a file names, and their packages."""
    tree = _parsed(path)
    is_package = path.name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    names: list[str] = []
    aliases: dict[str, str] = {}
    for node in tree.body if is_package else ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imported = dict(_imported(node, package))
            names += imported.values()
            aliases.update(imported)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _MODULE.fullmatch(node.value):
                names.append(node.value)
            elif _FACTORY.fullmatch(node.value):
                names.append(f"{package}.{node.value.partition(':')[0]}")
    for node in () if is_package else ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.append(f"{aliases.get(node.value.id, '')}.{node.attr}")
    parents = (n.rsplit(".", count)[0] for n in names for count in range(1, n.count(".") + 1))
    return (*names, *parents)


def _imported(node: Union[ast.Import, ast.ImportFrom], package: str) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with the module or member that it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name
        return
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1] if node.level else []
    base = ".".join([*above, *[node.module] * (node.module is not None)])
    for alias in node.names:
        yield alias.asname or alias.name, f"{base}.{alias.name}"


@functools.cache
def _later_names(package: str) -> dict[str, list[str]]:
    """The members that a package imports on first use, as it tells type checkers."""
    path = _file_of(package) if package else None
    if path is None or path.name != "__init__.py":
        return {}
    targets: dict[str, list[str]] = {}
    for block in _parsed(path).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    for name, target in _imported(node, package):
                        targets[name] = [target, target.rpartition(".")[0]]
    return targets


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _code(path: Path) -> str:
    """A file's text without comments, docstrings and layout."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        bare = _COMMENT_OR_TEXT.sub(lambda match: match.group(1) or " ", text)
        return " ".join(bare.split())
    tree = ast.parse(text)
    for node in ast.walk(tree):
        is_documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if is_documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)

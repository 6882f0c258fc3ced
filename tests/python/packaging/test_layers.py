"""The layers of docs/architecture.md: files include and import only layers below.

The page gives the order of the layers. The text of a file shows what it uses, so imports inside
functions count, and those for type checkers alone.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "python" / "tofu"

# --- C++ --------------------------------------------------------------------------------------

# Folders that name MXNet: its dialect, code that runs in its process, and that code's inputs.
KNOW_MXNET = {"mxnet", "mxnet/dialect", "kernels", "fetch", "bindings"}


def documented(section: str) -> list[str]:
    """The first column of the table under a heading of the page: the layers, highest first."""
    return list(purposes(section))


def purposes(section: str) -> dict[str, str]:
    """The rows of the table under a heading of the page: layers, highest first, and purposes."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n### {section}")[2]
    table = re.search(r"\n\| folder.*?\n\n|\n\| package.*?\n\n", text, re.DOTALL)
    assert table is not None, f"{PAGE}: no table under {section}"
    rows = re.findall(r"^\| `([\w/]+)` \| (.*) \|$", table.group(), re.MULTILINE)
    return {name.rstrip("/"): purpose for name, purpose in rows}


@pytest.fixture(scope="module")
def includes() -> dict[str, set[str]]:
    """The path of every source, and the files of the project that it includes."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu"):
            continue
        source = path.relative_to(ROOT / "src").as_posix()
        targets = re.findall(r'^#include "([^"]+)"', path.read_text("utf-8"), re.MULTILINE)
        found[source] = {each if "/" in each else f"{folder_of(source)}/{each}" for each in targets}
    return found


def folder_of(source: str) -> str:
    return source.rpartition("/")[0]


def test_every_folder_of_sources_is_documented(includes: dict[str, set[str]]) -> None:
    assert {folder_of(source) for source in includes} == set(documented("C++"))


def test_sources_include_only_what_lies_below(includes: dict[str, set[str]]) -> None:
    order = documented("C++")
    wrong = {
        (source, target)
        for source, targets in includes.items()
        for target in targets
        if order.index(folder_of(target)) < order.index(folder_of(source))
    }
    assert wrong == set()


def test_what_knows_no_graph_includes_none(includes: dict[str, set[str]]) -> None:
    """Such a folder includes none through other files either."""
    blind = {name for name, purpose in purposes("C++").items() if "Knows no graph" in purpose}
    assert {"mxnet", "kernels", "machine", "solver"} <= blind

    def reached(source: str, seen: set[str]) -> set[str]:
        for target in includes[source] - seen:
            seen.add(target)
            reached(target, seen)
        return seen

    wrong = {
        (source, target)
        for source in includes
        if folder_of(source) in blind
        for target in reached(source, set())
        if target.startswith(("graph/", "passes/"))
    }
    assert wrong == set()


def test_only_some_folders_of_sources_know_mxnet() -> None:
    """Other folders only include its names, and read and write its version number."""
    users = set()
    for folder in set(documented("C++")) - KNOW_MXNET:
        for path in sorted((ROOT / "src" / folder).glob("*.*")):
            text = re.sub(r"mxnet/\w+(/\w+)?\.\w+|mxnet_version", "", path.read_text("utf-8"))
            if "mxnet" in text.lower():
                users.add(path.relative_to(ROOT / "src").as_posix())
    assert users == set()


# --- Python -----------------------------------------------------------------------------------

# Below the documented packages, and open to all, lowest first.
OPEN = [
    "tofu.errors",
    "tofu.config",
    "tofu.installation",
    "tofu.uncaught",
    "tofu.exit_status",
    "tofu.cuda_libraries",
    "tofu.server_process",
    "tofu.dtypes",
    "tofu.boxes",
    "tofu.tables",
    "tofu._core",
    "tofu.file_cache",
]
VERIFY = [f"tofu.verify.{name}" for name in ("calls", "run", "find", "check", "inventory")]
# The entry points: ``python -m tofu``, and the package's lazy names.
TOP = ["tofu.__main__", "tofu"]
USE_MXNET = (
    "tofu.mx", "tofu.gluon", "tofu.models", "tofu.verify", "tofu.simulate",
    "tofu.trace",
)  # fmt: skip


# To be removed: simulate/systems plans until it lies in scripts, and example calls lie above their
# registry until they lie beside the descriptions.
WAITING = {"tofu.simulate.systems", "tofu.verify.calls.operator_calls"}


def layers() -> list[str]:
    """The names of packages and modules, lowest first; a module belongs to the longest match."""
    found = list(OPEN)
    for name in reversed(documented("Python")):
        dotted = "tofu." + name.replace("/", ".")
        finer = VERIFY if name == "verify" else []
        found += [each for each in [*finer, dotted] if each not in found]
    return [*found, *TOP]


def modules() -> dict[str, Path]:
    """Every module of the package, including descriptions, with its file."""
    found = {}
    for folder, package in ((PACKAGE, "tofu"), (ROOT / "tdl", "tofu.tdl")):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join((package, *parts))] = path
    return found


def imported(module: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The imports of a module: tofu's modules by their full names, others as written."""
    found = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and "import_module" in ast.dump(node.func):
            names = (each.value for each in node.args if isinstance(each, ast.Constant))
            found |= {name for name in names if name in known}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in known or whole == "tofu._core" else base)
    return found - {module}


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    known = modules()
    return {module: imported(module, path, known) for module, path in known.items()}


def layer_of(module: str, order: list[str]) -> int:
    fitting = [name for name in order if module == name or module.startswith(f"{name}.")]
    return order.index(max(fitting, key=len))


def test_every_module_has_a_layer() -> None:
    order = layers()
    for module in modules():
        assert order[layer_of(module, order)] != "tofu" or module == "tofu", module


def test_modules_import_only_what_lies_below(imports: dict[str, set[str]]) -> None:
    order = layers()
    wrong = [
        f"{module} imports {target}"
        for module, targets in imports.items()
        for target in targets
        if target.split(".")[0] == "tofu"
        and module not in WAITING
        and layer_of(target, order) > layer_of(module, order)
    ]
    assert wrong == []


def circles(uses: dict[str, set[str]]) -> dict[str, set[str]]:
    """The part of a graph that lies on circles or between them."""
    left = {name: targets & set(uses) - {name} for name, targets in uses.items()}
    while left:
        used = set().union(*left.values())
        inner = {name: targets for name, targets in left.items() if targets and name in used}
        if len(inner) == len(left):
            break
        left = {name: targets & set(inner) for name, targets in inner.items()}
    return left


def test_circles_are_found() -> None:
    uses = {"top": {"a"}, "a": {"b"}, "b": {"c"}, "c": {"a", "base"}, "base": set()}
    assert circles(uses) == {"a": {"b"}, "b": {"c"}, "c": {"a"}}
    assert circles({"a": {"b"}, "b": set()}) == {}


def test_files_form_no_circle(imports: dict[str, set[str]]) -> None:
    assert circles(imports) == {}


def test_a_base_name_stands_once() -> None:
    """Only commands and renderers have the name of the module that holds their subject."""
    known: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = path.parent.relative_to(PACKAGE).as_posix()
        if path.stem != "__init__" and folder not in ("cli", "plans/render"):
            known.setdefault(path.stem, []).append(folder)
    assert {name: folders for name, folders in known.items() if len(folders) > 1} == {}


def package_of(module: str, known: dict[str, Path]) -> str:
    """The folder of a module; a module directly in ``tofu`` is a package of its own."""
    is_package = known[module].name == "__init__.py" or module.count(".") == 1
    return module if is_package else module.rpartition(".")[0]


def test_packages_form_no_circle(imports: dict[str, set[str]]) -> None:
    known = modules()
    uses: dict[str, set[str]] = {}
    for module, targets in imports.items():
        packages = {package_of(target, known) for target in targets if target in known}
        uses.setdefault(package_of(module, known), set()).update(packages)
    assert circles(uses) == {}


def test_typing_and_lazy_imports_count(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import importlib\nif TYPE_CHECKING:\n    from tofu.mx import nnvm\n"
        "def f():\n    from . import errors\n    importlib.import_module('tofu.tdl')\n"
    )
    found = imported("tofu.module", path, modules())
    assert {"tofu.mx.nnvm", "tofu.errors", "tofu.tdl"} <= found


def test_only_some_packages_know_mxnet(imports: dict[str, set[str]]) -> None:
    users = {m for m, targets in imports.items() if "mxnet" in {t.split(".")[0] for t in targets}}
    others = {module for module in users if not module.startswith(USE_MXNET)}
    assert others <= set()


def test_only_one_package_knows_torch(imports: dict[str, set[str]]) -> None:
    users = {m for m, targets in imports.items() if "torch" in {t.split(".")[0] for t in targets}}
    assert users and all(module.startswith("tofu.torch") for module in users)
    assert not {m for m in users if any(t.startswith("tofu.mx") for t in imports[m])}


def test_example_calls_need_no_mxnet(imports: dict[str, set[str]]) -> None:
    for module, targets in imports.items():
        if module.startswith("tofu.verify.calls"):
            assert not {t for t in targets if t.startswith(("mxnet", "tofu.mx"))}, module


def test_descriptions_load_no_example_calls(imports: dict[str, set[str]]) -> None:
    calls = {m for m in imports if m.startswith("tofu.tdl.") and m.endswith("_calls")}
    assert len(calls) > 20
    users = {module for module, targets in imports.items() if targets & calls}
    assert users == set()  # tofu.verify.calls.operator_calls loads them by name
    tables = {module for module, targets in imports.items() if "tofu.lang.example_calls" in targets}
    assert not {m for m in tables - calls if not m.startswith("tofu.verify")}


# --- Names that nothing uses ------------------------------------------------------------------


def exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def names_in(tree: ast.Module) -> set[str]:
    """The names that a module's code uses, without its definitions and exports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call):  # by its name, "module:name", as in the table of models
            texts = (each.value for each in node.args if isinstance(each, ast.Constant))
            found |= {text.rpartition(":")[2] for text in texts if isinstance(text, str)}
    return found


def test_what_a_module_exports_is_used() -> None:
    """The dead-code finder trusts ``__all__``, so check here that its names are used."""
    folders = (PACKAGE, *(ROOT / name for name in ("tdl", "scripts", "benchmarks", "examples")))
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    trees = {path: ast.parse(path.read_text("utf-8")) for path in paths}
    used = set().union(*(names_in(tree) for tree in trees.values()))
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md"))
    dead = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        for name in exported(tree)
        if name not in used and name not in pages
    ]
    assert dead == []

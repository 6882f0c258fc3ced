"""A researcher's first try: a new search mode, by the recipe of architecture.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

ROOT = Path(__file__).resolve().parents[3]
BUILT_FROM = (
    "src", "python", "tdl", "cmake", "CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE",
)  # fmt: skip

# The mode decides all steps at once, and no worker computes a term of a sum.
EDITS = {
    "src/passes/search/modes.cc": [
        ('"icml18",', '"icml18", "no-sums",'),
        (
            '  } else if (mode == "flat") {\n',
            '  } else if (mode == "no-sums") {\n'
            "    options->method = Method::kJoint;\n"
            "    restrictions.forbid_output_reduction = true;\n"
            '  } else if (mode == "flat") {\n',
        ),
    ],
    "python/tofu/config.py": [('    "icml18",\n', '    "icml18",\n    "no-sums",\n')],
}
# Hides the tests' own tofu, whose editable install comes before other modules.
RUN = "import sys; sys.path[:0] = sys.argv[1:3]; from tofu.cli.main import main; main(sys.argv[3:])"


def edit(folder: Path) -> None:
    for name, changes in EDITS.items():
        text = (folder / name).read_text(encoding="utf-8")
        for before, after in changes:
            assert text.count(before) == 1, (name, before)
            text = text.replace(before, after)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.whole(rotates=False)  # compiles for four minutes
def test_a_new_mode_plans(tmp_path):
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    edit(tmp_path)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    built = [*pip, "--no-build-isolation", "--no-deps", "--target", tmp_path / "site", tmp_path]
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    subprocess.run(built, check=True, timeout=1800, env={**os.environ, "PATH": path})

    def plan(mode: str) -> dict[str, object]:
        paths = [tmp_path / "site", sysconfig.get_path("purelib")]
        words = ["plan", "--workers", "4", "--search", mode, "--format", "json", "mlp"]
        ran = subprocess.run(
            [sys.executable, "-S", "-c", RUN, *paths, *words],
            cwd=tmp_path / "site",
            env={**os.environ, "TOFU_CACHE": "0"},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        document: dict[str, object] = json.loads(ran.stdout)
        return document

    ours, new = plan("tofu"), plan("no-sums")
    assert (new["mode"], new["status"]) == ("no-sums", "optimal")
    assert int(str(new["total_bytes"])) > int(str(ours["total_bytes"]))

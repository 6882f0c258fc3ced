"""scripts/mxnet_tests.py says what it cannot run before it runs anything."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "mxnet_tests.py"


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ([], "is missing; expected a checkout of the tag 1.9.1 of MXNet"),
        (["common.py", "test_loss.py"], "--files test_loss: "),
    ],
)
def test_what_is_missing_is_named(files, text, tmp_path):
    folder = tmp_path / "tests" / "python" / "unittest"
    folder.mkdir(parents=True)
    if files:
        (folder / "common.py").touch()
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--out", str(tmp_path / "out")]
    command += ["--files", *files] if files else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "out").exists()

"""scripts/mxnet_tests.py names the tests that it cannot run before it runs any."""

import subprocess
import sys
import types
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


def test_the_plugin_finds_what_it_watches(import_script, monkeypatch):
    """It wraps the functions of tofu that report blocks, and reads their arguments."""
    pytest.importorskip("mxnet")
    from tofu.gluon.session import block_report, messages

    plugin = import_script("_mxnet_tests_plugin")
    recorder = next(
        each for each in vars(plugin).values() if isinstance(each, type) and hasattr(each, "watch")
    )
    for module, name in ((block_report, "partitioned"), (messages, "warn_serial")):
        monkeypatch.setattr(module, name, lambda *args, **options: None)
    monkeypatch.setattr(messages, "check_eager", lambda *args: None)
    watching = recorder.__new__(recorder)
    watching._blocks = []
    watching.watch()
    facts = types.SimpleNamespace(name="net")
    block_report.partitioned(facts, None, None, first=True)
    messages.warn_serial("net", "it prints")
    messages.check_eager("net", "hybridize it", None)
    assert [tuple(each.values()) for each in watching._blocks] == [
        ("net", "partitioned", ""),
        ("net", "serial", "it prints"),
        ("net", "eager", "not hybridized"),
    ]

"""SoyBean's worked example."""

import importlib
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("mxnet")
SCRIPTS = Path(__file__).parents[3] / "scripts"


def test_the_example_is_soybeans(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    try:
        soybean = importlib.import_module("soybean")
        counted = soybean.example()
        assert counted == pytest.approx(soybean.PAPER)
        monkeypatch.setattr(sys, "argv", ["soybean", "--smoke", "--output", str(tmp_path)])
        soybean.main()
    finally:
        for name in ("soybean", "_common"):
            sys.modules.pop(name, None)
    assert "33.6 MB" in capsys.readouterr().out
    document = json.loads((tmp_path / "soybean.json").read_text())
    assert document["example"]["data"] == pytest.approx(57.6e6)
    sizes = {row["search"]: row["bytes"] for row in document["rows"]}
    assert sizes["tofu, replication allowed"] <= min(sizes["data-parallel"], sizes["tofu"])

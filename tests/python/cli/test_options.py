"""Each option of a command acts on MXNet's graphs, or is refused by name."""

from __future__ import annotations

import os

import click
import pytest

from ..support import option_effects


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("command", option_effects.COMMANDS)
def test_each_option_acts_or_is_refused(command, tmp_path, monkeypatch) -> None:
    mx = pytest.importorskip("mxnet")
    monkeypatch.chdir(tmp_path)
    net = mx.sym.Variable("data")
    for number in range(8):
        layer = mx.sym.FullyConnected(net, num_hidden=32, name=f"layer{number}")
        net = mx.sym.Activation(layer, act_type="softrelu")
    net.save("net.json")
    option_effects.write_files(tmp_path)
    target = ["--shape", "data=512,32", "net.json"]
    assert list(option_effects.without_effect(command, target, tmp_path)) == []


def test_each_option_of_check_reaches_the_runs(tmp_path, monkeypatch) -> None:
    """Options that only print are left: tests of check's output have them."""
    pytest.importorskip("mxnet")
    from tofu.verify.script import record_runs

    def trained(*given, **choices) -> None:
        variables = sorted(each for each in os.environ.items() if each[0].startswith("TOFU_"))
        click.echo(f"{given} {choices} {variables}")
        raise SystemExit

    monkeypatch.setattr(record_runs, "trained", trained)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    left = list(option_effects.without_effect("check", ["train.py"], tmp_path))
    assert left == ["--all", "--format json"]

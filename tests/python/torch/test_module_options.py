"""Each option of a command acts on a module, or is refused by name."""

from __future__ import annotations

import pytest

from ..support import option_effects

MODULE = """
import torch
from torch import nn

def net():
    layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.ReLU())]
    return nn.Sequential(*layers), (torch.ones(256, 32),)
"""


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("command", option_effects.COMMANDS)
def test_each_option_acts_or_is_refused(command, tmp_path, monkeypatch) -> None:
    (tmp_path / "net_with_options.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    option_effects.write_files(tmp_path)
    ignored = option_effects.without_effect(command, ["net_with_options:net"], tmp_path)
    assert list(ignored) == []

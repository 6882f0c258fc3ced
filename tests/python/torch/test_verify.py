"""Every strategy of every operator that small modules call gives the whole operator's result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tofu.torch.models import MODELS, SMALL
from tofu.torch.verify import verify_module

# Elsewhere the sample of --full's tests is enough.
ALWAYS = ("gpt", "unet", "functions")


def every(names: Sequence[str]) -> list[object]:
    return [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.whole) for n in names]


@pytest.mark.parametrize("name", every(SMALL))
def test_parts_are_the_whole(name) -> None:
    torch.manual_seed(0)
    model, inputs = MODELS[name](torch.float64)
    report = verify_module(model, inputs)
    assert report.false == []
    assert report.undescribed == set()
    assert report.strategies > 100

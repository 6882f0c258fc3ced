"""Modules train distributed as they do whole."""

from __future__ import annotations

import pytest
import torch

from .models import gpt, mlp
from .ranks import on_ranks
from .training import compare


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [mlp, gpt])
@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_losses_and_gradients_are_those_of_the_whole(make, mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, make, mesh, dtype)

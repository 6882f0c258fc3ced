"""Small models of the package transformers train distributed as they do whole."""

from __future__ import annotations

import functools

import pytest
import torch

from .hugging import NAMES, made
from .ranks import on_ranks
from .training import compare

transformers = pytest.importorskip("transformers")


def train(name: str, mesh: tuple[int, ...], dtype: torch.dtype, steps: int) -> None:
    compare(functools.partial(made, name, transformers), mesh, dtype, steps)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_models_train(name) -> None:
    on_ranks(2, train, name, (2,), torch.float64, 2)


@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 4)])
@pytest.mark.parametrize("name", NAMES)
def test_every_model_trains_on_every_mesh(name, mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), train, name, mesh, dtype, 5)

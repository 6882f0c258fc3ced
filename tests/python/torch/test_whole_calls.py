"""Calls that no plan can serve: correct if they need no gradients, else refused."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import GraphError

from .ranks import on_ranks
from .training import difference


class Chooses(nn.Module):
    """Branches on its data, and keeps a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.by_data = False

    def forward(self, data: Any) -> Any:
        result = self.linear(data)
        if self.by_data and result.sum() > 0:
            self.mean.mul_(0.5).add_(result.detach().mean(0))
            self.mean = self.mean + 1
            result = -result
        return result.relu()


def by_data() -> None:
    torch.manual_seed(0)
    whole, data = Chooses(), torch.randn(4, 8)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data,))
    whole.by_data = parts.by_data = True
    with pytest.raises(GraphError, match="cannot be traced"):
        parts(data)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for each in (data, -data, data):
            assert difference(whole(each), parts(each)) <= 1e-6
            assert difference(whole.mean, parts.mean.full_tensor()) <= 1e-6
            for model in (whole, parts):
                model.linear.weight.mul_(1.1)  # an optimizer's step
    first = torch.distributed.get_rank() == 0
    assert sum("whole, in plain torch" in str(each.message) for each in said) == int(first)
    whole.by_data = parts.by_data = False
    assert difference(whole(data).detach(), parts(data).detach()) <= 1e-6


def test_calls_that_depend_on_data_run_whole_without_gradients() -> None:
    on_ranks(2, by_data)


def generated() -> None:
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    whole, words = transformers.LlamaForCausalLM(settings), torch.randint(3, 64, (4, 8))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        parts = tofu.torch.parallelize(
            copy.deepcopy(whole), (2,), (), {"input_ids": words, "labels": words}
        )
    assert any("planned with use_cache=False" in str(each.message) for each in said)
    losses = [model(input_ids=words, labels=words).loss for model in (whole, parts)]
    assert difference(losses[0].detach(), losses[1].detach()) <= 1e-5
    with pytest.raises(GraphError, match="returns a DynamicCache"):
        parts(input_ids=words, labels=words, use_cache=True)
    made = [
        model.eval().generate(words, max_new_tokens=4, do_sample=False) for model in (whole, parts)
    ]
    assert made[0].tolist() == made[1].tolist()
    losses[1].backward()
    assert parts.model.embed_tokens.weight.grad is not None


def test_text_is_generated_with_a_cache() -> None:
    pytest.importorskip("transformers")
    on_ranks(2, generated)

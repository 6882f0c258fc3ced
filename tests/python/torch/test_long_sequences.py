"""Causal attention whose queries ranks share: each part is told where it begins."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import tofu.torch

from .ranks import on_ranks
from .training import compare

WORDS, FEATURES = 64, 8
ops = torch.ops.tofu


def _call(queries: int, keys: int, dtype: torch.dtype):
    torch.manual_seed(0)
    sizes = queries, keys, keys
    return [torch.randn(2, 3, size, 4, dtype=dtype) for size in sizes]


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("keys", [9, 5, 12])
def test_parts_of_queries_are_the_whole(keys, backend) -> None:
    query, key, value = _call(9, keys, torch.float64)
    rest = None, True, None, False
    with sdpa_kernel(backend):
        out, logs = ops.attention(query, key, value, *rest, None)
        grad = out.sin()
        whole = ops.attention_backward(grad, query, key, value, out, logs, *rest, None)
        parts = []
        for begin, end in ((0, 3), (3, 7), (7, 9)):
            own, own_grad = query[:, :, begin:end], grad[:, :, begin:end]
            found = ops.attention(own, key, value, *rest, begin)
            gradients = ops.attention_backward(own_grad, own, key, value, *found, *rest, begin)
            parts.append((*found, *gradients))
    joined = [torch.cat(each, 2) for each in list(zip(*parts))[:3]]
    added = [sum(each) for each in list(zip(*parts))[3:]]
    for found, expected in zip([*joined, *added], [out, logs, *whole]):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_joined_parts_of_keys_are_rounded_once(dtype) -> None:
    tensors = _call(6, 9, dtype)
    found, _ = ops.attention(tensors[0][:, :, 3:], *tensors[1:], None, True, None, False, 3)
    exact = scaled_dot_product_attention(*(x.double() for x in tensors), is_causal=True)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), exact[:, :, 3:], rtol=2 * eps, atol=2 * eps)


class _Block(nn.Module):
    """One head of causal attention over a long sequence, and a layer for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(FEATURES, 3 * FEATURES)
        self.out = nn.Linear(FEATURES, FEATURES)

    def forward(self, data):
        query, key, value = self.mix(data).unsqueeze(1).chunk(3, -1)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.squeeze(1) + data).square().mean()


def made(dtype: torch.dtype):
    torch.manual_seed(0)
    return _Block().to(dtype), (torch.randn(1, WORDS, FEATURES, dtype=dtype),)


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_a_plan_cuts_one_long_sequence(mesh) -> None:
    plan = tofu.torch.plan(*made(torch.float32), mesh=mesh)
    for way in ("", "_backward"):
        assert set(plan.splits[f"_Block.attention{way}"]) == {"q"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (4,)])
def test_ranks_that_share_a_sequence_train_as_one_does(mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, made, mesh, dtype, 3)

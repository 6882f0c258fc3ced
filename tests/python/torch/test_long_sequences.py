"""Attention whose queries or keys ranks share: a causal one is told where a part begins."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import tofu.torch
from tofu.torch.tiles.exchange import weighted_mean

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
        out, logs = ops.attention(query, key, value, *rest, None, None)
        grad = out.sin()
        whole = ops.attention_backward(grad, query, key, value, out, logs, *rest, None, None)
        parts = []
        for begin, end in ((0, 3), (3, 7), (7, 9)):
            own, own_grad = query[:, :, begin:end], grad[:, :, begin:end]
            found = ops.attention(own, key, value, *rest, begin, None)
            gradients = ops.attention_backward(
                own_grad, own, key, value, *found, *rest, begin, None
            )
            parts.append((*found, *gradients))
    _assert_whole(parts, [out, logs, *whole])


def _assert_whole(parts, whole) -> None:
    """Of parts of queries: values, logarithms, and gradients of queries, keys and values."""
    joined = [torch.cat(each, 2) for each in list(zip(*parts))[:3]]
    added = [sum(each) for each in list(zip(*parts))[3:]]
    for found, expected in zip([*joined, *added], whole):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("masked", [False, True])
def test_parts_of_queries_and_keys_are_the_whole(masked, backend) -> None:
    query, key, value = _call(9, 8, torch.float64)
    mask = torch.rand(9, 8) > 0.6 if masked else None
    if masked:
        mask[4] = False
    rest = not masked, None, False
    with sdpa_kernel(backend):
        out, logs = ops.attention(query, key, value, mask, *rest, None, None)
        grad = out.sin()
        whole = ops.attention_backward(grad, query, key, value, out, logs, mask, *rest, None, None)
        parts = [
            _part_of_queries(own, query, key, value, grad, mask, rest)
            for own in (slice(0, 3), slice(3, 9))
        ]
    _assert_whole(parts, [out, logs, *whole])


def _part_of_queries(own, query, key, value, grad, mask, rest):
    """Both passes for some queries, in parts of keys."""
    query, grad = query[:, :, own], grad[:, :, own]
    calls = [
        ((key[:, :, k], value[:, :, k]), None if mask is None else mask[own, k], k.start)
        for k in (slice(0, 1), slice(1, 5), slice(5, 8))
    ]
    every = [ops.attention(query, *kv, m, *rest, own.start, at) for kv, m, at in calls]
    each_out, each_logs = map(torch.stack, zip(*every))
    found = weighted_mean(each_out, each_logs, (0, 1, 2)), each_logs.logsumexp(0)
    gradients = [
        ops.attention_backward(grad, query, *kv, *found, m, *rest, own.start, at)
        for kv, m, at in calls
    ]
    of_queries, of_keys, of_values = zip(*gradients)
    return (*found, sum(of_queries), torch.cat(of_keys, 2), torch.cat(of_values, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_joined_parts_of_keys_are_rounded_once(dtype) -> None:
    tensors = _call(6, 9, dtype)
    found, _ = ops.attention(tensors[0][:, :, 3:], *tensors[1:], None, True, None, False, 3, None)
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


@pytest.mark.parametrize(("mesh", "cut"), [((2,), {"q"}), ((2, 2), {"q", "k"})])
def test_a_plan_cuts_one_long_sequence(mesh, cut) -> None:
    plan = tofu.torch.plan(*made(torch.float32), mesh=mesh)
    for way in ("", "_backward"):
        assert set(plan.splits[f"_Block.attention{way}"]) == cut


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (4,), (2, 2)])
def test_ranks_that_share_a_sequence_train_as_one_does(mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, made, mesh, dtype, 3)


class _Summary(nn.Module):
    """Few learned queries, each with a mean of a long sequence: only its keys can be shared."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, 2, FEATURES))
        self.mix = nn.Linear(FEATURES, 2 * FEATURES)
        self.out = nn.Linear(FEATURES, FEATURES)
        self.is_causal = is_causal

    def forward(self, data):
        key, value = self.mix(data).unsqueeze(1).chunk(2, -1)
        mixed = scaled_dot_product_attention(self.query, key, value, is_causal=self.is_causal)
        return self.out(mixed).square().mean()


def summary(dtype: torch.dtype):
    torch.manual_seed(0)
    return _Summary(False).to(dtype), (torch.randn(1, WORDS, FEATURES, dtype=dtype),)


def first_words(dtype: torch.dtype):
    """Of most ranks' words the queries see none."""
    torch.manual_seed(0)
    return _Summary(True).to(dtype), (torch.randn(1, WORDS, FEATURES, dtype=dtype),)


@pytest.mark.parametrize("made", [summary, first_words])
def test_a_plan_cuts_keys(made) -> None:
    plan = tofu.torch.plan(*made(torch.float32), mesh=(4,))
    for way in ("", "_backward"):
        assert plan.splits[f"_Summary.attention{way}"] == ("k",)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mesh", [(2,), (4,)])
@pytest.mark.parametrize("made", [summary, first_words])
def test_ranks_that_share_keys_train_as_one_does(made, mesh, dtype) -> None:
    on_ranks(torch.Size(mesh).numel(), compare, made, mesh, dtype, 3)

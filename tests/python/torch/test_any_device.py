"""Plans know no device: attention is one operator for every kernel, cells and norms their parts."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import tofu.torch
from tofu.torch.commands.models import MODELS
from tofu.torch.commands.verify import verify_module
from tofu.torch.tiles import attention_kernels
from tofu.torch.tracing import module_trace
from tofu.torch.tracing.any_device import as_on_any_device

MASK = torch.linspace(-1, 1, 30, dtype=torch.float64).view(5, 6)
HIDDEN = torch.zeros(5, 6).index_fill(0, torch.tensor(2), 1) == 0  # query 2 sees no key
CALLS = {
    "plain": {}, "causal": {"is_causal": True}, "mask": {"attn_mask": MASK},
    "hidden": {"attn_mask": HIDDEN}, "mask of heads": {"attn_mask": MASK.expand(3, 1, 5, 6)},
    "scale": {"scale": 0.3},
}  # fmt: skip


def _tensors(groups: int, dtype: torch.dtype = torch.float64, width: int = 8):
    torch.manual_seed(0)
    shapes = (3, 4, 5, width), (3, groups, 6, width), (3, groups, 6, width)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def _results(function, tensors, **options):
    out = function(*tensors, enable_gqa=tensors[1].shape[1] != 4, **options)
    return out, *torch.autograd.grad(out, tensors, torch.ones_like(out).cumsum(-1))


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_attention_is_torchs(options, groups, backend) -> None:
    tensors = _tensors(groups)
    with sdpa_kernel(SDPBackend.MATH):
        expected = _results(scaled_dot_product_attention, tensors, **options)
    with sdpa_kernel(backend):
        found = _results(attention_kernels.attention, tensors, **options)
    for own, theirs in zip(found, expected):
        torch.testing.assert_close(own, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("heads", [1, 4])
def test_a_boolean_mask_hides_words_in_parts_of_attention_too(heads, dropout) -> None:
    """Dropout, or one key head for all without ``enable_gqa``, takes attention apart."""
    torch.manual_seed(0)
    query = torch.randn(2, 4, 6, 8, dtype=torch.float64, requires_grad=True)
    key, value = torch.randn(2, 2, heads, 6, 8, dtype=torch.float64)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    found = []
    for function in (scaled_dot_product_attention, attention_kernels.attention):
        torch.manual_seed(1)
        with sdpa_kernel(SDPBackend.MATH):
            out = function(query, key, value, attn_mask=mask, dropout_p=dropout)
        found.append((out, *torch.autograd.grad(out.cumsum(-1).sum(), query)))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


# Kernels of GPUs -> whether they share keys among heads, and take masks.
KERNELS = {"flash": (1, True, False), "efficient": (2, False, True), "cudnn": (3, False, True)}


@pytest.mark.parametrize(("kernel", "grouped", "masked"), KERNELS.values(), ids=KERNELS)
def test_kernels_of_gpus_are_called_as_torch_declares_them(
    kernel, grouped, masked, monkeypatch
) -> None:
    def choice(*args, enable_gqa, **options):
        return kernel

    monkeypatch.setattr(attention_kernels.aten, "_fused_sdp_choice", choice)
    groups = 2 if grouped else 4
    given = [t.detach().to("meta", torch.float16) for t in _tensors(groups, width=12)]
    mask = torch.zeros(5, 6, dtype=torch.bool, device="meta") if masked else None
    call = attention_kernels._Attention(*given, mask, False, None, grouped)
    out, logs = call.forward()
    assert (out.shape, logs.shape, logs.dtype) == ((3, 4, 5, 12), (3, 4, 5), torch.float32)
    gradients = call.backward(torch.empty_like(out), out, logs)
    assert [each.shape for each in gradients] == [each.shape for each in given]


class _Heads(nn.Module):
    def __init__(self, groups: int, **options) -> None:
        super().__init__()
        self.options = options
        self.of_queries = nn.Linear(8, 16, dtype=torch.float64)
        self.of_keys = nn.Linear(8, 4 * groups, dtype=torch.float64)
        self.grouped = groups != 4

    def forward(self, queries, keys):
        query = self.of_queries(queries).unflatten(-1, (-1, 4)).transpose(1, 2)
        key = self.of_keys(keys).unflatten(-1, (-1, 4)).transpose(1, 2)
        return scaled_dot_product_attention(
            query, key, key, enable_gqa=self.grouped, **self.options
        )


INPUTS = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 6, 8, dtype=torch.float64)
OPERATORS = {"tofu.attention.default", "tofu.attention_backward.default"}


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("name", ["plain", "causal", "mask of heads"])
def test_attention_is_divided(name, groups) -> None:
    report = verify_module(_Heads(groups, **CALLS[name]), INPUTS)
    assert not report.false and not report.undescribed
    assert report.operators >= OPERATORS  # some split of both was run


@pytest.mark.parametrize("name", ["plain", "causal"])
def test_queries_are_divided_in_both_passes(name) -> None:
    inputs = tuple(x[:1] for x in INPUTS)
    plan = tofu.torch.plan(_Heads(1, **CALLS[name]), inputs, mesh=(5,))
    assert not plan.undescribed
    assert {plan.splits[f"_Heads.attention{way}"] for way in ("", "_backward")} == {("q",)}


def _operators(model, inputs, device):
    traced = tofu.torch.trace(model, inputs, device=device, gradients=False)
    return [str(each.target) for each in traced.operators]


DATA = torch.randn(4, 16)
MODULES = {
    "lstm cell": nn.LSTMCell(16, 8), "gru cell": nn.GRUCell(16, 8), "dropout": nn.Dropout(),
    "batch norm": nn.BatchNorm1d(16), "rms norm": nn.RMSNorm(16), "softmax": nn.Softmax(-1),
}  # fmt: skip


@pytest.mark.parametrize("model", MODULES.values(), ids=MODULES)
def test_a_trace_on_a_gpu_has_the_same_operators(model, monkeypatch) -> None:
    monkeypatch.setattr(module_trace, "traced_device", lambda device: device)
    assert _operators(model, (DATA,), "cuda") == _operators(model, (DATA,), "cpu")


@pytest.mark.parametrize(
    "model", [nn.LSTMCell(16, 8), nn.GRUCell(16, 8), nn.RMSNorm(16), nn.RMSNorm((4, 16), eps=0.1)]
)
def test_cells_and_norms_are_torchs(model) -> None:
    report = verify_module(model, (DATA,))
    assert not report.false and not report.undescribed
    expected = model(DATA)
    with as_on_any_device("cpu", in_timesteps=False):
        torch.testing.assert_close(model(DATA), expected)


def test_norms_of_few_bits_are_torchs() -> None:
    model, data = nn.RMSNorm(16, dtype=torch.bfloat16), DATA.bfloat16()
    nn.init.normal_(model.weight)
    expected = model(data)
    with as_on_any_device("cpu", in_timesteps=False):
        assert torch.equal(model(data), expected)


def test_a_plan_for_gpus_needs_no_gpu() -> None:
    model, inputs = MODELS["gpt"](torch.float32)
    plans = [tofu.torch.plan(model, inputs, mesh=(2,), device=each) for each in ("cpu", "cuda")]
    assert plans[0].splits == plans[1].splits and not plans[1].undescribed
    assert plans[0].memory == plans[1].memory


def test_tensors_of_attributes_reach_the_device() -> None:
    inputs = tuple(torch.cat([each, each[:1]]) for each in INPUTS)
    model = _Heads(4, attn_mask=torch.ones(4, 1, 5, 6, dtype=torch.bool))
    assert tofu.torch.plan(model, inputs, mesh=(2, 2)).memory

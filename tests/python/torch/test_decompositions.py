"""Operators that are decomposed into others give the same values, and are divided."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.analysis import row_for
from tofu.torch.commands.verify import verify_module
from tofu.torch.tracing.decompositions import table

from .ranks import on_ranks
from .training import compare

aten = torch.ops.aten
SHAPES = {"a sample": (5,), "a batch": (6, 5), "pictures": (3, 5, 4, 2)}
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_gradient_of_a_likelihood_is_torchs(shape, reduction, weighted) -> None:
    torch.manual_seed(0)
    data = torch.randn(shape, dtype=torch.float64)
    target = torch.randint(0, 5, (*shape[:1], *shape[2:]) if len(shape) > 1 else ())
    if target.ndim:
        target.view(-1)[1] = -100  # ignored
    weight = torch.rand(5, dtype=torch.float64) if weighted else None
    forward, backward = (
        getattr(aten, f"nll_loss{'2d' if len(shape) == 4 else ''}_{way}").default
        for way in ("forward", "backward")
    )
    rest = weight, REDUCTIONS[reduction], -100
    loss, total = forward(data, target, *rest)
    grad = torch.randn_like(loss)
    expected = backward(grad, data, target, *rest, total)
    torch.testing.assert_close(table()[backward](grad, data, target, *rest, total), expected)


def test_the_gradient_of_a_likelihood_adds_to_zeros() -> None:
    class Net(nn.Module):
        def forward(self, data, target):
            return nn.functional.cross_entropy(data, target)

    data = torch.randn(6, 5, requires_grad=True)
    traced = tofu.torch.trace(Net(), (data, torch.arange(6) % 5))
    large = [
        str(each.target) for each in traced.operators
        if any(tuple(out.shape) == (6, 5) for out in each.outputs)
    ]  # fmt: skip
    assert large == [
        *("aten.sub.Tensor", "aten.zeros_like.default", "tofu.scatter_add.default"),
        "tofu.log_softmax_backward.default",
    ]  # fmt: skip


# --- experts ------------------------------------------------------------------------------------


class Mixture(nn.Module):
    """A Mixtral of one layer that returns its loss."""

    def __init__(self, experts: int = 4) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        config = transformers.MixtralConfig(
            vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, num_local_experts=experts,
            use_cache=False,
        )  # fmt: skip
        self.model = transformers.MixtralForCausalLM(config)

    def forward(self, words):
        return self.model(input_ids=words, labels=words).loss


def mixture(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return Mixture().to(dtype).eval(), (torch.randint(3, 64, (4, 6)),)


def test_every_split_of_experts_gives_the_whole() -> None:
    report = verify_module(*mixture(torch.float64))
    assert not report.false
    experts = {"tofu.grouped_mm.default", "tofu.grouped_mm_weight.default"}
    assert experts <= report.operators
    assert report.undescribed == set()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_experts_are_divided(dtype) -> None:
    if dtype == torch.bfloat16 and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11):
        pytest.skip("transformers reads tensors' addresses, which a trace does not have")
    model, inputs = mixture(dtype)
    plan = tofu.torch.plan(model, inputs, mesh=(2, 2))
    cuts = {name: each for name, each in plan.splits.items() if "grouped_mm" in name}
    assert len(cuts) == 6 and all(None not in each for each in cuts.values())


def test_workers_can_share_the_experts_and_their_features() -> None:
    shapes = [(12, 16), (4, 16, 24), (4,), (4,)]
    row = row_for("tofu.grouped_mm.default", {}, shapes, [(12, 24)])
    assert {row["vars"][k]["name"] for k in row["splittable"]} == {"out", "group", "k"}


class Grouped(nn.Module):
    """torch's own products of groups, of rows and of columns."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(3, 16, 24))
        self.second = nn.Parameter(torch.randn(3, 24, 8))

    def forward(self, data, ends):
        hidden = torch._grouped_mm(data, self.first, offs=ends).tanh()
        rows = torch._grouped_mm(hidden, self.second, offs=ends)
        columns = torch._grouped_mm(self.second.transpose(1, 2), hidden.T, offs=ends)
        return (rows.square() + columns.T).float().mean()


def grouped(dtype: torch.dtype) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    ends = torch.tensor([2, 2, 12], dtype=torch.int32)  # the second group is empty
    return Grouped().to(dtype), (torch.randn(12, 16, dtype=dtype), ends)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_split_of_torchs_grouped_products_gives_the_whole(dtype) -> None:
    report = verify_module(*grouped(dtype))
    assert not report.false and not report.undescribed
    assert {"tofu.grouped_mm.default", "tofu.grouped_mm_weight.default"} <= report.operators


def train_grouped(mesh: tuple[int, ...]) -> None:
    compare(grouped, mesh, torch.float32, 2)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_torchs_grouped_products_train(ranks) -> None:
    on_ranks(ranks, train_grouped, (ranks,))


def train(mesh: tuple[int, ...]) -> None:
    compare(mixture, mesh, torch.float32, 2)  # torch has no float64 to compare with


@pytest.mark.parametrize("mesh", [(2,), (3,)])
def test_experts_train(mesh) -> None:
    on_ranks(mesh[0], train, mesh)


# --- images -------------------------------------------------------------------------------------

MODES = {
    "nearest": (3, 4, 5), "nearest-exact": (3, 4, 5), "linear": (3,), "bilinear": (4,),
    "bicubic": (4,), "trilinear": (5,),
}  # fmt: skip


class Resized(nn.Module):
    def __init__(self, mode: str, ndim: int) -> None:
        super().__init__()
        self.mode = mode
        self.weight = nn.Parameter(torch.randn([1, 3, *[1] * (ndim - 2)], dtype=torch.float64))

    def forward(self, data):
        return nn.functional.interpolate(data * self.weight, scale_factor=2.0, mode=self.mode)


@pytest.mark.parametrize(
    ("mode", "ndim"), [(mode, ndim) for mode, dims in MODES.items() for ndim in dims]
)
def test_interpolations_are_divided_and_not_taken_apart(mode, ndim) -> None:
    data = torch.randn([4, 3, *[4] * (ndim - 2)], dtype=torch.float64)
    model = Resized(mode, ndim)
    report = verify_module(model, (data,))
    assert not report.false and not report.undescribed
    plan = tofu.torch.plan(model, (data,), mesh=(4,))
    names = {str(each.target) for each in plan.traced.operators}
    assert sum("upsample" in name for name in names) == 2
    assert not any("index" in name for name in names)
    assert plan.bytes < data.nbytes  # parts of the weight, and terms of its gradient


def test_operators_in_python_come_back_after_a_trace() -> None:
    operators = aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec
    before = [dict(each.py_kernels) for each in operators]
    assert all(before)
    tofu.torch.trace(Resized("nearest", 4), (torch.randn(1, 3, 2, 2, dtype=torch.float64),))
    assert [each.py_kernels for each in operators] == before


def test_a_tensor_like_another_fetches_nothing_of_it() -> None:
    class Padded(nn.Module):
        def forward(self, data):
            shape = len(data), 3
            made = data.new_zeros(shape), data.new_ones(shape), data.new_full(shape, 2.0)
            return torch.cat([data, *made, data.new_empty(shape).fill_(3.0)], 1)

    model, data = Padded(), torch.randn(8, 4)
    plan = tofu.torch.plan(model, (data,), mesh=(4,))
    assert not plan.bytes
    assert "aten.full.default" in {str(each.target) for each in plan.traced.operators}


def test_decompositions_give_what_torch_computes() -> None:
    torch.manual_seed(0)
    data, other = torch.randn(2, 4, 5, dtype=torch.float64)
    mask, places = data > 0, [torch.tensor([3, 1]), torch.tensor([0, 4])]
    calls: list[tuple[Any, ...]] = [
        *((aten.dist.default, data, other, p) for p in (0, 1, 2, 3.5, float("inf"))),
        *((aten.dist.default, data, other[:1], p) for p in (1, 2)),
        (aten.trace.default, data), (aten.trace.default, data.T),
        *((aten.renorm.default, data, p, 1, 1.5) for p in (1, 2)),
        *((aten.soft_margin_loss_backward.default, g, data, other.sign(), k)
          for g, k in ((other, 0), (other[0, 0], 1), (other[0, 0], 2))),
        (aten.block_diag.default, [data, other[0], other[1, 1]]),
        (aten._chunk_cat.default, [data, other[:3]], 0, 3),
        (aten.squeeze_copy.default, data[:1, None]),
        (aten._unsafe_masked_index.default, data, mask[3, :2], places, 7.0),
        (aten._unsafe_masked_index_put_accumulate.default, data, mask[3, :2], places, other[0, :2]),
    ]  # fmt: skip
    for operator, *args in calls:
        torch.testing.assert_close(table()[operator](*args), operator(*args))
    empty = aten.new_empty_strided.default
    made = table()[empty](data, [2, 3, 4], [12, 4, 1], dtype=torch.int32)
    assert made.stride() == (12, 4, 1) and made.dtype == torch.int32
    assert table()[empty](data, [2, 3], [1, 2]) is NotImplemented

"""Repeats in the backward pass, as checkpoints say or a memory limit needs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tofu.torch
from tofu.errors import ConfigError, MemoryLimitError
from tofu.planner.recomputation import recomputed
from tofu.torch.graphs.aten_strategies import aten_table
from tofu.torch.graphs.module_graph import training_graph
from tofu.torch.graphs.torch_plan import TorchPlan, read_plan
from tofu.torch.parallelize import program_of

from .ranks import on_ranks
from .training import GRADIENT, LOSS, compare, difference


class Deep(nn.Module):
    """Layers that are all checkpoints, or none."""

    def __init__(self, kind: str = "none", dropout: float = 0.0) -> None:
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(16, 64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 16), nn.Tanh()
            )
            for _ in range(6)
        )

    def forward(self, data: Any) -> Any:
        for layer in self.layers:
            if self.kind == "none":
                data = layer(data)
            elif self.kind == "nested":
                data = checkpoint(
                    lambda x, layer=layer: checkpoint(layer, x, use_reentrant=False) + x,
                    data,
                    use_reentrant=False,
                )
            else:
                data = checkpoint(layer, data, use_reentrant=self.kind == "reentrant")
        return data.square().mean()


def deep(kind: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Deep(kind).to(dtype), (torch.randn(256, 16, dtype=dtype, requires_grad=True),)


def planned(kind: str, **options: Any) -> TorchPlan:
    return tofu.torch.plan(*deep(kind, torch.float32), mesh=(2,), **options)


def repeated(plan: TorchPlan) -> list[str]:
    return [o.repeats for o in plan.traced.operators if o.repeats]


@pytest.mark.parametrize("kind", ["none", "plain", "nested", "reentrant"])
def test_checkpoints_are_computed_again(kind) -> None:
    plan = planned(kind)
    again = repeated(plan)
    assert len(set(again)) == len(again)
    assert (sum(".addmm" in name for name in again) > 4) == (kind != "none")
    if kind != "none":
        assert plan.memory["activations"] < 0.55 * planned("none").memory["activations"]


def checkpoints_train(kind: str, mesh: tuple[int, ...], dtype: torch.dtype) -> None:
    compare(lambda dtype: deep(kind, dtype), mesh, dtype)


@pytest.mark.parametrize("kind", ["plain", "nested", "reentrant"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_checkpoints_train_as_in_plain_torch(kind, dtype) -> None:
    on_ranks(3, checkpoints_train, kind, (3,), dtype)


def dropped() -> None:
    torch.manual_seed(0)
    kept, data = Deep("none", 0.5), torch.randn(64, 16)
    again = copy.deepcopy(kept)
    again.kind = "plain"
    losses = []
    models = [tofu.torch.parallelize(model, (2,), (data,)) for model in (kept, again)]
    for model in models:
        torch.manual_seed(1)
        losses.append(model(data))
        losses[-1].backward()
    assert difference(*(loss.detach() for loss in losses)) <= LOSS[torch.float32]
    for one, other in zip(*(model.parameters() for model in models)):
        found = difference(one.grad.full_tensor(), other.grad.full_tensor())
        assert found <= GRADIENT[torch.float32]


def test_random_numbers_are_not_drawn_again() -> None:
    on_ranks(2, dropped)


# --- Limits -----------------------------------------------------------------------------


def test_as_little_is_computed_again_as_a_limit_needs() -> None:
    plain, least = planned("none"), planned("none", recompute="all")
    held, fewest = (sum(plan.memory.values()) for plan in (plain, least))
    assert fewest < 0.7 * held and not repeated(plain)
    limit = (held + fewest) // 2
    fitted = planned("none", memory=limit)
    assert fewest <= sum(fitted.memory.values()) <= limit
    assert 0 < len(repeated(fitted)) < len(repeated(least))
    assert fitted.details.recompute is not None
    assert not repeated(planned("none", memory=held))


class Viewed(nn.Module):
    """Keeps a tensor (6, 4) for its backward pass, and views of it and of its parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)

    def forward(self, data: Any) -> Any:
        pairs = self.linear(data).tanh().view(12, 2)
        return (pairs * pairs).sum()


def test_views_take_no_memory_of_their_own() -> None:
    traced = tofu.torch.trace(Viewed(), (torch.randn(6, 4, requires_grad=True),))
    table, _ = aten_table(training_graph(traced))
    assert recomputed(table).saved_bytes == 6 * 4 * 4


def test_a_limit_that_nothing_meets_is_told() -> None:
    with pytest.raises(
        MemoryLimitError, match=r"Deep: no plan over 2 workers .* 1,000 bytes; the least"
    ):
        planned("none", memory=1000)
    fewest = sum(planned("none", recompute="all").memory.values())
    with pytest.raises(MemoryLimitError, match="recomputation"):
        planned("none", memory=fewest, recompute="none")
    with pytest.raises(ConfigError, match="memory=-1B: expected a size"):
        planned("none", memory=-1)
    with pytest.raises(ConfigError, match="recompute"):
        planned("none", recompute="some")


def test_a_plan_that_computes_again_is_read_back() -> None:
    plan = planned("none", recompute="all")
    traced = planned("none").traced
    again = read_plan(plan.to_json(), traced, (2,), "here")
    assert [o.name for o in again.traced.operators] == [o.name for o in plan.traced.operators]
    assert repeated(again) == repeated(plan) != []
    assert again.received_bytes == plan.received_bytes and again.memory == plan.memory


def limited(mesh: tuple[int, ...], dtype: torch.dtype) -> None:
    whole, inputs = deep("none", dtype)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), mesh, inputs, recompute="all")
    assert repeated(program_of(parts).plan)
    for model in (whole, parts):
        model(*inputs).backward()
    for one, other in zip(whole.parameters(), parts.parameters()):
        assert difference(one.grad, other.grad.full_tensor()) <= GRADIENT[dtype]


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_what_a_limit_needs_trains_as_the_whole(mesh) -> None:
    on_ranks(2 * len(mesh), limited, mesh, torch.float64)


class Normed(nn.Module):
    """A batch norm inside a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, data: Any) -> Any:
        normed = checkpoint(lambda x: self.norm(self.layer(x)).tanh(), data, use_reentrant=False)
        return normed.square().mean()


def test_statistics_inside_a_checkpoint_that_plain_torch_changes_twice_are_said() -> None:
    with pytest.warns(
        UserWarning, match=r"Normed: forward changes 'norm\.\w+' inside a checkpoint"
    ):
        tofu.torch.plan(Normed(), (torch.randn(6, 4),), mesh=(2,))
    tofu.torch.plan(Normed().eval(), (torch.randn(6, 4),), mesh=(2,))

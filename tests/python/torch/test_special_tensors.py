"""Tensors that are empty, complex or sparse, and modules that torch.compile compiles."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import tofu.torch
from tofu.errors import ConfigError, GraphError
from tofu.torch.tracing.module_trace import trace

from .ranks import on_ranks
from .training import GRADIENT, LOSS, difference


class Both(nn.Module):
    """A linear layer, and a function of its output."""

    def __init__(self, then: Callable[..., Any], *parts: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.then = then
        self.parts = nn.ModuleList(parts)

    def forward(self, data: Any, *others: Any) -> Any:
        return self.then(self, self.linear(data), *others).square().mean()


class Spectrum(nn.Module):
    """Weights of frequencies."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, dtype=torch.cfloat))

    def forward(self, data: Any) -> Any:
        spectrum = torch.fft.rfft(data) * self.weight
        return torch.fft.irfft(spectrum, n=8).square().mean() + spectrum.abs().mean()


class Words(nn.Module):
    """An embedding of some kind, and a linear layer."""

    def __init__(self, embedding: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.linear = nn.Linear(8, 4)

    def forward(self, *words: Any) -> Any:
        return self.linear(self.embedding(*words)).square().mean()


class Sequence(nn.Module):
    """A recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, data: Any) -> Any:
        return self.layer(data)[0].square().mean()


def cases(dtype: torch.dtype) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Name -> module and inputs."""
    data, words = torch.randn(6, 8, dtype=dtype), torch.randint(0, 32, (6, 4))
    starts = torch.arange(0, 24, 4)
    return {
        "part": (Both(lambda _, x: torch.cat([x, x[:0]])), (data,)),
        "input": (Both(lambda _, x, y: torch.cat([x, y])), (data, data[:0])),
        "inside": (Both(lambda _, x: x + x[:0].sum()), (data,)),
        "spectrum": (Spectrum(), (data,)),
        "bag": (Words(nn.EmbeddingBag(32, 8, mode="sum")), (words,)),
        "bag of offsets": (Words(nn.EmbeddingBag(32, 8, mode="max")), (words.reshape(-1), starts)),
        "sparse": (Words(nn.Embedding(32, 8, sparse=True)), (words,)),
        "sparse bag": (Words(nn.EmbeddingBag(32, 8, mode="sum", sparse=True)), (words,)),
        "lstm": (Sequence(nn.LSTM(8, 6, 2, bidirectional=True)), (data.reshape(2, 3, 8),)),
    }  # fmt: skip


def alike(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for name, (whole, inputs) in cases(dtype).items():
        if dtype == torch.float64:
            whole.to(torch.complex128 if name == "spectrum" else dtype)
        parts = tofu.torch.parallelize(copy.deepcopy(whole), (3,), inputs)
        losses = whole(*inputs), parts(*inputs)
        for loss in losses:
            loss.backward()
        assert difference(losses[0].detach(), losses[1].detach()) <= LOSS[dtype], name
        for one, other in zip(whole.parameters(), parts.parameters()):
            gradient = one.grad.to_dense() if one.grad.is_sparse else one.grad
            assert difference(gradient, other.grad.full_tensor()) <= GRADIENT[dtype], name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_tensors_are_as_in_plain_torch(dtype) -> None:
    on_ranks(3, alike, dtype)


class Two(nn.Module):
    """Returns an empty tensor, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, data: Any) -> Any:
        return self.linear(data), data[:, :0]


def empty_results() -> None:
    parts = tofu.torch.parallelize(Two(), (2,), (torch.randn(4, 8),))
    result = parts(torch.ones(4, 8))[1]
    assert result.shape == (4, 0) and result.dtype == torch.float32


def test_a_result_may_be_empty() -> None:
    on_ranks(2, empty_results)


class Packed(nn.Module):
    """A recurrent layer over sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(8, 6, batch_first=True)

    def forward(self, data: Any) -> Any:
        data = data.unsqueeze(0).expand(2, -1, -1)
        packed = nn.utils.rnn.pack_padded_sequence(data, torch.tensor([4, 2]), batch_first=True)
        return self.layer(packed)[0].data.square().mean()


class Pyramid(nn.Module):
    """Features of several sizes by name, as the backbones of torchvision's detection models."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, padding=1)
        self.across, self.out = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, images: Any) -> Any:
        low = self.low(images).relu()
        high = self.high(low).relu()
        up = nn.functional.interpolate(high, scale_factor=2.0)
        return {"0": self.out(self.across(low) + up), "pool": high}


class Detector(nn.Module):
    """Keeps the places where the score is high, as torchvision's detection models do."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Pyramid()
        self.score = nn.Conv2d(8, 1, 1)

    def forward(self, images: Any) -> Any:
        score = self.score(self.backbone(images)["0"]).sigmoid().flatten()
        return score[torch.where(score > 0.5)[0]]


def backbone() -> None:
    torch.manual_seed(0)
    whole, images = Pyramid(), torch.randn(3, 3, 8, 8)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (dist.get_world_size(),), (images,))
    found = [sum(x.square().mean() for x in model(images).values()) for model in (whole, parts)]
    assert difference(*(loss.detach() for loss in found)) <= LOSS[torch.float32]
    for loss in found:
        loss.backward()
    for one, other in zip(whole.parameters(), parts.parameters()):
        assert difference(one.grad, other.grad.full_tensor()) <= GRADIENT[torch.float32]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_backbone_of_a_detection_model_is_planned(ranks) -> None:
    on_ranks(ranks, backbone)


def test_a_detection_model_is_refused_with_the_line_that_depends_on_data() -> None:
    with pytest.raises(GraphError) as caught:
        trace(Detector(), (torch.randn(2, 3, 8, 8),))
    text = str(caught.value)
    assert re.search(
        r"special_tensors\.py:\d+: return score\[torch.where\(score > 0.5\)\[0\]\]: ", text
    )
    assert text.endswith("do not depend on the values of tensors") and "\n" not in text


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Packed(), r"lengths|_packed_sequence|cannot be traced"),
        (Words(nn.Embedding(32, 8, max_norm=1.0)), "changes embedding.weight in place; .*max_norm"),
        (Both(lambda _, x: x.to_sparse().to_dense()), "makes a sparse tensor|cannot be traced"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(module, said) -> None:
    data = torch.randint(0, 32, (4,)) if isinstance(module, Words) else torch.randn(4, 8)
    with pytest.raises(GraphError) as caught:
        trace(module, (data,))
    assert re.search(said, str(caught.value)) and "\n" not in str(caught.value)


# --- torch.compile --------------------------------------------------------------------------


def compiled() -> None:
    torch.manual_seed(0)
    whole, data = Both(lambda _, x: x), torch.randn(4, 8)
    with pytest.raises(ConfigError, match="give the module itself"):
        tofu.torch.parallelize(torch.compile(copy.deepcopy(whole), backend="eager"), (2,), (data,))
    before = copy.deepcopy(whole)
    before.linear.compile(backend="eager")
    after = tofu.torch.parallelize(copy.deepcopy(whole), (2,), (data,))
    for parts in (
        tofu.torch.parallelize(before, (2,), (data,)),
        torch.compile(after, backend="eager"),
    ):
        loss = parts(data)
        loss.backward()
        assert difference(whole(data).detach(), loss.detach()) <= LOSS[torch.float32]


def test_torch_compile_before_and_after_is_right_or_refused() -> None:
    on_ranks(2, compiled)

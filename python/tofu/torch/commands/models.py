"""Small modules that compute a loss, with example inputs: for verification and tests.

``MODELS["gpt"](torch.float64)`` makes a module and its inputs. Together the modules call every
family of operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

import torch
from torch import nn
from torch.nn import functional as F

__all__ = ["MODELS", "SMALL"]

Made = tuple[nn.Module, tuple[Any, ...]]


class _Mlp(nn.Module):
    """Linear layers with a batch norm and a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.batch = nn.BatchNorm1d(32)
        self.layer = nn.LayerNorm(32)
        self.second = nn.Linear(32, 8)

    def forward(self, data: Any, label: Any) -> Any:
        hidden = self.layer(torch.relu(self.batch(self.first(data))))
        return F.cross_entropy(self.second(hidden), label)


class _Gpt(nn.Module):
    """A decoder with causal attention."""

    def __init__(self, words: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, words: Any, label: Any) -> Any:
        batch, length = words.shape
        hidden = self.words(words) + self.places[:length]
        for block in self.blocks:
            parts = block["qkv"](block["norm"](hidden)).split(hidden.shape[-1], -1)
            q, k, v = (x.view(batch, length, self.heads, -1).transpose(1, 2) for x in parts)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            hidden = hidden + block["out"](mixed.transpose(1, 2).reshape(batch, length, -1))
            hidden = hidden + block["down"](F.gelu(block["up"](block["norm2"](hidden))))
        scores = self.head(self.norm(hidden))
        return F.cross_entropy(scores.flatten(0, 1), label.flatten())


class _Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.main = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inside != out:
            short = nn.Conv2d(inside, out, 1, stride, bias=False)
            self.short = nn.Sequential(short, nn.BatchNorm2d(out))

    def forward(self, data: Any) -> Any:
        return F.relu(self.main(data) + self.short(data))


class _ResNet(nn.Module):
    """ResNet of bottlenecks; ResNet-50 has (3, 4, 6, 3) of width 64."""

    def __init__(self, blocks: tuple[int, ...], width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        layers: list[nn.Module] = []
        inside = width
        for stage, count in enumerate(blocks):
            for k in range(count):
                inner = width * 2**stage
                layers.append(_Bottleneck(inside, inner, 2 if stage and not k else 1))
                inside = 4 * inner
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(inside, classes)

    def forward(self, data: Any, label: Any) -> Any:
        hidden = F.adaptive_avg_pool2d(self.body(self.stem(data)), 1).flatten(1)
        return F.cross_entropy(self.head(hidden), label)


class _Unet(nn.Module):
    """A U-Net with group norms, depthwise and transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Conv2d(24, 4, 1)

    def forward(self, data: Any, target: Any) -> Any:
        high = F.silu(self.norm(self.first(data)))
        low = self.grouped(F.leaky_relu(self.depthwise(F.silu(self.down(high)))))
        wide = F.interpolate(low, scale_factor=2.0, mode="nearest")[:, :8]
        smooth = F.interpolate(F.avg_pool2d(high, 2), scale_factor=2.0, mode="bilinear")
        joined = torch.cat([high, self.up(low) + wide, smooth], 1)
        return F.mse_loss(self.last(joined), target)


class _Lstm(nn.Module):
    """A two-layer LSTM over a sequence of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.lstm = nn.LSTM(16, 16, 2, batch_first=True)
        self.gru = nn.GRU(16, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 32)

    def forward(self, words: Any, label: Any) -> Any:
        hidden = self.gru(self.lstm(self.words(words))[0])[0]
        return F.cross_entropy(self.head(hidden).transpose(1, 2), label)


class _Transformer(nn.Module):
    """An encoder and a decoder with masks."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 32, 0.0, batch_first=True)
        self.head = nn.Linear(16, 32)

    def forward(self, source: Any, target: Any, label: Any) -> Any:
        size = target.shape[1]
        mask = torch.triu(torch.full((size, size), float("-inf"), dtype=self.head.weight.dtype), 1)
        words = self.words(source), self.words(target)
        hidden = self.body(*words, tgt_mask=mask, tgt_is_causal=True)
        return F.cross_entropy(self.head(hidden).flatten(0, 1), label.flatten())


class _Llama(nn.Module):
    """A decoder with rotary embeddings, fewer key heads than query heads, and gated layers."""

    def __init__(
        self, words: int, width: int, heads: int, groups: int, inner: int, layers: int
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.words = nn.Embedding(words, width)
        small = groups * self.size
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.RMSNorm(width),
                    "q": nn.Linear(width, width, bias=False),
                    "k": nn.Linear(width, small, bias=False),
                    "v": nn.Linear(width, small, bias=False),
                    "out": nn.Linear(width, width, bias=False),
                    "norm2": nn.RMSNorm(width),
                    "gate": nn.Linear(width, inner, bias=False),
                    "up": nn.Linear(width, inner, bias=False),
                    "down": nn.Linear(inner, width, bias=False),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def _angles(self, length: int, dtype: torch.dtype) -> tuple[Any, Any]:
        half = self.size // 2
        rates = 10000 ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def _rotated(self, x: Any, cos: Any, sin: Any) -> Any:
        one, other = x.chunk(2, -1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)

    def _attended(self, block: Any, hidden: Any, cos: Any, sin: Any) -> Any:
        batch, length, width = hidden.shape
        split = (batch, length, -1, self.size)
        q, k, v = (block[name](hidden).view(split).transpose(1, 2) for name in "qkv")
        q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
        k, v = (x.repeat_interleave(self.heads // self.groups, 1) for x in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return block["out"](mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, words: Any, label: Any) -> Any:
        hidden = self.words(words)
        cos, sin = self._angles(words.shape[1], hidden.dtype)
        for block in self.blocks:
            hidden = hidden + self._attended(block, block["norm"](hidden), cos, sin)
            inner = block["norm2"](hidden)
            hidden = hidden + block["down"](F.silu(block["gate"](inner)) * block["up"](inner))
        scores = self.head(self.norm(hidden))
        return F.cross_entropy(scores.flatten(0, 1), label.flatten())


class _Functions(nn.Module):
    """Functions that the other modules leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(4, 8))
        self.vector = nn.Parameter(torch.randn(8))

    def forward(self, data: Any, places: Any) -> Any:
        x = data * self.vector
        pieces = [
            F.softplus(x), F.elu(x), F.hardtanh(x), F.hardswish(x), F.mish(x), x.clamp(-1, 1),
            x.abs().sqrt(), torch.exp(-x.square()), torch.log1p(x.square()), torch.sin(x),
            torch.where(x > 0, x, 2 * x), torch.maximum(x, data), F.logsigmoid(x), x.tril(),
            torch.cumsum(x, 1), x.flip(0), x.roll(1, 0), torch.stack([x, data], 0).sum(0),
            x.gather(1, places), x.index_select(0, places[0] % 4), x[places[0] % 4],
            torch.zeros_like(x).scatter_add(1, places, x), F.pad(x, (1, 1))[:, 1:-1],
            x.masked_fill(x > 1, 0.0), torch.softmax(x, 0), F.glu(torch.cat([x, data], 1), 1),
            x.sort(1).values, x.repeat(2, 1)[:4], x.unbind(0)[0].expand(4, 8),
            x.pow(3) / (1 + data.square()), F.prelu(x, self.vector[:1]), x.amax(1, keepdim=True),
        ]  # fmt: skip
        total = sum(piece.sum(0).mean() for piece in pieces[:19])
        total = total + sum((piece * piece).sum() for piece in pieces[19:])
        total = total + x.var(0).sum() + x.std() + x.logsumexp(1).sum() + x.topk(2, 1).values.sum()
        total = total + torch.addmv(x.sum(1), self.matrix, self.vector).sum()
        total = total + F.smooth_l1_loss(x, data) + F.huber_loss(x, data) + x.norm()
        return total + F.binary_cross_entropy_with_logits(x, torch.sigmoid(data).detach())


def _mlp(dtype: torch.dtype) -> Made:
    return _Mlp().to(dtype), (torch.randn(8, 16, dtype=dtype), torch.randint(0, 8, (8,)))


def _gpt(dtype: torch.dtype) -> Made:
    words, label = torch.randint(0, 64, (8, 16)), torch.randint(0, 64, (8, 16))
    return _Gpt(64, 16, 32, 4, 2).to(dtype), (words, label)


def _llama(dtype: torch.dtype) -> Made:
    words, label = torch.randint(0, 64, (8, 16)), torch.randint(0, 64, (8, 16))
    return _Llama(64, 32, 4, 2, 48, 2).to(dtype), (words, label)


def _resnet(dtype: torch.dtype) -> Made:
    data, label = torch.randn(8, 3, 32, 32, dtype=dtype), torch.randint(0, 8, (8,))
    return _ResNet((1, 1), 8, 8).to(dtype), (data, label)


def _unet(dtype: torch.dtype) -> Made:
    shape = (4, 3, 8, 8), (4, 4, 8, 8)
    return _Unet().to(dtype), tuple(torch.randn(s, dtype=dtype) for s in shape)


def _lstm(dtype: torch.dtype) -> Made:
    words, label = torch.randint(0, 32, (8, 4)), torch.randint(0, 32, (8, 4))
    return _Lstm().to(dtype), (words, label)


def _transformer(dtype: torch.dtype) -> Made:
    texts = tuple(torch.randint(0, 32, (8, size)) for size in (6, 4, 4))
    return _Transformer().to(dtype), texts


def _functions(dtype: torch.dtype) -> Made:
    return _Functions().to(dtype), (torch.randn(4, 8, dtype=dtype), torch.randint(0, 8, (4, 8)))


def _resnet50(dtype: torch.dtype) -> Made:
    data, label = torch.randn(32, 3, 224, 224, dtype=dtype), torch.randint(0, 1000, (32,))
    return _ResNet((3, 4, 6, 3), 64, 1000).to(dtype), (data, label)


def _gpt2(dtype: torch.dtype) -> Made:
    words, label = torch.randint(0, 50257, (8, 1024)), torch.randint(0, 50257, (8, 1024))
    return _Gpt(50257, 1024, 768, 12, 12).to(dtype), (words, label)


def _long_context(dtype: torch.dtype) -> Made:
    words, label = torch.zeros(2, 32768, dtype=torch.long), torch.zeros(2, 32768, dtype=torch.long)
    return _Gpt(32000, 32768, 1024, 16, 12).to(dtype), (words, label)


def _llama_8b(dtype: torch.dtype) -> Made:
    words, label = torch.zeros(64, 2048, dtype=torch.long), torch.zeros(64, 2048, dtype=torch.long)
    return _Llama(128256, 4096, 32, 8, 14336, 32).to(dtype), (words, label)


# name -> function from a type of parameters to a module and its inputs. The last four modules are
# of real size; make them under torch.device("meta").
MODELS: Mapping[str, Callable[[torch.dtype], Made]] = {
    "mlp": _mlp,
    "gpt": _gpt,
    "llama": _llama,
    "resnet": _resnet,
    "unet": _unet,
    "lstm": _lstm,
    "transformer": _transformer,
    "functions": _functions,
    "resnet-50": _resnet50,
    "gpt-2": _gpt2,
    "long-context": _long_context,
    "llama-8b": _llama_8b,
}

_LARGE = ("resnet-50", "gpt-2", "long-context", "llama-8b")
SMALL = tuple(name for name in MODELS if name not in _LARGE)

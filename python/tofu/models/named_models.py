"""The models by name: their sizes, shapes of inputs and batch sizes.

This module is data only; building a model imports MXNet and the model's blocks.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from tofu.errors import ConfigError

__all__ = ["LABEL", "MODELS", "Model", "Size", "find", "make_rnn", "make_wresnet"]

Shape = tuple[int, ...]

LABEL = "label"

# Bottlenecks per stage by depth, as in He et al.'s "Deep Residual Learning", Table 1.
_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_STEPS = 20
_FEATURES = 128
_LARGEST = 2**20  # of any option; anything larger is a typo
_VGG16 = ((2, 2, 3, 3, 3), (64, 128, 256, 512, 512))


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a model.

    Attributes:
        options: keyword arguments of the factory.
        inputs: name to shape without the batch, in the order of the block's arguments,
            then the label of the loss.
    """

    options: Mapping[str, Any]
    inputs: Mapping[str, Shape]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that can be built.

    Attributes:
        name: the name to find it by.
        factory: "module:callable", relative to this package; it returns a HybridBlock.
        batch_size: the default batch size.
        full: its size.
        reduced: the same structure with fewer and smaller layers, for tests.
    """

    name: str
    factory: str
    batch_size: int
    full: Size
    reduced: Size


def find(name: str) -> Model:
    """Return the model of that name. Raises ConfigError if there is none."""
    model = MODELS.get(name.lower())
    if model is None:
        near = difflib.get_close_matches(name.lower(), MODELS, n=3)
        advice = f"did you mean {', '.join(near)}?" if near else "tofu models lists them"
        raise ConfigError(f"no model {name!r}; {advice}")
    return model


def make_wresnet(
    depth: int, width: int, *, image: int = 224, classes: int = 1000, batch_size: int = 32
) -> Model:
    """WResNet-`depth`-`width` for square images.

    Raises ConfigError: there is no such depth, or a size is out of range.
    """
    if depth not in _BLOCKS:
        raise ConfigError(f"depth {depth}: expected one of {', '.join(map(str, _BLOCKS))}")
    _check(width=width, image=image, classes=classes, batch_size=batch_size)
    return Model(
        f"wresnet-{depth}-{width}",
        "wresnet:WResNet",
        batch_size,
        Size({"blocks": _BLOCKS[depth], "width": width, "classes": classes}, _image(image)),
        Size({"blocks": (2, 1), "width": 1, "classes": 16}, _image(32)),
    )


def make_rnn(layers: int, hidden: int, *, steps: int = _STEPS, batch_size: int = 512) -> Model:
    """RNN-`layers`-`hidden`, unrolled over `steps` steps.

    Raises ConfigError: a size is out of range.
    """
    _check(layers=layers, hidden=hidden, steps=steps, batch_size=batch_size)
    units = str(hidden) if hidden % 1024 else f"{hidden // 1024}k"
    return Model(
        f"rnn-{layers}-{units}",
        "rnn:LstmStack",
        batch_size,
        _rnn(layers, hidden, features=_FEATURES, steps=steps),
        _rnn(2, 32, features=16, steps=3),
    )


def _check(**sizes: int) -> None:
    for name, value in sizes.items():
        if not 1 <= value <= _LARGEST:
            raise ConfigError(f"{name.replace('_', ' ')} {value}: expected 1 to {_LARGEST}")


def _wresnets() -> Iterator[Model]:
    for depth in _BLOCKS:
        for width in (4, 6, 8, 10):
            # The largest and the smallest model's batch sizes are the paper's (section 7.2).
            batch_size = {(152, 10): 8, (50, 4): 128}.get((depth, width), 32)
            yield make_wresnet(depth, width, batch_size=batch_size)


def _rnns() -> Iterator[Model]:
    # Figure 10 adds the network of four layers to those of section 7.1.
    for layers, thousands in [(4, 8), *((n, k) for n in (6, 8, 10) for k in (4, 6, 8))]:
        batch_size = 128 if (layers, thousands) == (10, 8) else 512
        yield make_rnn(layers, 1024 * thousands, batch_size=batch_size)


def _rnn(layers: int, hidden: int, *, features: int, steps: int) -> Size:
    options = {"layers": layers, "hidden": hidden, "steps": steps, "classes": features}
    return Size(options, {"data": (steps, features), LABEL: (steps,)})


def _image(pixels: int) -> dict[str, Shape]:
    return {"data": (3, pixels, pixels), LABEL: ()}


def _transformer(layers: int, units: int, positions: int, vocabulary: int) -> Size:
    tokens = (positions,)
    return Size(
        {**_attention(layers, units, positions, vocabulary), "hidden": 4 * units},
        {"source": tokens, "mask": tokens, "target": tokens, LABEL: tokens},
    )


def _gpt(layers: int, units: int, positions: int, vocabulary: int) -> Size:
    tokens = (positions,)
    options = _attention(layers, units, positions, vocabulary)
    return Size(options, {"tokens": tokens, LABEL: tokens})


def _attention(layers: int, units: int, positions: int, vocabulary: int) -> dict[str, int]:
    return {
        "layers": layers,
        "units": units,
        "heads": units // 64 if units >= 64 else 8,
        "positions": positions,
        "vocabulary": vocabulary,
    }


def _others() -> Iterator[Model]:
    images = _image(224)
    yield Model(
        "alexnet", "vision:alexnet", 128, Size({}, images), Size({"classes": 16}, _image(96))
    )
    yield Model(
        "vgg-16",
        "vision:vgg",
        32,
        Size({"layers": _VGG16[0], "filters": _VGG16[1]}, images),
        Size({"layers": (1, 2), "filters": (8, 16), "classes": 16}, _image(32)),
    )
    yield Model(
        "densenet-121",
        "vision:densenet",
        32,
        Size({"blocks": (6, 12, 24, 16)}, images),
        # DenseNet ends in a pooling of 7x7 pixels, so the image keeps its size.
        Size({"blocks": (2, 2, 1, 1), "growth": 8, "classes": 16}, images),
    )
    yield Model(
        "mlp",
        "mlp:Mlp",
        512,
        Size({"layers": 4, "hidden": 8192, "classes": 1024}, {"data": (8192,), LABEL: ()}),
        Size({"layers": 2, "hidden": 32, "classes": 16}, {"data": (24,), LABEL: ()}),
    )
    yield Model(
        "transformer",
        "transformer:Transformer",
        64,
        _transformer(6, 512, 128, 32768),
        _transformer(2, 32, 8, 48),
    )
    yield Model("gpt-24", "transformer:Gpt", 8, _gpt(24, 1024, 1024, 50304), _gpt(2, 32, 8, 48))


MODELS: Mapping[str, Model] = {
    model.name: model for group in (_wresnets(), _rnns(), _others()) for model in group
}

"""Adapters of low rank beside the linear layers of a model, as the package peft makes them.

    adapt(model, read_lora("16"))      # or a file, adapter_config.json

The model's own parameters do not train; a linear layer with a weight of (out, in) also gets two
that do, of (rank, in) and (out, rank).
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Union

import torch
from torch import nn

from tofu.errors import ConfigError

__all__ = ["Lora", "adapt", "read_lora"]

_ALL = "all-linear"
# Fields of adapter_config.json that change what trains, with the values that change nothing.
_UNCOUNTED: dict[str, tuple[Any, ...]] = {
    "bias": (None, "none"), "layers_to_transform": (None,), "modules_to_save": (None, []),
    "rank_pattern": (None, {}), "use_dora": (None, False),
}  # fmt: skip


class Lora(NamedTuple):
    """Which layers get adapters.

    Attributes:
        rank: of the adapters.
        targets: as peft's target_modules: the ends of layers' names, a regular expression of
            whole names, or "all-linear": all linear layers but the one that predicts words.
        where: the text of the option, for errors.
    """

    rank: int
    targets: Union[str, Sequence[str]]
    where: str

    def fits(self, name: str) -> bool:
        """Whether the layer of this name gets adapters, if it is linear and not the last."""
        if isinstance(self.targets, str):
            return self.targets == _ALL or re.fullmatch(self.targets, name) is not None
        return any(name == each or name.endswith(f".{each}") for each in self.targets)


def read_lora(text: str) -> Lora:
    """Read a rank, for adapters of all linear layers, or the name of an adapter_config.json.

    Raises:
        ConfigError: it is neither, or the file asks for more than adapters of linear layers.
    """
    where = f"--lora {text}"
    if text.isdecimal() and int(text) > 0:
        return Lora(int(text), _ALL, where)
    try:
        fields = json.loads(Path(text).read_text(encoding="utf-8"))
        rank, targets = int(fields["r"]), fields["target_modules"]
        fits = rank > 0 and isinstance(targets, (str, list))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{where}: neither a rank nor the adapter_config.json of peft ({error!r}); expected "
            "such as 16"
        ) from error
    if not fits:
        raise ConfigError(f'{where}: expected "r" above 0, and "target_modules" as peft saves it')
    for name, neutral in _UNCOUNTED.items():
        if fields.get(name) not in neutral:
            raise ConfigError(
                f'{where}: "{name}" is {fields[name]!r}, which is not counted; write a function '
                "that returns peft's model and its inputs, and give MODULE:FUNCTION"
            )
    return Lora(rank, targets, where)


def adapt(model: Any, lora: Lora) -> None:
    """Freeze a model of transformers, and add adapters to its linear layers.

    Raises:
        ConfigError: no linear layer has a name that fits.
    """
    model.requires_grad_(False)
    last = model.get_output_embeddings()
    found = [
        name
        for name, layer in model.named_modules()
        if _is_linear(layer) and (layer is not last or lora.targets != _ALL) and lora.fits(name)
    ]
    if not found:
        raise ConfigError(f"{lora.where}: no linear layer's name fits {lora.targets}")
    for name in found:
        holder, _, own = name.rpartition(".")
        parent = model.get_submodule(holder)
        setattr(parent, own, _Adapted(parent.get_submodule(own), lora.rank))


def _is_linear(layer: nn.Module) -> bool:
    utils: Any = importlib.import_module("transformers.pytorch_utils")
    return isinstance(layer, (nn.Linear, utils.Conv1D))  # GPT-2's, with a weight of (in, out)


class _Adapted(nn.Module):
    """A layer, and two that train beside it. Dropout and the scale take no memory."""

    def __init__(self, base_layer: Any, rank: int) -> None:
        super().__init__()
        weight = base_layer.weight
        into, out = weight.shape if not isinstance(base_layer, nn.Linear) else weight.shape[::-1]
        options: dict[str, Any] = {"bias": False, "dtype": weight.dtype, "device": weight.device}
        self.base_layer = base_layer
        self.lora_A = nn.Linear(into, rank, **options)
        self.lora_B = nn.Linear(rank, out, **options)

    def forward(self, value: torch.Tensor) -> Any:
        """The layer's result, and the adapters' on top."""
        return self.base_layer(value) + self.lora_B(self.lora_A(value))

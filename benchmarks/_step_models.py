"""The models of ``torch_step.py``: Hugging Face's, with random weights, small for 2 cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

__all__ = ["CASES", "Case", "Loss"]


class Loss(nn.Module):
    """A model that returns its loss alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        """The mean loss."""
        return self.model(**inputs).loss


@dataclass(frozen=True)
class Case:
    """A model and a batch.

    Attributes:
        config: its configuration's class.
        model: its class.
        batch: samples of a step.
        options: of the configuration.
        inputs: makes inputs from the number of samples.
        blocks: classes of the modules that FSDP2 shards one by one.
        columns: layers whose outputs tensor parallelism cuts; empty: it has no plan for the model.
        rows: layers whose inputs it cuts.
    """

    config: str
    model: str
    batch: int
    options: Mapping[str, Any]
    inputs: Callable[[int], dict[str, Any]]
    blocks: tuple[str, ...]
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    styles: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        styles: dict[str, Any] = {name: ColwiseParallel() for name in self.columns}
        object.__setattr__(self, "styles", styles | {name: RowwiseParallel() for name in self.rows})

    def made(self, small: bool) -> tuple[nn.Module, dict[str, Any]]:
        """The model, alike on all ranks, and its inputs; `small`: one thin layer."""
        torch.manual_seed(0)
        options = {**self.options, **(_SMALL if small and self.columns else {})}
        config = getattr(transformers, self.config)(**options)
        config.use_cache = False
        model = Loss(getattr(transformers, self.model)(config)).train()
        return model, self.inputs(self.batch)


_WORDS, _WIDTH, _LAYERS, _LENGTH = 2048, 256, 4, 128
_SMALL = {"num_hidden_layers": 1}
_LLAMA = {
    "vocab_size": _WORDS, "hidden_size": _WIDTH, "num_hidden_layers": _LAYERS,
    "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 704,
}  # fmt: skip
_WHOLE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BERT = {
    "hidden_size": _WIDTH, "num_hidden_layers": _LAYERS, "num_attention_heads": 8,
    "intermediate_size": 4 * _WIDTH, **_WHOLE,
}  # fmt: skip
_ATTENTION = tuple(f"self_attn.{name}_proj" for name in "qkv")


def _words(batch: int) -> dict[str, Any]:
    words = torch.randint(3, _WORDS, (batch, _LENGTH))
    return {"input_ids": words, "labels": words}


def _images(batch: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, 64, 64), "labels": torch.arange(batch) % 16}


def _llama(batch: int) -> Case:
    return Case(
        "LlamaConfig", "LlamaForCausalLM", batch, _LLAMA, _words, ("LlamaDecoderLayer",),
        columns=(*_ATTENTION, "mlp.gate_proj", "mlp.up_proj"),
        rows=("self_attn.o_proj", "mlp.down_proj"),
    )  # fmt: skip


CASES: Mapping[str, Case] = {
    "llama, batch 8": _llama(8),
    "llama, batch 32": _llama(32),
    "gpt-2": Case(
        "GPT2Config", "GPT2LMHeadModel", 8,
        {"vocab_size": _WORDS, "n_embd": _WIDTH, "n_layer": _LAYERS, "n_head": 8,
         "n_positions": _LENGTH, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        _words, ("GPT2Block",),
    ),
    "bert": Case(
        "BertConfig", "BertForMaskedLM", 8, {"vocab_size": _WORDS, **_BERT}, _words,
        ("BertLayer",),
        columns=(*(f"attention.self.{name}" for name in ("query", "key", "value")),
                 "intermediate.dense"),
        rows=("attention.output.dense", "output.dense"),
    ),
    "vit": Case(
        "ViTConfig", "ViTForImageClassification", 16,
        {"image_size": 64, "patch_size": 8, "num_labels": 16, **_BERT}, _images, ("ViTLayer",),
        columns=(*(f"attention.{name}_proj" for name in "qkv"), "mlp.fc1"),
        rows=("attention.o_proj", "mlp.fc2"),
    ),
    "resnet-50": Case(
        "ResNetConfig", "ResNetForImageClassification", 16, {"num_labels": 16}, _images,
        ("ResNetBottleNeckLayer",),
    ),
    "convnext": Case(
        "ConvNextConfig", "ConvNextForImageClassification", 16,
        {"hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 6, 2], "num_labels": 16}, _images,
        ("ConvNextLayer",),
    ),
    "mixtral": Case(
        "MixtralConfig", "MixtralForCausalLM", 8,
        {**_LLAMA, "num_hidden_layers": 2, "num_local_experts": 4}, _words,
        ("MixtralDecoderLayer",), columns=_ATTENTION, rows=("self_attn.o_proj",),
    ),
}  # fmt: skip

"""The models of ``torch_step.py``: 23 of Hugging Face's and two of tofu's, small for 2 cores.

They are those of ``torch_models.py``, larger, with random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from tofu.torch.commands.models import MODELS

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
        config: its configuration's class; "": the model is one of tofu's.
        model: its class, or its name.
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
        if not self.config:
            return MODELS[self.model](torch.float32)[0].train(), self.inputs(self.batch)
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
# Options of a text model that its configuration does not know are kept as attributes.
_TEXT = {
    "vocab_size": _WORDS, "hidden_size": _WIDTH, "num_hidden_layers": _LAYERS,
    "num_attention_heads": 8, "intermediate_size": 4 * _WIDTH,
    "max_position_embeddings": 2 * _LENGTH, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    "dropout": 0.0, "dropout_rate": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "activation_dropout": 0.0, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, **_WHOLE,
}  # fmt: skip
_KEYS = {"num_key_value_heads": 4}
_ATTENTION = tuple(f"self_attn.{name}_proj" for name in "qkv")


def _words(batch: int) -> dict[str, Any]:
    words = torch.randint(3, _WORDS, (batch, _LENGTH))
    return {"input_ids": words, "labels": words}


def _images(batch: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, 64, 64), "labels": torch.arange(batch) % 16}


def _sounds(batch: int) -> dict[str, Any]:
    return {"input_values": torch.randn(batch, 4000), "labels": torch.arange(batch) % 2}


def _features(batch: int) -> dict[str, Any]:
    labels = torch.randint(3, _WORDS, (batch, 32))
    return {"input_features": torch.randn(batch, 16, 2 * _LENGTH), "labels": labels}


def _few_words(batch: int) -> dict[str, Any]:
    return {name: value[:, :16] for name, value in _words(batch).items()}


def _targets(batch: int) -> dict[str, Any]:
    return {"data": torch.randn(batch, 3, 64, 64), "target": torch.randn(batch, 4, 64, 64)}


def _letters(batch: int) -> dict[str, Any]:
    words = torch.randint(0, 32, (batch, 32))
    return {"words": words, "label": words}


def _text(
    config: str, model: str, block: str, options: Mapping[str, Any], inputs: Any = _words
) -> Case:
    return Case(config, model, 8, {**_TEXT, **options}, inputs, (block,))


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
    "gpt_neox": _text("GPTNeoXConfig", "GPTNeoXForCausalLM", "GPTNeoXLayer", {}),
    "opt": _text("OPTConfig", "OPTForCausalLM", "OPTDecoderLayer",
                 {"ffn_dim": 4 * _WIDTH, "word_embed_proj_dim": _WIDTH}),
    "mistral": _text("MistralConfig", "MistralForCausalLM", "MistralDecoderLayer", _KEYS),
    "qwen2": _text("Qwen2Config", "Qwen2ForCausalLM", "Qwen2DecoderLayer", _KEYS),
    "gemma": _text("GemmaConfig", "GemmaForCausalLM", "GemmaDecoderLayer",
                   {**_KEYS, "head_dim": 32}),
    "phi": _text("PhiConfig", "PhiForCausalLM", "PhiDecoderLayer", {}),
    "roberta": _text("RobertaConfig", "RobertaForMaskedLM", "RobertaLayer", {}),
    "electra": _text("ElectraConfig", "ElectraForMaskedLM", "ElectraLayer",
                     {"embedding_size": _WIDTH // 2}),
    "distilbert": _text("DistilBertConfig", "DistilBertForMaskedLM", "TransformerBlock",
                        {"dim": _WIDTH, "n_layers": _LAYERS, "n_heads": 8,
                         "hidden_dim": 4 * _WIDTH}),
    "albert": _text("AlbertConfig", "AlbertForMaskedLM", "AlbertLayer",
                    {"embedding_size": _WIDTH // 2, "classifier_dropout_prob": 0.0}),
    "t5": _text("T5Config", "T5ForConditionalGeneration", "T5Block",
                {"d_model": _WIDTH, "d_kv": 32, "d_ff": 4 * _WIDTH, "num_layers": 2,
                 "num_heads": 8, "decoder_start_token_id": 0}),
    "mamba": _text("MambaConfig", "MambaForCausalLM", "MambaBlock",
                   {"state_size": 8, "expand": 2, "num_hidden_layers": 2}, _few_words),
    "deit": Case(
        "DeiTConfig", "DeiTForImageClassification", 16,
        {"image_size": 64, "patch_size": 8, "num_labels": 16, **_BERT}, _images, ("DeiTLayer",),
    ),
    "swin": Case(
        "SwinConfig", "SwinForImageClassification", 16,
        {"image_size": 64, "patch_size": 4, "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6],
         "window_size": 4, "num_labels": 16, "drop_path_rate": 0.0}, _images, ("SwinLayer",),
    ),
    "whisper": _text(
        "WhisperConfig", "WhisperForConditionalGeneration", "WhisperEncoderLayer",
        {"d_model": _WIDTH, "encoder_layers": 2, "decoder_layers": 2, "num_mel_bins": 16,
         "encoder_attention_heads": 8, "decoder_attention_heads": 8,
         "encoder_ffn_dim": 4 * _WIDTH, "decoder_ffn_dim": 4 * _WIDTH,
         "max_source_positions": _LENGTH, "max_target_positions": 32,
         "decoder_start_token_id": 1}, _features,
    ),
    "wav2vec2": _text(
        "Wav2Vec2Config", "Wav2Vec2ForSequenceClassification", "Wav2Vec2EncoderLayer",
        {"conv_dim": [64, 64], "conv_stride": [5, 4], "conv_kernel": [10, 8],
         "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
         "num_conv_pos_embedding_groups": 4, "classifier_proj_size": 64,
         "apply_spec_augment": False, "feat_proj_dropout": 0.0, "layerdrop": 0.0,
         "final_dropout": 0.0}, _sounds,
    ),
    "unet": Case("", "unet", 16, {}, _targets, ()),
    "lstm": Case("", "lstm", 16, {}, _letters, ()),
}  # fmt: skip

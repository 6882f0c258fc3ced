"""Small models of the package transformers, with random weights, that return their loss alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 32,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT2 = {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 32}
FEW_KEYS = {"num_key_value_heads": 2}
IMAGE = {"image_size": 16, "patch_size": 4, "num_channels": 3}
# Configuration, model, and options of the configuration besides SMALL.
TEXT = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", {}),
    "opt": ("OPTConfig", "OPTForCausalLM", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", FEW_KEYS),
    "mistral": ("MistralConfig", "MistralForCausalLM", FEW_KEYS),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", FEW_KEYS),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**FEW_KEYS, "head_dim": 8}),
    "phi": ("PhiConfig", "PhiForCausalLM", {}),
    "bert": ("BertConfig", "BertForMaskedLM", {}),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {}),
    "albert": ("AlbertConfig", "AlbertForMaskedLM", {"embedding_size": 16, "num_hidden_layers": 2}),
    "electra": ("ElectraConfig", "ElectraForMaskedLM", {"embedding_size": 16}),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM",
                   {"dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 48}),
    "t5": ("T5Config", "T5ForConditionalGeneration",
           {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4,
            "decoder_start_token_id": 0}),
}  # fmt: skip
IMAGES = {
    "vit": ("ViTConfig", "ViTForImageClassification", IMAGE),
    "deit": ("DeiTConfig", "DeiTForImageClassification", IMAGE),
}
NAMES = (*TEXT, *IMAGES)


class _AllInDouble(TorchFunctionMode):
    """Keeps float64 in models that compute norms, softmax and the loss in float32.

    Rounding there would hide errors of more than 1e-9, so float64 stays float64.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(torch.float64 if each is torch.float32 else each for each in args)
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


class _WithLoss(nn.Module):
    """A model that returns its loss alone."""

    def __init__(self, model: Any, name: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.name = name
        self.dtype = dtype

    def forward(self, data: Any, labels: Any) -> Any:
        if self.dtype != torch.float64:
            return self.model(**{self.name: data}, labels=labels).loss
        with _AllInDouble():
            return self.model(**{self.name: data}, labels=labels).loss


def made(
    name: str, transformers: Any, dtype: torch.dtype = torch.float32, batch: int = 8
) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model in evaluation mode, which draws no random numbers, and its inputs."""
    known: Mapping[str, Any] = {**TEXT, **IMAGES}
    config, model, options = known[name]
    settings = getattr(transformers, config)(**{**SMALL, **options})
    settings.use_cache = False
    built = getattr(transformers, model)(settings).to(dtype).eval()
    if name in TEXT:
        words = torch.randint(3, 64, (batch, 8))
        return _WithLoss(built, "input_ids", dtype), (words, words)
    images = torch.randn(batch, 3, 16, 16, dtype=dtype)
    return _WithLoss(built, "pixel_values", dtype), (images, torch.arange(batch) % 2)

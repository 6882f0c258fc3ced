"""Nearly all calls of small models of the package transformers are described, and planned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tofu.torch import plan

transformers = pytest.importorskip("transformers")

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


class WithLoss(nn.Module):
    """A model that returns its loss alone."""

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, data: Any, labels: Any) -> Any:
        return self.model(**{self.name: data}, labels=labels).loss


def made(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    config, model, options = (TEXT | IMAGES)[name]
    settings = getattr(transformers, config)(**{**SMALL, **options})
    settings.use_cache = False
    built = getattr(transformers, model)(settings)
    if name in TEXT:
        words = torch.randint(3, 64, (4, 8))
        return WithLoss(built, "input_ids"), (words, words)
    return WithLoss(built, "pixel_values"), (torch.randn(4, 3, 16, 16), torch.zeros(4).long())


@pytest.mark.parametrize("name", [*TEXT, *IMAGES])
def test_nearly_all_calls_are_described(name: str) -> None:
    found = plan(*made(name), mesh=(2, 2), name=name)
    unknown = [str(o.target) for o in found.traced.operators if str(o.target) in found.undescribed]
    assert len(unknown) <= 0.02 * len(found.traced.operators), unknown

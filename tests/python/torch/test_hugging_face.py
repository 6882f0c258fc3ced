"""Scripts with Hugging Face's models: checkpoints in the pass, more outputs, files."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from .ranks import on_ranks
from .scripts import Wrap, compare

transformers = pytest.importorskip("transformers", reason="needs transformers")


def llama(**options: Any) -> Any:
    """A small Llama."""
    sizes = {
        "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "use_cache": False,
    }  # fmt: skip
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **options}))


def words() -> dict[str, Any]:
    ids = torch.randint(0, 64, (4, 8))
    return {"input_ids": ids, "labels": ids}


def gradients(model: Any) -> dict[str, Any]:
    return {name: p.grad for name, p in model.named_parameters()}


def checkpointed(wrap: Wrap) -> dict[str, Any]:
    model, batch = llama(), words()
    model.gradient_checkpointing_enable()
    model.model.embed_tokens.requires_grad_(False)
    model = wrap(model, **batch)
    loss = model(**batch).loss
    loss.backward()
    return {"loss": loss, **gradients(model)}


def with_more_outputs(wrap: Wrap) -> dict[str, Any]:
    batch = words()
    model = wrap(llama(attn_implementation="eager"), **batch)
    result: dict[str, Any] = {}
    for step in range(2):
        made = model(**batch, output_hidden_states=True, output_attentions=True)
        found = (*made.hidden_states, *made.attentions)
        (made.loss + made.hidden_states[1].square().mean()).backward()
        result.update({f"{step} {k}": x for k, x in enumerate((made.loss, *found))})
        made = model(**batch)
        result[f"{step} without"] = made.loss
        assert made.hidden_states is None
    return {**result, **gradients(model)}


class Saved:
    """A script that saves a trained model, and loads the file without tofu."""

    def __init__(self, folder: str, tied: bool) -> None:
        self.folder, self.tied = folder, tied
        self.__qualname__ = f"saved, tied: {tied}"

    def __call__(self, wrap: Wrap) -> dict[str, Any]:
        batch = words()
        model = wrap(llama(tie_word_embeddings=self.tied), **batch)
        model(**batch).loss.backward()
        torch.optim.SGD(model.parameters(), 0.1).step()
        kind = "parts" if isinstance(model.lm_head.weight, DTensor) else "whole"
        model.save_pretrained(f"{self.folder}/{kind}")
        torch.distributed.barrier()
        again = transformers.LlamaForCausalLM.from_pretrained(f"{self.folder}/{kind}")
        return dict(again.state_dict())


def test_scripts_with_hugging_faces_models(tmp_path) -> None:
    on_ranks(
        2, compare, checkpointed, with_more_outputs,
        Saved(str(tmp_path / "one"), False), Saved(str(tmp_path / "two"), True),
    )  # fmt: skip

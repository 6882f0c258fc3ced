"""Trains a checkpoint of Hugging Face's transformers on all ranks, and saves one.

    torchrun --nproc-per-node 2 examples/torch_checkpoint.py FROM TO

FROM is a folder that ``save_pretrained`` wrote, TO the folder for the trained one. A run that was
stopped goes on from the last step, which it keeps in TO/steps: docs/tasks/hugging-face.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict as states
from transformers import AutoConfig, AutoModelForCausalLM

import tofu.torch

STEPS, BATCH, WORDS = 4, 8, 16


def batch(step: int, words: int) -> dict[str, torch.Tensor]:
    """The whole batch of a step, alike on every rank: here random words."""
    numbers = torch.Generator().manual_seed(step)
    text = torch.randint(0, words, (BATCH, WORDS), generator=numbers)
    return {"input_ids": text, "labels": text}


def distributed(folder: Path) -> Any:
    """The model of a checkpoint, of which no rank ever holds more than a tile and one file."""
    settings = AutoConfig.from_pretrained(folder)
    settings.use_cache = False
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(settings)
    model = tofu.torch.parallelize(model, (dist.get_world_size(),), batch(0, settings.vocab_size))
    missing = dict(model.named_parameters(remove_duplicate=False))
    for file in sorted(folder.glob("*.safetensors")):
        tensors = load_file(file)
        unknown = model.load_state_dict(tensors, strict=False).unexpected_keys
        if unknown:
            raise KeyError(f"{file} has {unknown[0]}, which {type(model).__name__} has not")
        loaded = {id(missing[name]) for name in tensors if name in missing}
        missing = {name: p for name, p in missing.items() if id(p) not in loaded}  # tied ones, too
    if missing:
        raise KeyError(f"{folder} has no {next(iter(missing))}")
    return model


def state(model: Any, optimizer: Any) -> dict[str, Any]:
    """The tiles of the parameters, and of the optimizer's state."""
    own, optimizers = states.get_state_dict(model, optimizer)
    return {"model": own, "optimizer": optimizers}


def resume(model: Any, optimizer: Any, folder: Path) -> int:
    """Load the last step that was kept; returns the number of the next one."""
    kept = sorted(folder.glob("*/.metadata"))  # which torch writes last
    if not kept:
        return 0
    found = state(model, optimizer)
    checkpoint.load(found, checkpoint_id=kept[-1].parent)
    states.set_state_dict(
        model, optimizer,
        model_state_dict=found["model"], optim_state_dict=found["optimizer"],
    )  # fmt: skip
    return int(kept[-1].parent.name) + 1


def train(model: Any, steps: int, folder: Path) -> list[float]:
    """Take the steps that are left, and keep each; returns their losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(resume(model, optimizer, folder), steps):
        loss = model(**batch(step, model.config.vocab_size)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        checkpoint.save(state(model, optimizer), checkpoint_id=folder / f"{step:06d}")
    return losses


def main() -> None:
    """Load, train, save and generate on all ranks of torchrun."""
    parser = argparse.ArgumentParser(description="Trains a checkpoint.")
    parser.add_argument("checkpoint", type=Path, metavar="FROM")
    parser.add_argument("folder", type=Path, metavar="TO")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    dist.init_process_group()
    model = distributed(options.checkpoint)
    losses = train(model, options.steps, options.folder / "steps")
    model.save_pretrained(options.folder)  # rank 0 writes whole tensors
    words = model.eval().generate(torch.tensor([[1, 2, 3]]), max_new_tokens=4, do_sample=False)
    if dist.get_rank() == 0:
        print("losses", *(f"{loss:.4f}" for loss in losses))
        print("words", *words[0].tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

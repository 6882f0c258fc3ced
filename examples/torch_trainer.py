"""Trains a model of Hugging Face's transformers with its Trainer, distributed by tofu.

    torchrun --nproc-per-node 2 examples/torch_trainer.py

tofu distributes one step, so every rank has to see the whole batch, and nothing else may wrap the
model. Trainer asks accelerate's state whether it is distributed: `take_for_one` answers that it is
not, so each rank loads the same batches in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from accelerate import DistributedType, PartialState
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import tofu.torch

BATCH, WORDS, STEPS = 8, 64, 4


def made() -> tuple[Any, list[dict[str, Any]]]:
    """A small model and a data set, alike on all ranks."""
    torch.manual_seed(0)
    settings = LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    texts = torch.randint(0, WORDS, (4 * BATCH, 16))
    return LlamaForCausalLM(settings), [{"input_ids": text, "labels": text} for text in texts]


def take_for_one() -> None:
    """Have accelerate take all ranks for one process; it keeps this state."""
    state = PartialState(cpu=not torch.cuda.is_available())
    vars(state).update(distributed_type=DistributedType.NO, num_processes=1)
    vars(state).update(process_index=0, local_process_index=0)


def train(model: Any, data: list[dict[str, Any]], folder: str) -> list[float]:
    """Train with Trainer; returns the losses of the steps and of the evaluation."""
    settings = TrainingArguments(
        folder, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
        max_steps=STEPS, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(), accelerator_config={"use_configured_state": True},
    )  # fmt: skip
    trainer = Trainer(model=model, args=settings, train_dataset=data, eval_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return [*losses, trainer.evaluate()["eval_loss"]]


def main() -> None:
    """Train on all ranks of torchrun."""
    dist.init_process_group()
    take_for_one()
    model, data = made()
    batch = torch.stack([each["input_ids"] for each in data[:BATCH]])
    example = {"input_ids": batch, "labels": batch}
    model = tofu.torch.parallelize(model, (dist.get_world_size(),), (), example)
    losses = train(model, data, "build/trainer")
    if dist.get_rank() == 0:
        print("losses", *(f"{loss:.4f}" for loss in losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains 25 small models of PyTorch on meshes of gloo processes, and compares with the whole model.

For each model and mesh: whether it is planned, by how much losses and gradients of two steps differ
from plain torch's (relative to the largest value, float32), the bytes that all ranks receive in a
step, and the operators that every rank computes whole. Each script changes one line: the call of
``tofu.torch.parallelize``. Times are not measured.

    python benchmarks/torch_models.py --output docs/results/torch_models.json
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch import multiprocessing as mp
from torch import nn

import tofu.torch
from tofu.torch.commands.models import MODELS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python" / "torch"))

import hugging
from _results import write_json

MESHES: tuple[tuple[int, ...], ...] = ((2,), (2, 2), (3,), (4,))
STEPS = 2
SMOKE = ("gpt2", "lstm")
# Configuration, model, its options besides hugging.SMALL, and the kind of its inputs.
MORE: Mapping[str, tuple[str, str, dict[str, Any], str]] = {
    "albert": ("AlbertConfig", "AlbertForMaskedLM", {"embedding_size": 16}, "words"),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM",
                {"num_key_value_heads": 2, "num_local_experts": 4}, "words"),
    "mamba": ("MambaConfig", "MambaForCausalLM", {"state_size": 8, "expand": 2}, "words"),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration",
                {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 16,
                 "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
                 "decoder_ffn_dim": 48, "max_source_positions": 16, "max_target_positions": 16,
                 "decoder_start_token_id": 1}, "features"),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForSequenceClassification",
                 {"conv_dim": [16, 16], "conv_stride": [5, 4], "conv_kernel": [10, 8],
                  "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
                  "num_conv_pos_embedding_groups": 4, "classifier_proj_size": 16,
                  "apply_spec_augment": False}, "sound"),
    "convnext": ("ConvNextConfig", "ConvNextForImageClassification",
                 {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]}, "images"),
    "swin": ("SwinConfig", "SwinForImageClassification",
             {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1],
              "num_heads": [2, 4], "window_size": 4}, "images"),
}  # fmt: skip
KINDS = {
    "t5": "encoder and decoder", "whisper": "audio", "wav2vec2": "audio",
    "mixtral": "mixture of experts",
    "mamba": "state space", "unet": "U-Net", "lstm": "recurrent", "resnet": "images",
    "convnext": "images", "swin": "images", "vit": "images", "deit": "images",
}  # fmt: skip


class _Loss(nn.Module):
    """A model that returns its loss alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        return self.model(**inputs).loss


def inputs_of(kind: str, batch: int) -> dict[str, Any]:
    """Inputs by name."""
    words, classes = torch.randint(3, 64, (batch, 8)), torch.arange(batch) % 2
    return {
        "words": {"input_ids": words, "labels": words},
        "features": {"input_features": torch.randn(batch, 16, 32), "labels": words},
        "sound": {"input_values": torch.randn(batch, 400), "labels": classes},
        "images": {"pixel_values": torch.randn(batch, 3, 32, 32), "labels": classes},
    }[kind]


def more(name: str, batch: int) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model of the package transformers."""
    config, model, options, kind = MORE[name]
    small = {} if kind == "images" else hugging.SMALL  # such configurations have other names
    settings = getattr(transformers, config)(**{**small, **options})
    settings.use_cache = False
    return _Loss(getattr(transformers, model)(settings).eval()), (), inputs_of(kind, batch)


def made(name: str, batch: int = 12) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A model in the mode of evaluation, which draws no random numbers, and its inputs."""
    torch.manual_seed(0)
    if name in MORE:
        return more(name, batch)
    if name in hugging.NAMES:
        model, inputs = hugging.made(name, transformers, batch=batch)
    else:
        model, inputs = MODELS[name](torch.float32)
    return model, inputs, {}


NAMES = (*hugging.NAMES, *MORE, "resnet", "unet", "lstm")


def difference(one: Any, other: Any) -> float:
    """The largest difference, relative to the largest value."""
    return float((one - other).abs().max() / (one.abs().max() + 1e-3))


def measured(name: str, mesh: tuple[int, ...]) -> dict[str, Any]:
    """Trains a model whole and on a mesh."""
    whole, args, kwargs = made(name)
    started = time.perf_counter()
    parts = tofu.torch.parallelize(copy.deepcopy(whole), mesh, args, kwargs)
    seconds = time.perf_counter() - started
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in (whole, parts)]
    losses, gradients = [], []
    for _ in range(STEPS):
        step_losses = [model(*args, **kwargs) for model in (whole, parts)]
        losses.append(difference(*(loss.detach() for loss in step_losses)))
        for loss in step_losses:
            loss.backward()
        gradients += [
            difference(parameter.grad, part.grad.full_tensor())
            for parameter, part in zip(whole.parameters(), parts.parameters())
            if parameter.grad is not None
        ]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    plan = tofu.torch.program_of(parts).plan
    return {
        "loss": max(losses), "gradient": max(gradients), "bytes": plan.received_bytes,
        "parameters": sum(each.numel() for each in whole.parameters()),
        "operators": len(plan.traced.operators), "whole": len(plan.undescribed),
        "planning_s": round(seconds, 2),
    }  # fmt: skip


def _rank(
    number: int, mesh: tuple[int, ...], meeting: str, names: tuple[str, ...], out: Any
) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    size = torch.Size(mesh).numel()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=size)
    for name in names:
        try:
            row = measured(name, mesh)
        except Exception as error:  # of a model that cannot be planned
            row = {"error": f"{type(error).__name__}: {error}"}
        if number == 0:
            out.put((name, row))
        dist.barrier()
    dist.destroy_process_group()


def on_mesh(
    mesh: tuple[int, ...], names: tuple[str, ...], take: Callable[[str, dict[str, Any]], None]
) -> None:
    """Measures models on one mesh."""
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("fork")
        out = context.SimpleQueue()
        meeting = str(Path(folder) / "meeting")
        size = torch.Size(mesh).numel()
        ranks = mp.start_processes(
            _rank, (mesh, meeting, names, out), nprocs=size, join=False, start_method="fork"
        )
        for _ in names:
            while out.empty() and not ranks.join(timeout=0.2):
                pass
            take(*out.get())
        while not ranks.join():
            pass


def lines(rows: list[dict[str, Any]]) -> list[str]:
    """A table of Markdown: a line for each model."""
    meshes = list(dict.fromkeys(tuple(row["mesh"]) for row in rows))
    names = [" x ".join(map(str, mesh)) for mesh in meshes]
    table = [
        f"| model | kind | loss | gradient | {' | '.join(f'KiB on {name}' for name in names)} | "
        "operators | whole |",
        "| --- | --- " + "| --: " * (len(meshes) + 4) + "|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        row_of = {tuple(row["mesh"]): row for row in rows if row["model"] == model}
        first = next(iter(row_of.values()))
        failed = [f"{row['mesh']}: {row['error']}" for row in row_of.values() if "error" in row]
        if failed:
            table.append(f"| {model} | {first['kind']} | {failed[0]} |")
            continue
        worst = [
            f"{max(row[kind] for row in row_of.values()):.0e}" for kind in ("loss", "gradient")
        ]
        sent = [f"{row_of[m]['bytes'] / 1024:,.0f}" if m in row_of else "" for m in meshes]
        cells = [model, first["kind"], *worst, *sent, str(first["operators"]), str(first["whole"])]
        table.append(f"| {' | '.join(cells)} |")
    return table


def main() -> None:
    """Measure all models, and write a row for each model and mesh."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--models", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--smoke", action="store_true", help="two models on one mesh")
    args = parser.parse_args()
    if args.smoke:
        args.models = SMOKE
    rows: list[dict[str, Any]] = []
    if args.output and args.output.exists():  # rows of other models stay
        earlier = json.loads(args.output.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in earlier if row["model"] not in args.models]
    for mesh in MESHES[:1] if args.smoke else MESHES:

        def take(name: str, row: dict[str, Any], mesh: tuple[int, ...] = mesh) -> None:
            load = round(os.getloadavg()[0], 1)
            kind = KINDS.get(name, "text")
            rows.append({"model": name, "kind": kind, "mesh": mesh, "load": load, **row})
            print(rows[-1], file=sys.stderr, flush=True)
            if args.output:
                write_json(args.output, {"rows": rows})

        on_mesh(mesh, tuple(args.models), take)
    print("\n".join(lines(rows)))


if __name__ == "__main__":
    main()

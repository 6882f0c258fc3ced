"""Trains one tiny model of every family of Hugging Face's transformers on gloo processes.

For each family: whether its model, in training mode and without dropout, is planned, and whether
its loss and gradients are those of the whole model in plain torch (float32; float64, where these
differ by more than rounding usually does); else the reason.
Families whose configuration cannot be made tiny, or whose model does not run in plain torch with
the inputs that are made here, are counted apart.

    python benchmarks/torch_families.py --output docs/results/torch_families.json
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import multiprocessing
import random
import re
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch.utils import _pytree as pytree
from transformers.models.auto import configuration_auto, modeling_auto

import tofu.torch
from tofu.errors import TofuError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json

SMOKE = ("gpt2", "vit")
MESH = (2,)
LIMIT_S = 600
MOST_PARAMETERS = 20_000_000
LOSS, GRADIENT = 1e-5, 1e-4  # the allowed differences, relative to the largest value
BATCH, LENGTH = 4, 8
# The first of these that a family has is its model.
TASKS = (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_CLASSIFICATION", "CTC",
    "AUDIO_CLASSIFICATION", "SEQUENCE_CLASSIFICATION",
)  # fmt: skip
# Names in configurations, by the sizes that they get.
SIZES: Mapping[int, str] = {
    1: "num_labels_per_token n_group topk_group num_nextn_predict_layers",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers depth "
       "num_key_value_heads num_experts_per_tok top_k moe_topk num_encoder_layers "
       "num_decoder_layers encoder_num_hidden_layers decoder_num_hidden_layers mamba_n_groups",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads mamba_n_heads "
       "decoder_attention_heads num_experts num_local_experts n_routed_experts moe_num_experts "
       "encoder_num_attention_heads decoder_num_attention_heads rotary_dim qk_rope_head_dim",
    8: "head_dim d_kv v_head_dim qk_nope_head_dim patch_size state_size ssm_state_size q_lora_rank "
       "kv_lora_rank mamba_d_state mamba_d_head attention_head_size num_mel_bins",
    16: "embedding_size mlp_hidden_size moe_intermediate_size shared_expert_intermediate_size "
        "expert_ffn_size ffn_hidden_size_per_expert",
    32: "hidden_size d_model n_embd dim embed_dim image_size emb_dim word_embed_proj_dim d_embed "
        "encoder_hidden_size decoder_hidden_size width projection_dim embedding_dim lru_width "
        "attention_hidden_size",
    48: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim d_inner hidden_dim n_inner "
        "ffn_hidden_size mlp_dim",
    64: "vocab_size max_position_embeddings n_positions n_ctx max_source_positions "
        "max_target_positions max_seq_len seq_length",
}  # fmt: skip
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
SMALL = {name: size for size, names in SIZES.items() for name in names.split()}


def families() -> dict[str, str]:
    """The families' model classes."""
    found: dict[str, str] = {}
    names = [f"MODEL_FOR_{task}_MAPPING_NAMES" for task in TASKS]
    for mapping in (*names, "MODEL_MAPPING_NAMES"):
        for family, model in getattr(modeling_auto, mapping).items():
            found.setdefault(family, model if isinstance(model, str) else model[0])
    return found


def small(kind: Any) -> dict[str, Any]:
    """Arguments that make a configuration tiny, with the configurations inside it."""
    default = kind()
    made: dict[str, Any] = {}
    for name, value in vars(default).items():
        if isinstance(value, transformers.PretrainedConfig):
            made[name] = small(type(value))
        elif name in SMALL and isinstance(value, int):
            made[name] = SMALL[name]
        elif name in TOKENS and value is not None:
            made[name] = TOKENS[name]
        elif isinstance(value, float) and ("drop" in name or name.startswith("mask_")):
            made[name] = 0.0
        elif name == "apply_spec_augment":
            made[name] = False
        elif isinstance(value, list) and value and all(type(each) is int for each in value):
            made.update(small_list(name, value))
    return made


def small_list(name: str, value: list[int]) -> dict[str, list[int]]:
    """A list of sizes of stages, made tiny; nothing if its name does not tell."""
    if name == "depths":
        return {name: [1] * len(value)}
    if name in ("hidden_sizes", "embed_dims", "encoder_hidden_sizes", "dims"):
        return {name: [16 * (k + 1) for k in range(len(value))]}
    if name in ("num_heads", "num_attention_heads"):
        return {name: [2] * len(value)}
    return {}


def model_of(family: str) -> Any:
    """A tiny model in training mode, that draws no random numbers for dropout."""
    settings_name = configuration_auto.CONFIG_MAPPING_NAMES[family]
    kind = getattr(transformers, settings_name)
    settings = kind(**small(kind))
    settings.use_cache = False
    with torch.device("meta"):
        model_class = getattr(transformers, families()[family])
        count = sum(each.numel() for each in model_class(settings).parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"its configuration makes {count / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model = model_class(settings).float().train()
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    return model


def candidates(model: Any) -> Iterator[dict[str, Any]]:
    """Inputs by name that a model may take, the likeliest first."""
    ids = torch.randint(3, 60, (BATCH, LENGTH))
    side = getattr(getattr(model.config, "vision_config", model.config), "image_size", 32)
    side = side if isinstance(side, int) else 32
    channels = getattr(model.config, "num_channels", 3) or 3
    known = {
        "input_ids": ids,
        "pixel_values": torch.randn(BATCH, channels if channels < 5 else 3, side, side),
        "input_values": torch.randn(BATCH, 4000),
        "input_features": torch.randn(BATCH, 8, 128),
    }
    main = model.main_input_name
    first = {main: known[main]} if main in known else {"input_ids": ids}
    known = {k: x.to(model.dtype) if x.is_floating_point() else x for k, x in known.items()}
    classes = torch.arange(BATCH) % 2
    for labels in (ids, classes):
        yield {**first, "labels": labels}
    yield first
    yield {**first, "decoder_input_ids": ids}
    yield {"input_ids": ids, "pixel_values": known["pixel_values"]}
    yield {"input_features": torch.randn(BATCH, 80, 128), "decoder_input_ids": ids}


def loss_of(outputs: Any) -> Any:
    """The loss of a model's outputs, or a weighted mean of all that have gradients.

    The mean square of an output that a norm has made would not depend on anything before it.
    """
    if getattr(outputs, "loss", None) is not None:
        return outputs.loss
    flat = [x for x in pytree.tree_leaves(outputs) if isinstance(x, torch.Tensor)]
    numbers = torch.Generator().manual_seed(1)
    outputs = [x for x in flat if x.requires_grad]
    return sum((x * torch.rand(x.shape, generator=numbers).to(x.dtype)).mean() for x in outputs)


def inputs_of(model: Any) -> dict[str, Any]:
    """Inputs with which the model runs, forward and backward, with the same result each time."""
    reason = ""
    for given in candidates(model):
        try:
            losses = [loss_of(copy.deepcopy(model)(**given)) for _ in range(2)]
            losses[0].backward()
        except Exception as error:
            reason = reason or told(error)
            continue
        if not losses[0].isfinite():
            reason = f"its loss is {float(losses[0])}"
        elif float(losses[0].detach()) != float(losses[1].detach()):
            reason = "it draws random numbers"
        else:
            return given
    raise ValueError(f"plain torch: {reason}")


def told(error: Exception) -> str:
    """An error in one line, with files as they are named in their packages."""
    text = re.sub(r"\S*/site-packages/", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:220]}"


def difference(one: Any, other: Any) -> float:
    """The largest difference, relative to the largest value."""
    if one is None or other is None:
        return 0.0 if one is other else float("inf")
    one, other = one.detach(), other.detach()
    other = other.full_tensor() if hasattr(other, "full_tensor") else other
    return float((one - other).abs().max() / (one.abs().max() + 1e-3)) if one.numel() else 0.0


def measured(
    family: str, mesh: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> dict[str, Any]:
    """Compares one step of a family's model, whole and on a mesh."""
    try:
        whole = model_of(family).to(dtype)
        given = inputs_of(whole)
    except Exception as error:
        return {"outcome": "not made", "reason": told(error)}
    count = sum(each.numel() for each in whole.parameters())
    row: dict[str, Any] = {"parameters": count, "inputs": sorted(given)}
    try:
        parts = tofu.torch.parallelize(copy.deepcopy(whole), mesh, (), given)
        losses = [loss_of(model(**given)) for model in (whole, parts)]
        for loss in losses:
            loss.backward()
    except Exception as error:
        known = isinstance(error, TofuError)
        row.update(outcome="refused" if known else "failed", reason=told(error))
        if not known:
            row["where"] = traceback.format_exc().strip().splitlines()[-3:]
        return row
    pairs = zip(whole.parameters(), parts.parameters())
    found = max((difference(p.grad, q.grad) for p, q in pairs), default=0.0)
    row.update(loss=difference(*losses), gradient=found)
    row["dtype"] = str(dtype).partition(".")[2]
    equal = row["loss"] <= LOSS and found <= GRADIENT
    row["undescribed"] = sorted(set(map(str, tofu.torch.program_of(parts).plan.undescribed)))
    if not equal and dtype == torch.float32:
        return measured(family, mesh, torch.float64)
    return {**row, "outcome": "equal" if equal else "different"}


def rank(number: int, family: str, mesh: tuple[int, ...], meeting: str, out: Any) -> None:
    """Measures a family in one process of the group."""
    torch.set_num_threads(1)
    random.seed(0)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    size = torch.Size(mesh).numel()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=size)
    row = measured(family, mesh)
    if number == 0:
        out.send(row)
    dist.barrier()


def on_ranks(family: str, mesh: tuple[int, ...]) -> dict[str, Any]:
    """Measures a family on new processes, forked by a server that has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tofu.torch", "transformers", "transformers.modeling_utils"])
    with tempfile.TemporaryDirectory() as folder:
        mine, theirs = context.Pipe(duplex=False)
        meeting = str(Path(folder) / "meeting")
        ranks = [
            context.Process(target=rank, args=(k, family, mesh, meeting, theirs), daemon=True)
            for k in range(torch.Size(mesh).numel())
        ]
        for each in ranks:
            each.start()
        theirs.close()
        try:
            if mine.poll(LIMIT_S):
                row: dict[str, Any] = mine.recv()
            else:
                row = {"outcome": "failed", "reason": f"takes more than {LIMIT_S} s"}
        except EOFError:
            row = {"outcome": "failed", "reason": "its processes ended"}
        for each in ranks:
            each.join(5)
            each.kill()
        return row


def lines(rows: list[dict[str, Any]]) -> list[str]:
    """The counts, and a table of Markdown for all that is not equal."""
    counts = Counter(row["outcome"] for row in rows)
    text = [", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()), ""]
    text += ["| family | model | outcome | reason |", "| --- | --- | --- | --- |"]
    for row in rows:
        if row["outcome"] != "equal":
            reason = row.get("reason", "").replace("|", "/")
            text.append(f"| {row['family']} | {row['model']} | {row['outcome']} | {reason} |")
    return text


def main() -> None:
    """Measure families that have no row yet, and write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    parser.add_argument("--families", nargs="*", choices=families(), metavar="NAME")
    parser.add_argument("--sample", type=int, metavar="N", help="every N-th family")
    parser.add_argument(
        "--mesh", type=lambda text: tuple(map(int, text.split(","))), default=MESH, metavar="SIZES"
    )
    parser.add_argument("--smoke", action="store_true", help="two families")
    args = parser.parse_args()
    names = list(SMOKE if args.smoke else args.families or list(families())[:: args.sample or 1])
    rows: list[dict[str, Any]] = []
    if args.output and args.output.exists():
        rows = json.loads(args.output.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in rows if not args.families or row["family"] not in names]
    known = {row["family"] for row in rows}
    for name in names:
        if name not in known:
            rows.append({"family": name, "model": families()[name], **on_ranks(name, args.mesh)})
            print(rows[-1], file=sys.stderr, flush=True)
            if args.output:
                write_json(args.output, {"transformers": transformers.__version__, "rows": rows})
    print("\n".join(lines(rows)))


if __name__ == "__main__":
    main()

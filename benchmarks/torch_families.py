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
import inspect
import itertools
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
from collections.abc import Callable, Iterator
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
# Inputs that are tried beside those that a model's forward needs.
MORE_INPUTS = (
    "decoder_input_ids", "input_ids", "pixel_values", "input_features", "input_values",
    "attention_mask", "input_features_mask", "bbox", "past_values", "inputs_embeds",
)  # fmt: skip
# The first of these that a family has is its model.
TASKS = (
    "CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_CLASSIFICATION", "CTC",
    "AUDIO_CLASSIFICATION", "SEQUENCE_CLASSIFICATION",
)  # fmt: skip
IMAGES = (64, None)  # the largest sides of images; tried in this order, as are the next two
LAYERS = (2, None)
DIVISORS = (32, 16, 8, 4)  # of widths
IMAGE = re.compile(r"^(image|img)_size$|^input_image_size$|^(max_)?resolution$")
VOCABULARY, POSITIONS, EXPERTS, FIRST_WORD = 96, 64, 16, 24
WIDTH = re.compile(
    r"size|dim|width|embd|^d_|inner|channels|rank|features|state|units|filters|section|planes"
)
NO_WIDTH = re.compile(
    r"kernel|patch|image|window|vocab|chunk|block|^n?um_|crop|pool|grid|batch|buffer|mel|codebook|"
    r"input_size|shape|sample|group|stride|factor|indices"
)
COUNT_OF_LAYERS = re.compile(r"^(n|num|\w+?)_?(\w+_)?(layers?|blocks|depth)$|^depth$")
NAMED_WORDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def families() -> dict[str, str]:
    """The families' model classes."""
    found: dict[str, str] = {}
    names = [f"MODEL_FOR_{task}_MAPPING_NAMES" for task in TASKS]
    for mapping in (*names, "MODEL_MAPPING_NAMES"):
        for family, model in getattr(modeling_auto, mapping).items():
            found.setdefault(family, model if isinstance(model, str) else model[0])
    return found


class Shrinking:
    """Makes configurations tiny by rules on the names and values of their attributes.

    All widths are divided by one number, so that they fit each other as before; the numbers of
    heads and groups stay.
    """

    def __init__(self, image: int | None, layers: int | None, divisor: int) -> None:
        """Limit the sides of images, keep so many layers, and divide widths by a number."""
        self.image, self.layers, self.divisor = image, layers, divisor
        self.words = dict(NAMED_WORDS)

    def shrink(self, settings: Any) -> None:
        """Make a configuration tiny, in place, with those inside it."""
        all_layers = getattr(settings, "num_hidden_layers", None)
        for name, value in list(vars(settings).items()):
            if isinstance(value, transformers.PretrainedConfig):
                self.shrink(value)
            elif not name.startswith("_"):
                small = self.value(name, value, all_layers)
                if small is not value:
                    setattr(settings, name, small)

    def value(self, name: str, value: Any, all_layers: int | None) -> Any:
        """A small value of an attribute."""
        if isinstance(value, dict):
            return {key: self.value(str(key), each, all_layers) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.items(name, list(value), all_layers))
        if type(value) is float:
            return 0.0 if "drop" in name or name.startswith("mask_") else value
        if type(value) is not int:
            return False if name == "apply_spec_augment" else value
        return self.number(name, value)

    def number(self, name: str, value: int) -> int:
        """A small value of a whole number."""
        if name.endswith(("token_id", "token_index")) and value >= 0:
            return self.words.setdefault(name, len(self.words))
        if "vocab_size" in name:
            return VOCABULARY if value > VOCABULARY else value
        if "position" in name:
            return min(value, POSITIONS)
        if "experts" in name and "per_tok" not in name:
            return min(value, EXPERTS)
        if IMAGE.match(name):
            return min(value, self.image or value)
        if COUNT_OF_LAYERS.match(name):
            return min(value, self.layers or value)
        if WIDTH.search(name) and not NO_WIDTH.search(name) and value % self.divisor == 0:
            return value // self.divisor
        return value

    def items(self, name: str, values: list[Any], all_layers: int | None) -> list[Any]:
        """A list with small values, of fewer layers if it has one for each."""
        if self.layers and all_layers and len(values) == all_layers > self.layers:
            other = next((x for x in values if x != values[0]), values[1])
            values = [values[0], other] * (self.layers // 2)
        if not all(type(each) is int for each in values):
            return [self.value(name, each, all_layers) for each in values]
        if name.endswith(("token_id", "token_ids")):
            return [self.number("eos_token_id", each) for each in values[:1]]
        if name == "depths":
            return [min(each, 1) for each in values]
        if self.layers and "layer" in name and max(values, default=0) >= self.layers:
            return [each for each in values if each < self.layers] or [self.layers - 1]
        return [self.number(name, each) for each in values]


def model_of(family: str, shrinking: Shrinking) -> Any:
    """A tiny model in training mode, that draws no random numbers for dropout."""
    settings = getattr(transformers, configuration_auto.CONFIG_MAPPING_NAMES[family])()
    shrinking.shrink(settings)
    settings.use_cache = False
    settings.pad_token_id = getattr(settings, "pad_token_id", None)
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


def first_that_runs(family: str) -> tuple[tuple[Any, ...], int]:
    """The first way of shrinking that makes a model which runs, and the number of its inputs.

    Raises:
        ValueError: No configuration works; its text is what ended one of those that came furthest.
    """
    reasons: list[str] = []
    for image, layers in itertools.product(IMAGES, LAYERS):
        before = len(reasons)
        for divisor in DIVISORS:
            sizes = (image, layers, divisor)
            try:
                return sizes, number_of_inputs(model_of(family, Shrinking(*sizes)))
            except Exception as error:
                reasons.append(told(error))
                if isinstance(error, (ImportError, OSError)):
                    raise ValueError(reasons[-1]) from error
                if reasons[before:].count(reasons[-1]) > 1:
                    break
    raise ValueError(next((text for text in reasons if "plain torch" in text), reasons[0]))


def candidates(model: Any) -> Iterator[dict[str, Any]]:
    """Inputs by name that a model may take, the likeliest first."""
    torch.manual_seed(0)
    parameters = inspect.signature(model.forward).parameters
    known = inputs_by_name(model)
    needed = {
        name: known[name]
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and name in known
    }
    main = model.main_input_name
    first = {main: known[main]} if main in known else {"input_ids": known["input_ids"]}
    first = {**needed, **first}
    ids, classes = known["input_ids"], torch.arange(BATCH) % 2
    if "labels" in parameters:
        for labels in (ids, classes):
            yield {**first, "labels": labels}
    yield first
    more = [name for name in MORE_INPUTS if name in parameters and name not in first]
    for count in (1, 2):
        for names in itertools.combinations(more, count):
            yield {**first, **{name: known[name] for name in names}}
    yield {**first, **{name: known[name] for name in more}}
    if "input_features" in first:  # of which some models have the sides the other way round
        turned = {**first, "input_features": first["input_features"].mT.contiguous()}
        yield turned
        yield {**turned, **{name: known[name] for name in more if name != "input_features_mask"}}


def inputs_by_name(model: Any) -> dict[str, Any]:
    """Inputs by the names that Hugging Face's models give them."""
    settings = model.config
    inner = [x for x in vars(settings).values() if isinstance(x, transformers.PretrainedConfig)]

    def found(*names: str, default: Any) -> Any:
        values = (getattr(each, name, None) for each in (settings, *inner) for name in names)
        return next((value for value in values if value), default)

    ids = torch.randint(FIRST_WORD, VOCABULARY, (BATCH, LENGTH))
    side = found("image_size", default=32)
    height, width = side if isinstance(side, (list, tuple)) else (side, side)
    channels = found("num_channels", "in_channels", default=3)
    mels = found("num_mel_bins", "feature_size", "input_feat_per_channel", default=80)
    series = found("context_length", "input_size", default=32)
    image = torch.randn(BATCH, channels, height, width)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": image,
        "pixel_values_videos": image[:, None].expand(-1, 4, -1, -1, -1).contiguous(),
        "input_values": torch.randn(BATCH, 4000),
        "input_features": torch.randn(BATCH, mels, found("max_source_length", default=128)),
        "input_features_mask": torch.ones(BATCH, 128, dtype=torch.long),
        "decoder_input_ids": ids.flip(1),
        "bbox": torch.arange(1, 5).mul(10).expand(BATCH, LENGTH, 4).contiguous(),
        "past_values": torch.randn(BATCH, series, found("num_input_channels", default=1)),
        "hidden_states": torch.randn(BATCH, LENGTH, found("hidden_size", default=32)),
        "inputs_embeds": torch.randn(BATCH, LENGTH, found("hidden_size", default=32)),
    }


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


def number_of_inputs(model: Any) -> int:
    """Which inputs the model runs with, forward and backward, with the same result each time."""
    reason = ""
    for number, given in enumerate(candidates(model)):
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
            return number
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
    family: str, made: Any, mesh: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> dict[str, Any]:
    """Compares one step of a family's model, whole and on a mesh."""
    sizes, number = made
    whole = model_of(family, Shrinking(*sizes))
    given = next(itertools.islice(candidates(whole), number, None))
    whole = whole.to(dtype)
    given = {k: x.to(dtype) if x.is_floating_point() else x for k, x in given.items()}
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
        return measured(family, made, mesh, torch.float64)
    return {**row, "outcome": "equal" if equal else "different"}


def quietly() -> None:
    """Prepares a process that measures: one thread, and no warnings of the models."""
    torch.set_num_threads(1)
    random.seed(0)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()


def finder(family: str, out: Any) -> None:
    """Finds a tiny model of a family in a process of its own."""
    quietly()
    try:
        out.send(first_that_runs(family))
    except Exception as error:
        out.send({"outcome": "not made", "reason": told(error)})


def rank(
    number: int, family: str, made: Any, mesh: tuple[int, ...], meeting: str, out: Any
) -> None:
    """Measures a family in one process of the group."""
    quietly()
    size = torch.Size(mesh).numel()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=number, world_size=size)
    row = measured(family, made, mesh)
    if number == 0:
        out.send(row)
    dist.barrier()


def sent(target: Callable[..., None], calls: list[tuple[Any, ...]]) -> Any:
    """What one of new processes sends, which are forked by a server that has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tofu.torch", "transformers", "transformers.modeling_utils"])
    mine, theirs = context.Pipe(duplex=False)
    processes = [context.Process(target=target, args=(*x, theirs), daemon=True) for x in calls]
    for each in processes:
        each.start()
    theirs.close()
    try:
        if mine.poll(LIMIT_S):
            return mine.recv()
        return {"outcome": "failed", "reason": f"takes more than {LIMIT_S} s"}
    except EOFError:
        return {"outcome": "failed", "reason": "its processes ended"}
    finally:
        for each in processes:
            each.join(5)
            each.kill()


def on_ranks(family: str, mesh: tuple[int, ...]) -> dict[str, Any]:
    """Measures a family on new processes."""
    made: Any = sent(finder, [(family,)])
    if isinstance(made, dict):
        return made
    with tempfile.TemporaryDirectory() as folder:
        meeting = str(Path(folder) / "meeting")
        numbers = range(torch.Size(mesh).numel())
        row: dict[str, Any] = sent(rank, [(k, family, made, mesh, meeting) for k in numbers])
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

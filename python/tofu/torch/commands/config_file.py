"""A module of a configuration of Hugging Face's transformers: without weights, code or a download.

model, args, kwargs = load_config_file(Path("config.json"), (8, 2048))
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any, Optional

import torch

from tofu.errors import ConfigError
from tofu.torch.commands.lora import adapt, read_lora

__all__ = ["INPUT", "load_config_file"]

INPUT = "input_ids"
_BATCH, _MOST_WORDS = 8, 2048
_INSTEAD = "write a function that returns the module and its inputs, and give MODULE:FUNCTION"


def load_config_file(
    path: Path, shape: tuple[int, ...] = (), lora: Optional[str] = None
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """The model, with its loss as an output, whose parameters have no values, and its inputs.

    Args:
        path: the file, a ``config.json``.
        shape: the batch and the number of words of each example; numbers that are left out are
            8, and 2,048 or the most that the model takes.
        lora: the text of --lora: only adapters train; None: all parameters.

    Raises:
        ConfigError: the file is none, transformers is missing or has no such model, or the model
            does not predict words; or as ``read_lora`` and ``adapt``.
    """
    fields = _fields(path)
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise ConfigError(
            f"{path}: a configuration needs the package transformers, which cannot be imported "
            f"({error}); install it, or {_INSTEAD}"
        ) from error
    names = fields.pop("architectures", None) or [""]
    kind = fields.pop("model_type")
    found = getattr(transformers, names[0], None)
    try:
        config: Any = transformers.AutoConfig.for_model(kind, **fields)
    except ValueError as error:
        raise ConfigError(
            f"{path}: transformers {transformers.__version__} has no model {kind!r}; {_INSTEAD}"
        ) from error
    if found is None:
        raise ConfigError(
            f"{path}: transformers {transformers.__version__} has no class {names[0]!r}, the "
            f'first of "architectures"; expected one such as LlamaForCausalLM'
        )
    config.use_cache = False
    with torch.device("meta"):
        model = found(config)
    if "labels" not in inspect.signature(model.forward).parameters or not _predicts_words(model):
        raise ConfigError(f"{path}: {names[0]} does not predict words; {_INSTEAD}")
    if lora is not None:
        adapt(model, read_lora(lora))
    most = min(getattr(config, "max_position_embeddings", None) or _MOST_WORDS, _MOST_WORDS)
    words = torch.ones((*shape, *(_BATCH, most)[len(shape) :]), dtype=torch.int64)
    return model, (), {INPUT: words, "labels": words}


def _predicts_words(model: Any) -> bool:
    return bool(model.main_input_name == INPUT and model.get_output_embeddings() is not None)


def _fields(path: Path) -> dict[str, Any]:
    try:
        fields: Optional[Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); expected a config.json") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("model_type"), str):
        raise ConfigError(f'{path}: has no "model_type"; expected a config.json')
    return fields

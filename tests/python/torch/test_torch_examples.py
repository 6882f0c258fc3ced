"""Examples: a plain script, and a checkpoint that is loaded by files, trained, stopped, saved."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

import tofu.torch

from .ranks import on_ranks

transformers = pytest.importorskip("transformers", reason="needs transformers")
EXAMPLES = Path(__file__).parents[3] / "examples"
PROMPT = torch.tensor([[1, 2, 3]])


def example(name: str = "torch_checkpoint") -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(folder: Path, tied: bool) -> None:
    """Write a checkpoint of several files on rank 0."""
    torch.manual_seed(0)
    settings = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    if dist.get_rank() == 0:
        model = transformers.LlamaForCausalLM(settings)
        model.save_pretrained(folder, max_shard_size="20KB")
        assert len(list(folder.glob("*.safetensors"))) > 1
    dist.barrier()


def goes_on(folder: Path) -> None:
    """A step, and another one after a stop, are two of plain torch; so are the files."""
    first, last = folder / "first", folder / "last"
    written(first, tied=True)
    steps = example()
    whole = transformers.LlamaForCausalLM.from_pretrained(first)
    wanted = steps.train(whole, 2, folder / f"whole{dist.get_rank()}")
    losses = steps.train(steps.distributed(first), 1, last / "steps")
    model = steps.distributed(first)
    losses += steps.train(model, 2, last / "steps")
    assert losses == pytest.approx(wanted, rel=1e-5)
    model.save_pretrained(last)
    saved = transformers.LlamaForCausalLM.from_pretrained(last)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(saved.state_dict()[name], value, msg=name)
    made = [
        each.eval().generate(PROMPT, max_new_tokens=3, do_sample=False) for each in (model, whole)
    ]
    assert torch.equal(*made)


def refuses(folder: Path) -> None:
    """A file with another name, or without one, is an error."""
    from safetensors.torch import load_file, save_file

    written(folder, tied=False)
    file = sorted(folder.glob("*.safetensors"))[0]
    tensors = load_file(file)
    name = next(iter(tensors))
    for changed, text in [({"other": tensors[name]}, "other, which"), ({}, f"no {name}")]:
        rest = {key: value for key, value in tensors.items() if key != name}
        dist.barrier()
        if dist.get_rank() == 0:
            save_file({**rest, **changed}, file)
        dist.barrier()
        with pytest.raises(KeyError, match=text):
            example().distributed(folder)


def plain_script() -> None:
    """The losses of the script of 40 lines are those of plain torch."""
    texts = []
    for made in (tofu.torch.parallelize, lambda model, *_: model):
        with contextlib.ExitStack() as stack:
            for name in ("init_process_group", "destroy_process_group"):
                stack.enter_context(mock.patch.object(dist, name))
            stack.enter_context(mock.patch.object(tofu.torch, "parallelize", made))
            text = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            example("torch_train").main()
        texts.append(text.getvalue())
    assert texts[0] == texts[1]
    assert texts[0].count("loss") == (5 if dist.get_rank() == 0 else 0)


def test_a_plain_script_trains_as_without_tofu() -> None:
    on_ranks(2, plain_script)


def whole_way(folder: str) -> None:
    goes_on(Path(folder))
    refuses(Path(folder) / "refused")


def test_a_checkpoint_is_loaded_trained_stopped_and_saved(tmp_path) -> None:
    on_ranks(2, whole_way, str(tmp_path))

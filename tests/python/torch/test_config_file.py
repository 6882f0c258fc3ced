"""A configuration of Hugging Face's transformers as the target of a command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tofu.cli.main import cli
from tofu.errors import ConfigError
from tofu.torch.commands.loading import load

from .hugging import FEW_KEYS, SMALL

pytest.importorskip("transformers")
LLAMA = {**SMALL, **FEW_KEYS, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **changes}))
    return str(path)


def ran(*words: str) -> Any:
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def test_the_fewest_devices_of_a_machine_are_told(tmp_path) -> None:
    path = written(tmp_path)
    words = ("estimate", "--devices", "8xh100", "--workers", "1,2", "--shape", "input_ids=4,16")
    told = ran(*words, path)
    assert told.exit_code == 0, told.output
    assert re.search(
        r"It fits in 80.0 GiB with adam without tofu; a step takes \S+ \ws on 8xh100", (told.stdout)
    ), told.stdout
    document = json.loads(ran(*words, "--format", "json", path).stdout)
    model, _, inputs = load(path, (4, 16))
    assert inputs["input_ids"].shape == inputs["labels"].shape == (4, 16)
    elements = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    alone, two = document["estimates"]
    assert alone["bytes_per_worker"]["parameters"] == 4 * elements
    assert two["step_seconds"] > 0 and two["communicated_bytes"] > 0
    assert ran(*words, "--memory", "1KiB", path).exit_code == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "nosuch"}, "has no model 'nosuch'"),
        ({"architectures": ["NoSuch"]}, "has no class 'NoSuch'"),
        ({"architectures": None}, "has no class ''"),
        ({"architectures": ["LlamaModel"]}, "LlamaModel does not predict words"),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            "LlamaForSequenceClassification does not predict words",
        ),
    ],
)
def test_other_configurations_are_refused(tmp_path, changes, said) -> None:
    with pytest.raises(ConfigError, match=said):
        load(written(tmp_path, **changes))


def trained(folder: Path, lora: str, **changes: Any) -> dict[str, int]:
    """The number of elements of what trains, by name."""
    model = load(written(folder, **changes), (), lora)[0]
    return {name: each.numel() for name, each in model.named_parameters() if each.requires_grad}


def test_adapters_alone_train_and_have_gradients_and_state(tmp_path) -> None:
    sizes = trained(tmp_path, "2")
    layers = [name.partition(".lora_")[0] for name in sizes]
    assert len(sizes) == 14 and len(set(layers)) == 7, "q, k, v, o, gate, up and down"
    assert sizes["model.layers.0.self_attn.k_proj.lora_A.weight"] == 2 * 32
    assert sizes["model.layers.0.self_attn.k_proj.lora_B.weight"] == 2 * 16
    words = ("estimate", "--workers", "1", "--shape", "input_ids=4,16", "--format", "json")
    whole, adapted = (
        json.loads(ran(*words, *more, written(tmp_path)).stdout)["estimates"][0]
        for more in ((), ("--lora", "2"))
    )
    added = 4 * sum(sizes.values())
    states = [each["total_bytes"]["adam"] - each["total_bytes"]["sgd"] for each in (whole, adapted)]
    assert states[1] == 2 * added < states[0]
    held = [each["bytes_per_worker"] for each in (whole, adapted)]
    assert held[1]["parameters"] == held[0]["parameters"] + added
    assert held[1]["gradients"] <= added


def test_adapters_stand_where_pefts_file_says(tmp_path) -> None:
    path = tmp_path / "adapter_config.json"

    def written_as(**fields: Any) -> str:
        path.write_text(json.dumps({"r": 4, "target_modules": ["q_proj", "v_proj"], **fields}))
        return str(path)

    assert len(trained(tmp_path, written_as(bias="none", lora_alpha=8))) == 4
    assert len(trained(tmp_path, written_as(target_modules=r".*\.(up|gate)_proj"))) == 4
    assert len(trained(tmp_path, written_as(target_modules="all-linear"))) == 14
    gpt = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_head": 4}
    sizes = trained(tmp_path, written_as(target_modules=["c_attn"]), n_layer=1, **gpt)
    assert list(sizes.values()) == [4 * 32, 4 * 96], "its weight is (in, out)"
    for fields, said in (
        ({"target_modules": ["nosuch"]}, "no linear layer's name fits"),
        ({"r": 0}, 'expected "r" above 0'),
        ({"use_dora": True}, '"use_dora" is True, which is not counted'),
    ):
        with pytest.raises(ConfigError, match=said):
            trained(tmp_path, written_as(**fields))
    with pytest.raises(ConfigError, match="--lora 0: neither a rank nor"):
        trained(tmp_path, "0")
    with pytest.raises(ConfigError, match="--lora: its function decides"):
        ran("estimate", "--lora", "4", "package.module:function")


def test_options_of_a_configuration(tmp_path) -> None:
    path = written(tmp_path)
    assert load(path)[2]["input_ids"].shape == (8, 32)
    assert load(path, (3,))[2]["labels"].shape == (3, 32)
    for words, said in (
        (["plan", "--mesh", "2", "--shape", "data=2,3"], "expected input_ids=N,WORDS"),
        (["plan", "--mesh", "2", "--shape", "input_ids=2,3", "--batch-size", "2"], "give one"),
        (["check", "--mesh", "2"], "a configuration has no values to train with"),
    ):
        with pytest.raises(ConfigError, match=said):
            ran(*words, path)

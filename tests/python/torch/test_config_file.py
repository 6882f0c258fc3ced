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
from tofu.torch.loading import load

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

"""First tries with PyTorch, exactly as docs/torch.md says, under torchrun."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(64, 8)

    def forward(self, data, label):
        return nn.functional.cross_entropy(self.second(self.first(data).relu()), label)

def made():
    torch.manual_seed(0)
    return Net(), (torch.randn(32, 16), torch.arange(32) % 8)
"""
AROUND = """
import os, sys
import torch, torch.distributed as dist
from net import made
dist.init_process_group("gloo")
model, inputs = made()
batches = [inputs] * 3
{page}
    if dist.get_rank() == 0:
        print(f"{{float(loss):.6f}}")
dist.destroy_process_group()
"""


def run(folder: Path, *words: str) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TOFU_", "MXNET"))}
    # Another port for each torchrun, as tests run side by side.
    environ.update(OMP_NUM_THREADS="1", PET_STANDALONE="1")
    environ["PYTHONPATH"] = os.pathsep.join([str(folder), environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODULE)
    return tmp_path


def test_a_module_is_estimated_and_planned(folder) -> None:
    text = run(folder, "tofu", "estimate", "--mesh", "2", "--gpu-memory", "12GiB", "net:made")
    assert text.splitlines()[-1] == "It fits in 12.0 GiB with adam without tofu."
    text = run(folder, "tofu", "plan", "--mesh", "2,2", "net:made")
    assert text.startswith("4 workers (2 x 2), ") and "first.weight" in text


def test_the_pages_loop_trains_as_the_whole(folder) -> None:
    """The code of the page's section Train, word for word, on as many ranks as its mesh has."""
    page = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^## Train\n\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert "parallelize(model, (2, 4), inputs)" in code
    code = code.replace("(2, 4)", "(2, 1)")  # two ranks, for a test
    (folder / "train.py").write_text(AROUND.format(page=code))
    whole = re.sub(r"(?m)^.*parallelize.*\n", "", code)
    (folder / "whole.py").write_text(AROUND.format(page=whole))
    torchrun = ("torch.distributed.run", "--nproc-per-node")
    texts = (
        run(folder, *torchrun, ranks, script)
        for ranks, script in (("2", "train.py"), ("1", "whole.py"))
    )  # torch 2.9 prints a line of gloo's, too
    losses, expected = ([float(x) for x in re.findall(r"(?m)^[\d.]+$", each)] for each in texts)
    assert losses == pytest.approx(expected, rel=1e-5) and losses[2] < losses[0]


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("transformers", "accelerate"))),
    reason="needs transformers and accelerate",
)
def test_hugging_faces_trainer_runs_as_the_example_says(folder) -> None:
    example = ROOT / "examples" / "torch_trainer.py"
    told = next(line for line in example.read_text().splitlines() if "torchrun" in line)
    _, *options, _ = told.split()
    text = run(folder, "torch.distributed.run", *options, str(example))
    # both ranks write to one stream, so a line of one may begin in a line of the other
    assert re.search(r"losses( \d\.\d{4}){5}\s", text), text

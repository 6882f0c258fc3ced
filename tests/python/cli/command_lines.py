"""Random command lines, from the commands' own options, with odd values and variables."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tofu.cli.main import cli
from tofu.config import VARIABLES

from .test_mutations import SYMBOL

NUMBERS = (
    "0", "1", "2", "3", "5", "8", "-1", "007", "+2", "1e3", "1e400", "nan", "inf", "9" * 400, "1.5",
    "½", "2,3", "0,0", "64,32", "2,", ",",
)  # fmt: skip
SIZES = (
    "12", "4GiB", "64KiB", "1KiB", "-4GiB", "4 GiB", "9e9GiB", "9" * 400 + "GiB", "auto", "exact",
    "estimate",
)  # fmt: skip
TEXTS = (
    "", " ", "x", "a\nb", "\x1b[31m", "\udcff", "é", "%s%n", "{}", "[", "'", '"', "--", "-",
    "a" * 3000, "*", "=", "a=0", "*=0", "*_weight=0,1", "a=,", "a=-1", "*=9", "data=4,6",
    "data=0,6", "data=4", "data=-4,6", "data=4,6,1,1", "data=int8", "float16", "time", "none",
    "all", "dump:", "dump:/dev/null", "dump:/proc/x", "debug,quiet", "info,info", "relu", "nosuch",
    "tofu", "mesh-tensorflow", "data-parallel", "p2.8xlarge", "fc", "multifetch", "cpu", "gpu",
    "json", "html", "w",
)  # fmt: skip
FILES = (
    "/", ".", "/dev/null", "/nonexistent/x", "saved.plan", "net.json", "train.py", "pins.txt",
    "own.py",
)  # fmt: skip
_SYMBOL = ("--shape", "data=4,6", "net.json")
# The target of each command, and the options that keep it fast.
TARGETS = {
    "run": ("train.py",), "check": ("train.py",), "trace": ("train.py",), "plan": _SYMBOL,
    "compare": _SYMBOL, "estimate": _SYMBOL, "frontier": ("--workers", "2", *_SYMBOL),
    "show": ("saved.plan",), "diff": ("saved.plan", "saved.plan"),
    "simulate": ("--machine", "p2.8xlarge", *_SYMBOL), "calibrate": ("--smoke",), "models": (),
    "export": ("--output", "exported", "--workers", "2", *_SYMBOL), "ops": ("relu",),
    "verify": ("--quick", "--processes", "1", "relu"), "suggest": ("relu",),
}  # fmt: skip
_TRAIN = """
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.Dense(8, in_units=6, prefix="fc_")
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd")
for _ in range(2):
    with autograd.record():
        loss = net(mx.nd.ones((4, 6))).sum()
    loss.backward()
    trainer.step(4)
print(loss.asscalar())
"""
_OWN = """
import tofu

@tofu.op(name="Custom:own")
def own(x):
    return lambda i, j: x[i, j]
"""


def value(rng: random.Random) -> str:
    """An odd value, or one that suits some option."""
    return rng.choice(rng.choice((NUMBERS, SIZES, TEXTS, TEXTS, FILES)))


def command_line(name: str, rng: random.Random) -> list[str]:
    """Words after ``tofu``: a command with up to three options, and mostly its usual target."""
    words = list(TARGETS[name])
    if rng.random() < 0.15:
        words[-1:] = [value(rng)]
    options = [each for each in cli.commands[name].params if each.opts[0].startswith("-")]
    for option in rng.sample(options, min(len(options), rng.randint(1, 3))):
        given = [rng.choice(option.opts)]
        if not getattr(option, "is_flag", False):
            choices = getattr(option.type, "choices", ())
            given.append(rng.choice(choices) if choices and rng.random() < 0.5 else value(rng))
        words[:0] = given
    return [name, *words]


def variables(rng: random.Random) -> dict[str, str]:
    """Up to two of tofu's variables, or names close to one."""
    names = [*VARIABLES, "TOFU_WORKER", "tofu_memory", "MXNET_GRAPH_PASS"]
    return {name: value(rng) for name in rng.sample(names, rng.choice((0, 0, 1, 2)))}


def write_files(folder: Path) -> None:
    """Write the files that command lines name, except saved.plan, which a command makes."""
    texts = {
        "net.json": json.dumps(SYMBOL), "train.py": _TRAIN, "pins.txt": "w=0\n# a comment\n",
        "own.py": _OWN,
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")

"""Finds options of a command that neither change its outcome nor are refused by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import click
from click.testing import CliRunner

from tofu.cli.main import cli
from tofu.errors import TofuError

__all__ = ["COMMANDS", "write_files", "without_effect"]

COMMANDS = ("simulate", "plan", "compare", "estimate", "frontier", "export")
_Outcome = tuple[int, str, str, set[str]]  # status, output, errors, and new files
_MACHINE = ("--machine", "p2.8xlarge")


class Sample(NamedTuple):
    """A value of an option that must change the outcome.

    Attributes:
        value: the option's words after its name.
        beside: words that both command lines have.
        instead: the words without it, if its absence is no difference.
    """

    value: Sequence[str] = ()
    beside: Sequence[str] = ()
    instead: Sequence[str] = ()


# By parameter. An option that is missing here is a flag, or has a choice that is not its default.
SAMPLES = {
    "allow_replication_within": Sample(["5%"]),
    "batch_size": Sample(["3"]),
    "cuts": Sample(["nosuch.json"]),
    "describe": Sample(["nosuch.py"]),
    "device": Sample(["gpu"]),
    "devices": Sample(["8xh100"]),
    "explain": Sample(["*"]),
    "fetch": Sample(["plain"]),
    "fitting": Sample(["sgd_mom"], ["--memory", "1GiB"]),
    "graph": Sample(["2"]),
    "inputs": Sample(["weight"]),
    "dtypes": Sample(["float16"]),
    "keep_fetched": Sample(["1GiB"]),
    "limits": Sample(["1"]),
    "log": Sample(["dump:dumps"]),
    "lora": Sample(["4"]),
    "machine": Sample(["p2.8xlarge"]),
    "measured": Sample(["nosuch.json"], ["--format", "html", *_MACHINE]),
    "memory": Sample(["1B"]),
    "mesh": Sample(["2,2"], instead=["--mesh", "2"]),
    "meshes": Sample(["2,2"], instead=["--mesh", "2"]),
    "modes": Sample(["spartan"]),
    "objective": Sample(["time"], _MACHINE),
    "objectives": Sample(["time"], _MACHINE),
    "pages": Sample(["pages"], ["--format", "html"]),
    "perfetto": Sample(["step.json"]),
    "pin_file": Sample(["pins.txt"]),
    "pins": Sample(["*weight=1"]),
    "plan": Sample(["nosuch.plan"]),
    "price": Sample(["nosuch.json"], ["--devices", "8xh100"]),
    "prices": Sample(beside=["--format", "html"]),
    "recompute": Sample(["all"]),
    "rivals": Sample(["zero-3"]),
    "save": Sample(["net.plan"]),
    "search": Sample(["data-parallel"]),
    "shapes": Sample(["data=8,32"]),
    "steps": Sample(["2"]),
    "time_limit": Sample(["1e-9"]),
    "workers": Sample(["4"], instead=["--workers", "2"]),
}
OF_COMMAND = {
    ("frontier", "recompute"): Sample(["none"], _MACHINE),
    ("estimate", "machine"): Sample(["8xh100"]),
    ("simulate", "machine"): Sample(["8xh100"], instead=_MACHINE),
    ("simulate", "objective"): Sample(["time"]),
    ("simulate", "fetch"): Sample(["multifetch"]),
    ("compare", "device"): Sample(["gpu"], ["--count", "exact"]),
}


def write_files(folder: Path) -> None:
    """Write the files that the samples name."""
    (folder / "pins.txt").write_text("*weight=1\n")


def without_effect(command: str, target: Sequence[str], folder: Path) -> Iterator[str]:
    """Yield the options that change nothing.

    Args:
        command: one of COMMANDS.
        target: the target of the command, with the options that it needs.
        folder: has the files of ``write_files``.
    """
    for option in cli.commands[command].params:
        if isinstance(option, click.Option):
            name, sample = option.opts[0], _sample(command, option)
            beside = [*sample.beside, *_machine(command, option), *_workers(command, option)]
            plain = _outcome([command, *sample.instead, *beside, *target], folder)
            given = _outcome([command, name, *sample.value, *beside, *target], folder)
            refused = given[2].startswith("tofu: ") and name in given[2]
            if refused or _told(sample, given):
                continue
            if given == plain:
                yield " ".join([name, *sample.value])
            elif 2 in (given[0], plain[0]):
                yield f"{name}: {plain[2]}{given[2]}"


def _sample(command: str, option: click.Option) -> Sample:
    name = option.name or ""
    known = OF_COMMAND.get((command, name), SAMPLES.get(name))
    if known is not None:
        return known
    if isinstance(option.type, click.Choice):
        return Sample([next(each for each in option.type.choices if each != option.default)])
    assert option.is_flag, f"{command} {option.opts[0]}: give a sample that changes the outcome"
    return Sample()


def _told(sample: Sample, outcome: _Outcome) -> bool:
    """Whether an error names a value, such as a file that does not exist."""
    return outcome[0] == 2 and any(value.rstrip("B") in outcome[2] for value in sample.value)


def _machine(command: str, option: click.Option) -> Sequence[str]:
    return _MACHINE if command == "simulate" and option.name != "machine" else ()


def _workers(command: str, option: click.Option) -> Sequence[str]:
    return () if option.name in ("workers", "mesh", "meshes") else ("--workers", "2")


def _outcome(words: Sequence[str], folder: Path) -> _Outcome:
    """The status, the output, the errors without times, and the files that appeared."""
    before = set(folder.rglob("*"))
    with mock.patch.dict(os.environ):
        try:
            ran = CliRunner().invoke(cli, list(words), catch_exceptions=False)
            told = ran.exit_code, ran.stdout, ran.stderr
        except TofuError as error:
            told = 2, "", f"tofu: {error}"
    files = set[str]()
    for path in sorted(set(folder.rglob("*")) - before, reverse=True):
        if path.is_file():
            files.add(str(path.relative_to(folder)))
            path.unlink()
        else:
            path.rmdir()
    return told[0], _timeless(told[1]), _timeless(told[2]), files


def _timeless(text: str) -> str:
    text = re.sub(r"\d+(\.\d+)?(e-\d+)? m?s\b", "TIME", text)
    return re.sub(r'("search_seconds": ?)[\d.e-]+', r"\1TIME", text)

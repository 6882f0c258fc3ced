"""Options that several commands share, and the environment variables that they set.

The environment configures a run (tofu.config), in this process and in those it starts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

import click
from click.core import ParameterSource

from tofu.config import (
    AUTO,
    DEVICES,
    ESTIMATE,
    EXACT,
    FETCHES,
    MODES,
    OBJECTIVES,
    RECOMPUTES,
    Config,
    parse_bytes,
    parse_mode,
    parse_pins,
    parse_recompute,
    parse_share,
    parse_workers,
    read_pins,
)
from tofu.errors import ConfigError
from tofu.plans.machine_files import read_machine

__all__ = [
    "Script",
    "allow_replication_option",
    "allow_replication_within_option",
    "batch_size_option",
    "machine_option",
    "memory_option",
    "objective_option",
    "check_no_module",
    "check_script",
    "count_option",
    "describe_option",
    "device_option",
    "everything_option",
    "fetch_option",
    "is_config_file",
    "is_module",
    "format_option",
    "layers_option",
    "level_option",
    "log_option",
    "mesh_option",
    "meshes_option",
    "optimizer_option",
    "pin_file_option",
    "pin_option",
    "keep_fetched_option",
    "recompute_option",
    "search_option",
    "set_variables",
    "shape_option",
    "switch_on",
    "tell_misplaced",
    "workers_option",
]


_SEPARATED = "tofu.separated"  # in a context: "--" stood between the script and its arguments
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_HEAD_BYTES = 4096  # bytes of a file to read to find its kind


class Script(click.Command):
    """A command that passes all arguments after the script's name to the script.

    A "--" right after the name says so itself, and is not passed.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our own options up to the script's name, or anywhere if there is no script."""
        scripts = [number for number, arg in enumerate(args) if arg.endswith(".py")]
        if scripts:
            ctx.allow_interspersed_args = False
        for number in scripts:
            if args[number + 1 : number + 2] == ["--"]:
                args = args[: number + 1] + args[number + 2 :]
                ctx.meta[_SEPARATED] = True
                break
        return super().parse_args(ctx, args)


workers_option = click.option(
    "--workers",
    metavar="K",
    help="Number of workers; one GPU or CPU context each. Default: $TOFU_WORKERS, "
    "else all GPUs, else 2.",
)
device_option = click.option(
    "--device",
    type=click.Choice(DEVICES),
    help="Where workers run. Default: $TOFU_DEVICE, else gpu if there is one.",
)
fetch_option = click.option(
    "--fetch",
    type=click.Choice(FETCHES),
    help="How workers read each other's tiles. Default: $TOFU_FETCH, else multifetch on "
    "CPUs and plain on GPUs.",
)
log_option = click.option(
    "--log", metavar="WORDS", help="quiet, info or debug, and dump:DIR. Default: $TOFU_LOG."
)


def _without_dumps(
    context: click.Context, option: click.Parameter, words: Optional[str]
) -> Optional[str]:
    """Refuse dumps. Raises ConfigError."""
    if words is not None and "dump:" in words:
        raise ConfigError(
            f"--log {words}: tofu {context.info_name} makes many plans; tofu plan, simulate and "
            "run dump the passes of one"
        )
    return words


level_option = click.option(
    "--log",
    metavar="WORD",
    callback=_without_dumps,
    help="quiet, info or debug. Default: $TOFU_LOG.",
)
search_option = click.option(
    "--search",
    metavar="MODE",
    help=f"How to search: {', '.join(MODES)}. Default: $TOFU_SEARCH, else {MODES[0]}.",
)
pin_option = click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="TENSOR=DIM[,DIM...]",
    help="Cut a tensor along one dimension for all steps, or one per step; -1 leaves it "
    "whole. Default: $TOFU_PINS.",
)
pin_file_option = click.option(
    "--pins", "pin_file", metavar="FILE", help="A file of pins, one per line, comments after #."
)
objective_option = click.option(
    "--objective",
    metavar="|".join(OBJECTIVES),
    help="What the search minimises: the bytes that workers fetch, or the predicted time of a "
    "step on --machine. Default: $TOFU_OBJECTIVE, else bytes.",
)
machine_option = click.option(
    "--machine",
    metavar="FILE|NAME",
    help="Predict the time of a step on this machine: a machine file (tofu calibrate writes one) "
    "or a machine that tofu ships (docs/simulation.md). Default: $TOFU_MACHINE.",
)
memory_option = click.option(
    "--memory",
    metavar="SIZE",
    help="What a worker may hold, such as 12GiB: take the cheapest plan that fits, with whole "
    "tensors if there is memory to spare. Default: $TOFU_MEMORY.",
)
recompute_option = click.option(
    "--recompute",
    metavar="|".join(RECOMPUTES),
    help="Activations that the backward pass computes again instead of keeping them: as few as "
    "the memory needs, none, or all that help. Default: $TOFU_RECOMPUTE, else auto.",
)
mesh_option = click.option(
    "--mesh",
    metavar="K,K,...",
    help="The sizes of a mesh's dimensions, outermost first, for a module of PyTorch. Default: "
    "all meshes of --workers.",
)
meshes_option = click.option(
    "--mesh",
    "meshes",
    multiple=True,
    metavar="K,K,...",
    help="For a module of PyTorch: the sizes of a mesh's dimensions, outermost first; may be "
    "repeated. Default: all meshes of --workers.",
)
keep_fetched_option = click.option(
    "--keep-fetched",
    metavar="SIZE|auto",
    help="By how much a worker's peak may grow, such as 512MiB, for fetched regions that it keeps "
    "until they are read again, also in the backward pass; auto: by what --memory leaves. "
    "Default: $TOFU_KEEP_FETCHED.",
)
allow_replication_option = click.option(
    "--allow-replication",
    is_flag=True,
    help="Let every worker hold a tensor whole if that communicates less; same as "
    "$TOFU_REPLICATION=1.",
)
allow_replication_within_option = click.option(
    "--allow-replication-within",
    metavar="SHARE",
    help="The same as long as no worker holds so much more than if every tensor is cut, such as "
    "2%; same as $TOFU_REPLICATION=2%.",
)


def _use_files(context: click.Context, parameter: click.Parameter, files: tuple[str, ...]) -> None:
    """Let this process and those it starts load the files."""
    if files:
        paths = [os.environ.get("TOFU_DESCRIBE", ""), *map(os.path.abspath, files)]
        os.environ["TOFU_DESCRIBE"] = os.pathsep.join(filter(None, paths))
        Config.from_environment()


shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=D,D,...",
    help="Shape of an input of a symbol file; may be repeated. Of a config.json: input_ids=N,WORDS",
)
optimizer_option = click.option(
    "--optimizer",
    type=click.Choice(["none", "sgd", "sgd_mom", "adam"]),
    help="Update of the parameters to plan for. Default: a script's own; adam for a module, sgd "
    "for a symbol file or a model.",
)
batch_size_option = click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Batch size of a model, or of a config.json. Default: the model's own, or 8.",
)
describe_option = click.option(
    "--describe",
    multiple=True,
    metavar="FILE",
    expose_value=False,
    callback=_use_files,
    help="A Python file that describes your operators; adds to $TOFU_DESCRIBE.",
)


everything_option = click.option(
    "--all", "everything", is_flag=True, help="Text format: show every tensor and operator."
)
layers_option = click.option(
    "--layers", is_flag=True, help="Text format: bytes by layer and direction."
)


def count_option(default: str) -> Callable[[_Decorated], _Decorated]:
    """The option --count, which is how a worker's bytes are counted."""
    return click.option(
        "--count", type=click.Choice((EXACT, ESTIMATE)), default=default, show_default=True,
        help="How to count a worker's bytes: as the framework will allocate them, or by a quick "
        "estimate.",
    )  # fmt: skip


def format_option(formats: Sequence[str], text: str) -> Callable[[_Decorated], _Decorated]:
    """The option --format, whose default is text; `text` is its help."""
    return click.option(
        "--format", "form", type=click.Choice(formats), default="text", show_default=True, help=text
    )


def is_module(target: str) -> bool:
    """Whether a target is a module of PyTorch."""
    is_named = target.endswith(".pt2") or (":" in target and not target.endswith((".py", ".json")))
    return is_named or is_config_file(target)


def is_config_file(target: str) -> bool:
    """Whether a target is a configuration of Hugging Face's transformers."""
    if not target.endswith(".json") or not os.path.isfile(target):
        return False
    try:
        with open(target, "rb") as file:
            head = file.read(16 * _HEAD_BYTES)
    except OSError:
        return False
    return b'"model_type"' in head and b'"nodes"' not in head


def check_no_module(name: str) -> None:
    """Raise ConfigError for a module of PyTorch."""
    if is_module(name) and not os.path.isfile(name):
        raise ConfigError(
            f"{name}: a module of PyTorch; only tofu plan, estimate, compare, check, frontier and "
            "simulate take one, with --mesh, and tofu verify --framework torch"
        )


def check_script(name: str) -> None:
    """Raise ConfigError unless `name` is a file that may be a script or a symbol."""
    check_no_module(name)
    if not os.path.isfile(name):
        what = "is a folder" if os.path.isdir(name) else "no such file"
        raise ConfigError(f"{name}: {what}; expected the path of a script or a symbol file")
    try:
        with open(name, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read ({error.strerror})") from None
    if head.lstrip().startswith(b"{") and b'"format"' in head and b"tofu-plan" in head:
        raise ConfigError(
            f"{name}: a saved plan, not a script; tofu show {name} prints it, and "
            f"tofu run --plan {name} SCRIPT uses it"
        )
    if b"\0" in head:
        raise ConfigError(f"{name}: not a text file; expected a Python script or a symbol file")


def tell_misplaced(context: click.Context, target: str, args: Sequence[str]) -> None:
    """Tell of arguments after the script that look like options of this command.

    Not after a "--", which says that they are the script's.
    """
    if _SEPARATED in context.meta:
        return
    option_names = {
        name: option.name
        for option in context.command.params
        if isinstance(option, click.Option)
        for name in option.opts
    }
    misplaced = [
        arg
        for arg in args
        for option in [option_names.get(arg.partition("=")[0])]
        if arg.startswith("--") and option is not None and not _is_given(context, option)
    ]
    if misplaced:
        click.echo(
            f"tofu: the script gets {' and '.join(misplaced)}, which {target} precedes; to give it "
            f"to tofu, put it before {target}",
            err=True,
        )


def _is_given(context: click.Context, parameter: str) -> bool:
    return context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _machine(text: str) -> str:
    read_machine(text)
    return text


def _objective(text: str) -> str:
    if text not in OBJECTIVES:
        raise ConfigError(f"--objective {text}: expected {' or '.join(OBJECTIVES)}")
    if text == "time" and not os.environ.get("TOFU_MACHINE"):
        raise ConfigError(
            "--objective time: expected --machine as well, to predict times: a machine file "
            "that tofu calibrate wrote, or a name of docs/simulation.md"
        )
    return text


def _memory(text: str) -> str:
    parse_bytes(text, "--memory")
    return text


def _keep_fetched(text: str) -> str:
    if text.strip().lower() != AUTO:
        parse_bytes(text, "--keep-fetched")
    return text


# By option, in the order in which they are checked: the variable, and the check of the text.
_VARIABLES: dict[str, tuple[str, Callable[[str], str]]] = {
    "search": ("TOFU_SEARCH", lambda text: parse_mode(text, "--search")),
    "machine": ("TOFU_MACHINE", _machine),
    "objective": ("TOFU_OBJECTIVE", _objective),
    "plan": ("TOFU_PLAN", str),
    "fetch": ("TOFU_FETCH", str),
    "memory": ("TOFU_MEMORY", _memory),
    "recompute": ("TOFU_RECOMPUTE", lambda text: parse_recompute(text, "--recompute")),
    "keep_fetched": ("TOFU_KEEP_FETCHED", _keep_fetched),
    "workers": ("TOFU_WORKERS", lambda text: str(parse_workers(text, "--workers"))),
    "device": ("TOFU_DEVICE", str),
    "log": ("TOFU_LOG", str),
}


def set_variables(
    *,
    pins: tuple[str, ...] = (),
    pin_file: Optional[str] = None,
    allow_replication: bool = False,
    allow_replication_within: Optional[str] = None,
    **texts: Optional[str],
) -> None:
    """Set the variables of the options that are given, for this process and those it starts.

    Raises ConfigError for invalid values.
    """
    for option, (variable, checked) in _VARIABLES.items():
        text = texts.get(option)
        if text is not None:
            os.environ[variable] = checked(text)
    if allow_replication:
        os.environ["TOFU_REPLICATION"] = "1"
    if allow_replication_within is not None:
        if allow_replication:
            raise ConfigError("--allow-replication and --allow-replication-within: give one")
        parse_share(allow_replication_within, "--allow-replication-within")
        os.environ["TOFU_REPLICATION"] = allow_replication_within
    if pins or pin_file:
        file_pins = read_pins(Path(pin_file), "--pins") if pin_file else ()
        pin_texts = [*map(_pin_text, file_pins), *pins]
        os.environ["TOFU_PINS"] = " ".join(map(_pin_text, parse_pins(pin_texts, "--pin")))


def _pin_text(pin: tuple[str, tuple[int, ...]]) -> str:
    # Spaces separate pins; tofu.plans.names.matching does without them.
    return f"{pin[0].replace(' ', '')}={','.join(map(str, pin[1]))}"


def switch_on(**settings: Any) -> Config:
    """Set variables as ``set_variables`` does, and enable tofu."""
    set_variables(**settings)
    os.environ["MXNET_GRAPH_PASS"] = "tofu"
    return Config.from_environment()

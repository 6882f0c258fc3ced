"""Opens the target of a command: the only place that knows of which front end it is."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import click
from click.core import ParameterSource

from tofu.cli.mxnet_model import MXNetModel, check_target
from tofu.cli.options import is_module, set_variables, switch_on, tell_misplaced
from tofu.config import Config, parse_workers
from tofu.errors import ConfigError
from tofu.planner.model import Devices, Model
from tofu.plans.file import PlanFile

__all__ = ["Opened", "check_options", "open_model", "parse_mesh", "torch_module"]


class Opened(NamedTuple):
    """A target with the settings of its command.

    Attributes:
        model: the target.
        devices: those of the command line, or the target's usual ones.
        config: the settings.
    """

    model: Model
    devices: list[Devices]
    config: Config


def open_model(
    target: str,
    args: Sequence[str],
    *,
    workers: Optional[str],
    meshes: Sequence[str] = (),
    usual: Optional[Sequence[int]] = None,
    settings: dict[str, Any],
    shapes: Sequence[str] = (),
    optimizer: Optional[str],
    batch_size: Optional[int] = None,
    saved: Optional[PlanFile] = None,
) -> Opened:
    """The target of the command that runs.

    Args:
        target: a script, a symbol file, a model's name, or a module of PyTorch.
        args: arguments of a script.
        workers: numbers of workers, as on the command line; None: not given.
        meshes: sizes of meshes, as on the command line.
        usual: numbers of workers if neither is given; None: the target's own default.
        settings: options that become variables (``set_variables``).
        shapes: as for ``MXNetModel``.
        optimizer: the optimizer whose state counts; None: none.
        batch_size: as for ``MXNetModel``.
        saved: as for ``MXNetModel``.

    Raises:
        ConfigError: the target has not one of the options given, or there is no such target.
    """
    context = click.get_current_context()
    if workers is not None and meshes:
        raise ConfigError("--mesh and --workers: a mesh says how many ranks there are; give one")
    counts = [parse_workers(text, "--workers") for text in workers.split(",")] if workers else []
    if usual is None and len(counts) > 1:
        raise ConfigError(f"--workers {workers}: expected one number of workers")
    given = [Devices(math.prod(mesh), mesh) for mesh in map(parse_mesh, meshes)]
    who = f"tofu {context.info_name}"
    model: Model
    if given or is_module(target):
        module_model = torch_module("module_model", f"{who} {target}")
        model = module_model.ModuleModel(target, optimizer)
        _refuse(context, model)
        set_variables(**settings)
    else:
        check_target(who, target, batch_size, shapes)
        tell_misplaced(context, target, args)
        os.environ.pop("TOFU_PLAN", None)
        first = next(iter(counts or usual or ()), None)
        switch_on(workers=None if first is None else str(first), **settings)
        model = MXNetModel(
            target, args, shapes=shapes, optimizer=optimizer, batch_size=batch_size, saved=saved
        )
        _refuse(context, model)
    config = Config.from_environment()
    if not given:
        counts = counts or list(usual or ()) or [config.workers or model.default_workers()]
        given = [devices for count in counts for devices in model.devices(count)]
    return Opened(model, given, config)


def _refuse(context: click.Context, model: Model) -> None:
    """Raise ConfigError for a given option that the model does not have."""
    for option in context.command.params:
        reason = model.refused.get(option.name or "")
        source = context.get_parameter_source(option.name or "")
        if reason is not None and source is ParameterSource.COMMANDLINE:
            name = option.opts[0] if isinstance(option, click.Option) else "arguments"
            raise ConfigError(f"tofu {context.info_name} {model.name}: {name}: {reason}")


def check_options(context: click.Context, others: Sequence[str]) -> None:
    """Raise ConfigError if one of these options is given, which PyTorch's modules do not have."""
    for name in others:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise ConfigError(f"tofu {context.info_name} --mesh: --{option} is not for PyTorch")


def parse_mesh(text: str) -> tuple[int, ...]:
    """The sizes of a mesh, "2,4". Raises ConfigError."""
    try:
        sizes = tuple(int(each) for each in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"--mesh {text}: expected the sizes of its dimensions, such as 2,4")
    return sizes


def torch_module(name: str, who: str) -> Any:
    """A module of ``tofu.torch``. Raises ConfigError if torch is not installed."""
    try:
        return importlib.import_module(f"tofu.torch.{name}")
    except ImportError as error:
        raise ConfigError(
            f"{who} needs torch 2.9, but it cannot be imported ({error}); install tofu with the "
            "extra [torch], in an environment without MXNet"
        ) from error

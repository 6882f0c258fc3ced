"""Opens the target of a command: the only place that knows of which front end it is."""

from __future__ import annotations

import functools
import importlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import click
from click.core import ParameterSource

from tofu.cli.mxnet_model import NO_SYMBOL, MXNetModel, SymbolInputs
from tofu.cli.options import is_module, set_variables, switch_on, tell_misplaced
from tofu.config import Config, parse_workers
from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.planner.model import Devices, Model
from tofu.plans.file import read as read_plans

__all__ = ["Opened", "open_model", "refuse", "torch_module"]

# Options of a search, which a saved plan does not need.
_SEARCHED = ("search", "allow_replication", "allow_replication_within", "objective")


class Opened:
    """A target with the settings of its command.

    Attributes:
        model: the target.
        config: the settings.
        given: the devices of the command line.
    """

    def __init__(
        self,
        model: Model,
        config: Config,
        given: list[Devices],
        usual: Optional[Sequence[int]] = None,
    ) -> None:
        self.model = model
        self.config = config
        self.given = given
        self._usual = usual

    @functools.cached_property
    def devices(self) -> list[Devices]:
        """Those of the plan given or of the command line, else the target's usual ones."""
        planned = self.model.planned(self.given)
        if planned is not None:
            return [planned]
        if self.given:
            return self.given
        if self._usual is not None:
            return self.model.arranged(self.model.usual(self._usual))
        return self.model.arranged([self.config.workers or self.model.default_workers()])


def open_model(
    target: str,
    args: Sequence[str],
    *,
    workers: Optional[str],
    meshes: Sequence[str] = (),
    usual: Optional[Sequence[int]] = None,
    settings: dict[str, Any],
    symbol: SymbolInputs = NO_SYMBOL,
    optimizer: Optional[str],
    batch_size: Optional[int] = None,
    lora: Optional[str] = None,
    plan: Optional[str] = None,
    all_graphs: bool = False,
) -> Opened:
    """The target of the command that runs.

    Args:
        target: a script, a symbol file, a model's name, or a module of PyTorch.
        args: arguments of a script.
        workers: numbers of workers, as on the command line; None: not given.
        meshes: sizes of meshes, as on the command line.
        usual: numbers of workers if neither is given; None: the target's own default.
        settings: options that become variables (``set_variables``).
        symbol: as for ``MXNetModel``.
        optimizer: the optimizer whose state counts, or "none"; None: the target's usual one.
        batch_size: as for ``MXNetModel``.
        lora: as for ``ModuleModel``.
        plan: the file of a plan to use instead of a search, or None.
        all_graphs: as for ``MXNetModel``.

    Raises:
        ConfigError: the target has not one of the options given, or there is no such target.
    """
    context = click.get_current_context()
    if workers is not None and meshes:
        raise ConfigError("--mesh and --workers: a mesh says how many ranks there are; give one")
    texts = [] if workers is None else workers.split(",")
    counts = [parse_workers(text, "--workers") for text in texts]
    if plan is not None:
        refuse(context, target, dict.fromkeys(_SEARCHED, f"the plan {plan} is not searched again"))
    if usual is None and len(counts) > 1:
        raise ConfigError(f"--workers {workers}: expected one number of workers")
    meshed = [Devices(math.prod(mesh), mesh) for mesh in map(_mesh, meshes)]
    who = f"tofu {context.info_name}"
    model: Model
    if is_module(target):
        module = torch_module("module_model", f"{who} {target}").ModuleModel
        has_own = {} if plan is None else {"optimizer": f"the plan {plan} has its own"}
        refuse(context, target, {**module.refusals(target), **has_own})
        set_variables(**settings)
        model = module(
            target, _update(optimizer or module.usual_optimizer), plan, shapes=symbol.shapes,
            batch_size=batch_size, lora=lora,
        )  # fmt: skip
    else:
        refuse(context, target, MXNetModel.refusals(target))
        check_mxnet(who, load=False)
        tell_misplaced(context, target, args)
        os.environ.pop("TOFU_PLAN", None)
        saved = None if plan is None else read_plans(Path(plan))
        most = max(counts or usual or (saved.workers[:1] if saved is not None else (0,)))
        switch_on(workers=str(most) if most else None, plan=plan, **settings)
        model = MXNetModel(
            target, args, symbol=symbol, optimizer=_update(optimizer or MXNetModel.usual_optimizer),
            batch_size=batch_size, saved=saved, all_graphs=all_graphs,
        )  # fmt: skip
    given = meshed or model.arranged(counts)
    return Opened(model, Config.from_environment(), given, usual)


def _update(optimizer: str) -> Optional[str]:
    return None if optimizer == "none" else optimizer


def refuse(context: click.Context, target: str, refusals: Mapping[str, str]) -> None:
    """Raise ConfigError for a given option that the target does not have."""
    for option in context.command.params:
        reason = refusals.get(option.name or "")
        source = context.get_parameter_source(option.name or "")
        if reason is not None and source is ParameterSource.COMMANDLINE:
            is_option = isinstance(option, click.Option)
            name = option.opts[0] if is_option else repr(context.params[option.name or ""][0])
            raise ConfigError(f"tofu {context.info_name} {target}: {name}: {reason}")


def _mesh(text: str) -> tuple[int, ...]:
    """The sizes of a mesh, "2,4". Raises ConfigError."""
    try:
        sizes = tuple(int(each) for each in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"--mesh {text}: expected the sizes of its dimensions, such as 2,4")
    return sizes


def torch_module(name: str, who: str) -> Any:
    """A module of ``tofu.torch.commands``. Raises ConfigError if torch is not installed."""
    try:
        return importlib.import_module(f"tofu.torch.commands.{name}")
    except ImportError as error:
        raise ConfigError(
            f"{who} needs torch 2.9, but it cannot be imported ({error}); install tofu with the "
            "extra [torch], in an environment without MXNet"
        ) from error

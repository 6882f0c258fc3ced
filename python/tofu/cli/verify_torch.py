"""``tofu verify --framework torch``: strategies of ATen operators, on the calls of modules."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from tofu.cli.model import torch_module
from tofu.errors import ConfigError

__all__ = ["verify_modules"]


def verify_modules(targets: Sequence[str], seed: int) -> bool:
    """Run every split of the operators that modules call; print what was found.

    Args:
        targets: names of tofu's small modules, or ``package.module:function``; none: all of the
            former.
        seed: of parameters and inputs.

    Returns:
        Whether no strategy is false.

    Raises:
        ConfigError: torch is not installed, or there is no such module.
    """
    verify = torch_module("verify", "tofu verify --framework torch")
    models = torch_module("models", "tofu verify --framework torch")
    loading = torch_module("loading", "tofu verify --framework torch")
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    unknown = [name for name in targets if name not in models.SMALL and ":" not in name]
    if unknown:
        raise ConfigError(
            f"tofu verify --framework torch: {unknown[0]}: expected package.module:function or one "
            f"of {', '.join(models.SMALL)}"
        )
    false: list[str] = []
    for name in targets or models.SMALL:
        torch.manual_seed(seed)
        is_model = name in models.SMALL
        model, *inputs = models.MODELS[name](torch.float64) if is_model else loading.load(name)
        report = verify.verify_module(model, *inputs)
        click.echo(
            f"{name}: {report.calls} calls, {report.described} described, {report.strategies} "
            f"splits of {len(report.operators)} operators run, {len(report.false)} false"
        )
        false += report.false
        for operator in sorted(report.undescribed):
            click.echo(f"  {operator} has no description")
        for fault in report.false:
            click.echo(f"  {fault}")
    return not false

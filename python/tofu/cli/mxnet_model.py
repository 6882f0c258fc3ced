"""MXNet's targets: scripts, symbol files and models by name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from tofu.cli.inputs import Found, first_of_script
from tofu.cli.options import check_no_module, check_script
from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.mx.model.batch_graphs import BatchGraphs
from tofu.mx.model.sources import (
    SymbolRequest,
    check_symbol_text,
    default_workers,
    from_model,
    from_symbol,
    graphs_of_model,
    names_model,
)
from tofu.planner.estimate import batch_of
from tofu.planner.model import Devices, Model
from tofu.planner.recomputation import recomputed
from tofu.plans import Problem
from tofu.plans.file import PlanFile

__all__ = ["MXNetModel", "check_target"]


class MXNetModel(Model):
    """A script, a symbol file or a model of MXNet; a script runs when its graph is asked for.

    Args:
        target: the target of the command line.
        args: a script's arguments.
        shapes: shapes of a symbol's inputs, as on the command line.
        optimizer: update of a model's or symbol's parameters; None: no update.
        batch_size: a model's; None: its own.
        saved: plans of models and symbols; a script's are in TOFU_PLAN.
        recomputes: whether as few activations as possible are kept: the others are computed again.

    Raises:
        ConfigError: a shape cannot be read.
        GraphError: the symbol file is none.
    """

    def __init__(
        self,
        target: str,
        args: Sequence[str],
        *,
        shapes: Sequence[str] = (),
        optimizer: Optional[str] = "sgd",
        batch_size: Optional[int] = None,
        saved: Optional[PlanFile] = None,
        recomputes: bool = False,
    ) -> None:
        super().__init__(target)
        self._args = args
        self._batch_size = batch_size
        self._saved = saved
        self._recomputes = recomputes
        self._optimizer = optimizer
        self._is_model = names_model(target)
        self._request: Optional[SymbolRequest] = None
        # Whether the graph can be made for other batch sizes; a script's cannot.
        self.scales = not target.endswith(".py") and (self._is_model or target.endswith(".json"))
        if not self._is_model and target.endswith(".json"):
            self._request = SymbolRequest.parse(
                Path(target), shapes=shapes, dtypes=(), inputs=(), optimizer=self._optimizer,
                predict=False,
            )  # fmt: skip
            check_symbol_text(self._request.path)
        self._of_model = functools.lru_cache(maxsize=1)(self._made)
        self._graphs: Optional[BatchGraphs] = None

    def problem(self, devices: Devices, batch: Optional[int] = None) -> Problem:
        """The graph; a saved plan is looked for by the number of workers."""
        plain = self._plain(devices, batch)
        again = recomputed(plain.table).table if self._recomputes else plain.table
        return plain if again is plain.table else plain.replaced(again)

    def _plain(self, devices: Devices, batch: Optional[int]) -> Problem:
        if self._request is not None:
            scaled = _scaled(self._request, batch)
            return from_symbol(scaled, workers=devices.workers, saved=self._saved)
        if not self._is_model:
            return dataclasses.replace(self._of_script.problems[0], workers=devices.workers)
        made = self._of_model(batch, 1 if self._saved is None else devices.workers)
        return dataclasses.replace(made, workers=devices.workers)

    def batch_size(self, problem: Problem) -> int:
        """That of the command line, else a model's own, else the extent that most inputs share."""
        from tofu import models

        own = models.find(self.name).batch_size if self._is_model else 0
        return self._batch_size or own or batch_of(problem)

    def default_workers(self) -> int:
        """The number of workers of a run."""
        return default_workers()

    def states(self) -> Optional[int]:
        """Tensors that a script's Trainer keeps for a parameter; None: unknown."""
        return None if self.scales else self._of_script.states

    def _made(self, batch: Optional[int], workers: int) -> Problem:
        if self._graphs is None:
            self._graphs = graphs_of_model(self.name, optimizer=self._optimizer)
        return from_model(
            self.name, batch_size=batch or self._batch_size, optimizer=self._optimizer,
            workers=workers, saved=self._saved, graphs=self._graphs,
        )  # fmt: skip

    @functools.cached_property
    def _of_script(self) -> Found:
        return first_of_script(Path(self.name), self._args)


def check_target(
    command: str, target: str, batch_size: Optional[int], shapes: Sequence[str]
) -> None:
    """Raise ConfigError unless it is a model or a file, with options that it can have.

    Without MXNet, raise MissingMXNetError.
    """
    check_no_module(target)
    check_mxnet(command, load=False)
    is_model = names_model(target)
    if not is_model:
        check_script(target)
    if (batch_size is not None and not is_model) or (shapes and not target.endswith(".json")):
        raise ConfigError(
            f"{command} {target}: --batch-size is only for a model, --shape for a symbol file"
        )


def _scaled(request: SymbolRequest, batch: Optional[int]) -> SymbolRequest:
    """The request for another batch: the first extent that its first shape has, everywhere."""
    if batch is None or not request.shapes:
        return request
    before = next(iter(request.shapes.values()))[0]
    shapes = {
        name: (batch, *shape[1:]) if shape[0] == before else shape
        for name, shape in request.shapes.items()
    }
    return dataclasses.replace(request, shapes=shapes)

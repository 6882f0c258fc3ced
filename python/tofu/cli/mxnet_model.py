"""MXNet's targets: scripts, symbol files and models by name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from tofu.cli.inputs import Found, first_of_script, graphs_of_script
from tofu.cli.isolated import isolated
from tofu.cli.options import check_script
from tofu.errors import ConfigError
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
from tofu.plans import Problem
from tofu.plans.file import PlanFile
from tofu.plans.runs import Runs

__all__ = ["NO_SYMBOL", "MXNetModel", "SymbolInputs"]

_MODEL, _SYMBOL, _SCRIPT = "model", "symbol", "script"
_NO_MESH = "only for a module of PyTorch; expected package.module:function or FILE.pt2"
_NO_LORA = "only for a config.json of Hugging Face's transformers"


class SymbolInputs(NamedTuple):
    """What the command line says of a symbol file.

    Attributes:
        shapes, dtypes, inputs: the texts of --shape, --dtype and --input.
        predict: whether to plan the forward pass only.
    """

    shapes: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    inputs: Sequence[str] = ()
    predict: bool = False


NO_SYMBOL = SymbolInputs()


class MXNetModel(Model):
    """A script, a symbol file or a model of MXNet; a script runs when its graph is asked for.

    Args:
        target: the target of the command line.
        args: a script's arguments.
        symbol: for a symbol file.
        optimizer: update of a model's or symbol's parameters; None: no update.
        batch_size: a model's; None: its own.
        saved: plans of models and symbols; a script's are in TOFU_PLAN.
        all_graphs: whether all graphs of a script's step are looked for, not the first only.

    Raises:
        ConfigError: there is no such target, or a shape cannot be read.
        GraphError: the symbol file is none.
        MissingMXNetError: MXNet is not installed.
    """

    def __init__(
        self,
        target: str,
        args: Sequence[str],
        *,
        symbol: SymbolInputs = NO_SYMBOL,
        optimizer: Optional[str] = "sgd",
        batch_size: Optional[int] = None,
        saved: Optional[PlanFile] = None,
        all_graphs: bool = False,
    ) -> None:
        super().__init__(target)
        self._args = args
        self._batch_size = batch_size
        self._saved = saved
        self._optimizer = optimizer
        self._all_graphs = all_graphs
        self._kind = _kind(target)
        if self._kind != _MODEL:
            check_script(target)
        self._request: Optional[SymbolRequest] = None
        # Whether the graph can be made for other batch sizes; a script's cannot.
        self.scales = self._kind != _SCRIPT
        if self._kind == _SYMBOL:
            self._request = SymbolRequest.parse(
                Path(target), shapes=symbol.shapes, dtypes=symbol.dtypes, inputs=symbol.inputs,
                optimizer=self._optimizer, predict=symbol.predict,
            )  # fmt: skip
            check_symbol_text(self._request.path)
        self._of_model = functools.lru_cache(maxsize=1)(self._made)
        self._graphs: Optional[BatchGraphs] = None

    @staticmethod
    def refusals(target: str) -> Mapping[str, str]:
        """The options that this kind of target does not have, by parameter, with the reason."""
        kind = _kind(target)
        has_own = f"only for a symbol file (SYMBOL.json); a {kind} has its own shapes"
        own_shapes = dict.fromkeys(("shapes", "dtypes", "inputs", "predict"), has_own)
        of_kind = {
            _MODEL: {**own_shapes, "args": "only a script takes arguments"},
            _SYMBOL: {
                "args": "only a script takes arguments",
                "batch_size": "only for a model's name; --shape gives a symbol's",
            },
            _SCRIPT: {
                **own_shapes,
                "batch_size": "only for a model's name",
                "optimizer": "only for a symbol file or a model; a script has its own "
                "gluon.Trainer",
            },
        }
        others = {**dict.fromkeys(("mesh", "meshes"), _NO_MESH), "lora": _NO_LORA}
        return {**others, **of_kind[kind]}

    def problem(self, devices: Devices, batch: Optional[int] = None) -> Problem:
        """The graph; a saved plan is looked for by the number of workers."""
        if self._request is not None:
            scaled = _scaled(self._request, batch)
            return from_symbol(scaled, workers=devices.workers, saved=self._saved)
        if self._kind == _SCRIPT:
            return self.problems(devices)[0]
        made = self._of_model(batch, 1 if self._saved is None else devices.workers)
        return dataclasses.replace(made, workers=devices.workers)

    def problems(self, devices: Devices) -> Sequence[Problem]:
        """All graphs that a script's first training step trains; one of other targets."""
        if self._kind != _SCRIPT:
            return [self.problem(devices)]
        found = self._of_script.problems
        return [dataclasses.replace(each, workers=devices.workers) for each in found]

    def guarded(self, run: Callable[[], None]) -> None:
        """Do the work in a process of its own for a symbol, on which MXNet may crash."""
        if self._kind != _SYMBOL:
            run()
            return
        isolated(
            run,
            f"{self.name}: MXNet crashed on it ({{}}); the file may be damaged: export it again "
            "with block.export or symbol.save",
        )

    def batch_size(self, problem: Problem) -> int:
        """That of the command line, else a model's own, else the extent that most inputs share."""
        from tofu import models

        own = models.find(self.name).batch_size if self._kind == _MODEL else 0
        return self._batch_size or own or batch_of(problem)

    def default_workers(self) -> int:
        """The number of workers of a run."""
        if self._kind == _SCRIPT:
            return self._of_script.problems[0].workers
        return default_workers()

    def planned(self, given: Sequence[Devices]) -> Optional[Devices]:
        """The number of workers given, or the first that the file has plans for."""
        if self._saved is None:
            return None
        workers = given[0].workers if given else self._saved.workers[0]
        self._saved.check_workers(workers)
        return Devices(workers)

    def trained(self, given: Sequence[Devices], *, steps: int, plan: Optional[str]) -> Runs:
        """Run a script in processes of its own; variables give them their workers."""
        if self._kind != _SCRIPT:
            raise ConfigError(
                f"{self.name}: a {self._kind} has no data to train with; expected a script"
            )
        from tofu.verify.script.record_runs import trained

        return trained(self.name, self._args, steps=steps, plan=plan)

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
        find = graphs_of_script if self._all_graphs else first_of_script
        return find(Path(self.name), self._args)


def _kind(target: str) -> str:
    if target.endswith(".py"):
        return _SCRIPT
    return _MODEL if names_model(target) else _SYMBOL if target.endswith(".json") else _SCRIPT


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

"""The training graph of a command's target, for several numbers of workers and batch sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from tofu.cli.inputs import Found, first_of_script
from tofu.cli.options import check_no_module, check_script
from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.mx.model.sources import (
    SymbolRequest,
    check_symbol_text,
    from_model,
    from_symbol,
    graphs_of_model,
    names_model,
)
from tofu.planner.recomputation import recomputed
from tofu.plans import Problem
from tofu.plans.file import PlanFile

__all__ = ["Target", "check_target"]

ProblemFor = Callable[[int, Optional[int]], Problem]


@dataclasses.dataclass(frozen=True)
class Target:
    """A script, a symbol file or a model.

    Attributes:
        problem: its graph for a number of workers and a batch size; None: its own batch.
        scales: whether the graph can be made for other batch sizes; a script's cannot.
        states: tensors that the optimizer of a script keeps for a parameter; None: unknown.
    """

    problem: ProblemFor
    scales: bool
    states: Callable[[], Optional[int]] = lambda: None

    @classmethod
    def open(
        cls,
        target: str,
        args: Sequence[str],
        *,
        shapes: Sequence[str] = (),
        optimizer: Optional[str] = "sgd",
        batch_size: Optional[int] = None,
        saved: Optional[PlanFile] = None,
    ) -> Target:
        """The target of a command line; a script runs when its graph is asked for.

        saved: plans of models and symbols; a script's are in TOFU_PLAN.

        Raises:
            ConfigError: a shape cannot be read.
            GraphError: the symbol file is none.
        """
        if names_model(target):
            graphs = graphs_of_model(target, optimizer=optimizer)

            @functools.lru_cache(maxsize=1)
            def of_model(batch: Optional[int], workers: int = 1) -> Problem:
                return from_model(
                    target,
                    batch_size=batch or batch_size,
                    optimizer=optimizer,
                    workers=workers,
                    saved=saved,
                    graphs=graphs,
                )

            if saved is not None:
                return cls(lambda k, batch: of_model(batch, k), True)
            return cls(lambda k, batch: dataclasses.replace(of_model(batch), workers=k), True)
        if target.endswith(".json"):
            request = SymbolRequest.parse(
                Path(target), shapes=shapes, dtypes=(), inputs=(), optimizer=optimizer,
                predict=False,
            )  # fmt: skip
            check_symbol_text(request.path)
            return cls(
                lambda k, batch: from_symbol(_scaled(request, batch), workers=k, saved=saved), True
            )

        @functools.cache
        def of_script() -> Found:
            return first_of_script(Path(target), args)

        def problem(workers: int, _: Optional[int]) -> Problem:
            return dataclasses.replace(of_script().problems[0], workers=workers)

        return cls(problem, False, lambda: of_script().states)

    def recomputing(self) -> Target:
        """The target with as few activations as possible: the others are computed again."""

        def problem(workers: int, batch: Optional[int]) -> Problem:
            plain = self.problem(workers, batch)
            again = recomputed(plain.table).table
            return plain if again is plain.table else plain.replaced(again)

        return dataclasses.replace(self, problem=problem)


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

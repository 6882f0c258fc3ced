"""``tofu.plan(...)``: a plan as an object, with its graph."""

from __future__ import annotations

import dataclasses
import functools
import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from tofu.config import Config
from tofu.errors import ConfigError
from tofu.installation import check_mxnet
from tofu.planner.decide import plan_problem
from tofu.planner.wish import Wish
from tofu.plans import OperatorPlan, Plan, Problem, TensorPlan
from tofu.plans.layers import Layer, layers_of
from tofu.plans.names import matching, near_text
from tofu.plans.render.explain import explain
from tofu.plans.render.html import render_html
from tofu.plans.render.layers import render_layers
from tofu.plans.render.text import render_text, summary

from .memory import with_memory
from .saving import save_plan
from .sources import SymbolRequest, from_block, from_model, from_symbol, names_model, of_symbol

__all__ = ["GraphPlan", "plan"]

_WHO = "tofu.plan"
_OPTIMIZERS = ("sgd", "sgd_mom", "adam", None)
_FRAME_HEIGHT = 600  # of the page in a notebook, in pixels


class GraphPlan:
    """A plan with its graph, as ``tofu.plan`` returns it.

    ``str(plan)`` is the text of ``tofu plan``; a notebook shows the plan's page.

    Attributes:
        problem: the graph and the number of workers.
        wish: how it was planned.
    """

    def __init__(self, problem: Problem, searched: Plan, wish: Wish) -> None:
        self.problem = problem
        self.wish = wish
        self._searched = searched

    @functools.cached_property
    def details(self) -> Plan:
        """The plan as data, with exact memory; counting that takes seconds for a large graph."""
        if self._searched.memory == "exact":
            return self._searched
        kept_bytes = self.wish.options.keep_fetched_bytes or 0
        return with_memory(
            self.problem, self._searched, self.wish.fetch, keep_fetched_bytes=kept_bytes
        )

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self._searched.workers

    @property
    def tensors(self) -> tuple[TensorPlan, ...]:
        """Every tensor with its cuts."""
        return self._searched.tensors

    @property
    def operators(self) -> tuple[OperatorPlan, ...]:
        """Every operator with its splits and the bytes that it fetches."""
        return self._searched.operators

    @property
    def layers(self) -> list[Layer]:
        """Bytes by layer and direction."""
        return layers_of(self._searched)

    @property
    def bytes(self) -> int:
        """Bytes that all workers together communicate in a training step."""
        return self._searched.total_bytes

    @property
    def lower_bound_bytes(self) -> int:
        """A bound: no plan of the same steps communicates fewer bytes."""
        return self._searched.lower_bound_bytes

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes that MXNet will allocate on the fullest worker, by kind."""
        return self.details.bytes_per_worker

    def tensor(self, name: str) -> TensorPlan:
        """Find a tensor by its name or the end of its name.

        Raises:
            ConfigError: the graph has none of that name, or several.
        """
        by_name = {tensor.name: tensor for tensor in self.tensors}
        names = matching(name, by_name)
        if len(names) != 1:
            raise ConfigError(
                f"{name}: {len(names)} tensors of that name" + near_text(name, by_name)
            )
        return by_name[names[0]]

    def explain(self, name: str) -> str:
        """Explain the cost of each way to cut a tensor or to split an operator.

        Args:
            name: a tensor or an operator, a pattern, or the end of one name.

        Raises:
            ConfigError: the graph has none of that name.
        """
        nodes = dict.fromkeys(node.name for node in self.problem.graph.nodes)
        names = matching(name, nodes) or matching(name, self.problem.graph.tensor_names)
        if not names:
            raise ConfigError(
                f"{name}: no tensor or operator of that name" + near_text(name, nodes)
            )
        return "\n".join(explain(self.problem, self._searched, each).to_text() for each in names)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Save the plan for ``tofu run --plan``; the file keeps its plans for other graphs.

        Raises:
            ConfigError: the file exists and is not a plan file, or cannot be written.
        """
        save_plan(Path(path), self.problem, self._searched)

    def to_json(self) -> str:
        """The plan document (docs/formats.md)."""
        return self.details.to_json()

    def to_text(self, *, layers: bool = False, everything: bool = False) -> str:
        """The tables of ``tofu plan``.

        Args:
            layers: whether to show layers instead of tensors and operators.
            everything: whether to show every tensor and operator.
        """
        if layers:
            return render_layers(self.details)
        return render_text(self.details, everything=everything)

    def to_html(self) -> str:
        """The self-contained page of ``tofu plan --format html``."""
        return render_html(self.details, graph=self.problem.graph)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<tofu.plan of {self.problem.name}: {summary(self._searched)[0]}>"

    def _repr_html_(self) -> str:
        """The page, in a frame, since it has styles of its own."""
        page = html.escape(self.to_html(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="{_FRAME_HEIGHT}"></iframe>'


def plan(
    model: Any,
    *inputs: Any,
    workers: Optional[int] = None,
    device: Optional[str] = None,
    shapes: Optional[Mapping[str, Sequence[int]]] = None,
    dtypes: Optional[Mapping[str, str]] = None,
    optimizer: Optional[str] = "sgd",
    predict: bool = False,
    batch_size: Optional[int] = None,
    search: Optional[str] = None,
    pins: Optional[Mapping[str, Union[int, Sequence[int]]]] = None,
    allow_replication: Union[bool, str, None] = None,
    objective: Optional[str] = None,
    machine: Optional[Union[str, os.PathLike[str]]] = None,
    memory: Optional[str] = None,
    recompute: Optional[str] = None,
    keep_fetched: Optional[str] = None,
    fetch: Optional[str] = None,
    time_limit_s: Optional[float] = None,
) -> GraphPlan:
    """Plan a training graph; nothing is run.

    The plan is that of ``tofu plan`` with the same options. Arguments that are None, but for the
    optimizer, come from the variables of the command, such as TOFU_WORKERS, or are its defaults.

    Args:
        model: a model's name (docs/models.md), the file of a saved symbol, a symbol, or a
            HybridBlock.
        *inputs: for a block, an array or a shape for each input.
        workers: number of workers; by default all GPUs, else 2.
        device: "gpu" or "cpu"; by default GPUs if there are any.
        shapes: for a symbol, the shapes of its inputs, by name.
        dtypes: data types of inputs, by name; "" stands for all others.
        optimizer: "sgd", "sgd_mom", "adam", or None for no update.
        predict: whether to plan the forward pass only.
        batch_size: for a model's name; None: the model's own.
        search: one of the search modes (docs/search.md).
        pins: tensors, by name or pattern, to the dimension to cut, or one per step.
        allow_replication: whether large tensors may stay whole if that communicates less; "2%": as
            long as no worker holds so much more than if all are cut; by default only with a memory
            limit.
        objective: what to minimise, "bytes" or "time".
        machine: a machine file or name that predicts times; the objective time needs it.
        memory: memory that a worker may hold, such as "12GiB"; the plan is the cheapest found that
            fits.
        recompute: which activations the backward pass computes again: "auto" (as few as the
            memory limit needs), "none", or "all" (that save memory).
        keep_fetched: memory, such as "512MiB", by which a worker's peak may grow to keep fetched
            regions; "auto": all that is free.
        fetch: "multifetch" or "plain"; by default multifetch on CPUs, plain on GPUs.
        time_limit_s: seconds after which the search takes its best plan; None: 60.

    Raises:
        ConfigError: an argument has a value that cannot be used.
        GraphError: the graph's shapes do not fit.
        MemoryLimitError: no plan was found that fits in the memory.
        PlanError: a pin does not fit the graph.
    """
    check_mxnet(_WHO, load=True)
    if optimizer not in _OPTIMIZERS:
        raise ConfigError(
            f"{_WHO}: optimizer={optimizer!r}: expected 'sgd', 'sgd_mom', 'adam' or None"
        )
    if time_limit_s is not None and not time_limit_s > 0:
        raise ConfigError(f"{_WHO}: time_limit_s={time_limit_s!r}: expected seconds above 0")
    config = Config.from_arguments(
        _WHO,
        {
            "workers": workers, "device": device, "search": search, "objective": objective,
            "machine": machine, "memory": memory, "recompute": recompute,
            "keep_fetched": keep_fetched, "fetch": fetch,
        },
        pins,
        {"replication": allow_replication},
        without=("TOFU_PLAN",),  # always search
    )  # fmt: skip
    request = SymbolRequest(
        Path(),
        {name: tuple(shape) for name, shape in (shapes or {}).items()},
        {"": "float32", **(dtypes or {})},
        frozenset(),
        None if predict else optimizer,
        predict,
    )
    problem = _problem(model, inputs, request, batch_size, config)
    wish = Wish.of(config, time_limit_s=time_limit_s)
    return GraphPlan(*plan_problem(problem, wish), wish)


def _problem(
    model: Any,
    inputs: Sequence[Any],
    request: SymbolRequest,
    batch_size: Optional[int],
    config: Config,
) -> Problem:
    import mxnet as mx

    is_name = isinstance(model, str) and names_model(model)
    if batch_size is not None and not is_name:
        raise ConfigError(f"{_WHO}: batch_size is only for a model's name")
    if inputs and (isinstance(model, (str, os.PathLike, mx.sym.Symbol))):
        raise ConfigError(
            f"{_WHO}: inputs are only for a block; a symbol has shapes={{name: shape}}"
        )
    if is_name:
        if request.shapes or request.predict:
            raise ConfigError(f"{_WHO}: {model} has its own shapes, and plans for training")
        return from_model(model, batch_size=batch_size, optimizer=request.optimizer, config=config)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not os.path.isfile(path):
            raise ConfigError(f"{_WHO}: {path}: no such file, and no model's name")
        return from_symbol(dataclasses.replace(request, path=path), config=config)
    if isinstance(model, mx.sym.Symbol):
        named = dataclasses.replace(request, path=Path(model.name or "symbol"))
        return of_symbol(model, named, config=config)
    return from_block(
        model,
        inputs,
        dtypes=request.dtypes,
        optimizer=request.optimizer,
        predict=request.predict,
        config=config,
    )

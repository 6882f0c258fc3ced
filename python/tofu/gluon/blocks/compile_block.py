"""From a block's symbol to its pool of programs: make the training graph, plan, tile parameters."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Collection, Mapping
from typing import Any, Callable, Optional

import mxnet as mx

from tofu.errors import InternalError, PlanError
from tofu.gluon.session import block_report, messages
from tofu.gluon.session.session import Session
from tofu.gluon.training.parameter import check_context, check_tileable, is_tiled, shape_of, tile
from tofu.gluon.training.tile_state import Update
from tofu.mx.devices import GraphUse
from tofu.mx.model.mxnet_programs import MXNET
from tofu.mx.nnvm import symbol_text
from tofu.planner.compile_plan import Compiled
from tofu.planner.wish import Wish
from tofu.plans import Problem, SearchOptions
from tofu.plans.layout import heads_of
from tofu.plans.parts import Parts

from . import saved_plans
from .memory_limits import BlockPrograms, decide_within
from .program_pool import Pool, Signature

__all__ = ["make_pool"]

_PREPARING = "preparing the training graph"


def make_pool(
    name: str,
    symbol: Any,
    parameters: Mapping[str, Any],
    signature: Signature,
    session: Session,
    *,
    first: bool,
) -> Pool:
    """Plan `symbol` for `signature`, and tile its parameters unless they are tiled already.

    Args:
        name: the block's name, for messages.
        symbol: the block's symbol.
        parameters: its initialized parameters by name.
        signature: shapes, dtypes and mode.
        session: the session, with its workers.
        first: whether this is the block's first graph. Only the first one issues warnings
            and logs its summary at level info; later ones log at level debug.

    Raises:
        TofuError: the graph cannot be partitioned, or a parameter cannot be tiled.
    """
    for parameter in parameters.values():
        if not is_tiled(parameter):
            check_tileable(parameter)
        for context in next(iter(parameters.values())).list_ctx():
            check_context(parameter, context)
    messages.many_workers(session)
    operators = [node["op"] for node in json.loads(symbol_text(symbol))["nodes"]]
    session.state.runs_python |= "Custom" in operators
    fetch = session.state.backend.usable_fetch(session.wish.fetch, session.contexts)
    prepared = _Prepared(name, symbol, parameters, signature, fetch, session)
    if fetch.reason is not None:
        messages.plain_fetch(fetch.reason, session)
    problem, wish = _posed(prepared)
    session.state.lookers.see_problem(problem)
    programs = BlockPrograms(parameters, fetch, session)
    compiled, footprint = decide_within(problem, wish, programs, session)
    if signature.gradients and not compiled.has_backward:
        raise PlanError("this mode computes no gradients; expected a backward graph")
    trained = signature.gradients if optimizer_kind(parameters) is not None else ()
    _tile_parameters(name, parameters, compiled, session, trained=trained)
    size = sum(math.prod(shape_of(parameter)) for parameter in parameters.values())
    plans = None if problem.saved is None else session.plans
    plan_file = None if plans is None else plans.path
    is_told = first and parameters
    block = block_report.Partitioned.of(
        name, compiled, parameters=size, plan_file=plan_file,
        forward_operators=len(operators) - operators.count("null"),
        serial_bytes=session.state.backend.serial_memory(problem) if is_told else 0,
    )  # fmt: skip
    block_report.partitioned(block, compiled, session, first=first)
    if first:
        if parameters:
            messages.replicated(name, compiled)
        if prepared.undescribed:
            messages.undescribed(name, prepared.undescribed, compiled)
    pool = Pool(compiled, parameters, signature, session, name)
    if footprint is not None:
        session.state.footprints[pool] = footprint
    return pool


class _Prepared:
    """The strategy table of a block's training graph, and the inputs from which it is made.

    Args:
        name: the block's name, for messages.
        symbol: the block's symbol.
        parameters: its initialized parameters by name.
        signature: shapes, dtypes and mode.
        fetch: how workers can fetch.
        session: the workers.

    Attributes:
        table: the strategy table of the training graph.
        undescribed: operators without a description, each with the reason.
    """

    def __init__(
        self,
        name: str,
        symbol: Any,
        parameters: Mapping[str, Any],
        signature: Signature,
        fetch: Any,
        session: Session,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.signature = signature
        self.session = session
        # MXNet refuses to bind a BatchNorm after a copy between workers.
        self._can_refine = fetch.kind == "multifetch"
        with messages.phase(name, _PREPARING, session):
            self._make_graph = _training_graphs(symbol, parameters, signature, session)
        self.table, self.undescribed = self._table(() if self._can_refine else None)

    @property
    def with_whole_norms(self) -> Optional[Callable[[Collection[str]], Any]]:
        """Makes the table in which BatchNorms of these names stay whole; None if none can."""
        return (lambda norms: self._table(norms)[0]) if self._can_refine else None

    def _table(self, fused: Optional[Collection[str]]) -> tuple[Any, dict[str, str]]:
        with messages.phase(self.name, _PREPARING, self.session):
            table: tuple[Any, dict[str, str]] = self.session.state.backend.strategy_table(
                self._make_graph(fused)
            )
        return table


def _posed(prepared: _Prepared) -> tuple[Problem, Wish]:
    """The problem of a block's graph, given what earlier graphs have divided, and the wish."""
    name, table, session = prepared.name, prepared.table, prepared.session
    parameters, signature = prepared.parameters, prepared.signature
    training, backend = bool(signature.gradients), session.state.backend
    tile_cuts = {n: p._tofu.cuts for n, p in parameters.items() if is_tiled(p)}
    parts = _parts(parameters)
    options = saved_plans.options_for(name, table, session, training=training)
    with_whole_norms = prepared.with_whole_norms
    saved = None
    if parameters:  # saved plans are for graphs that train
        saved = saved_plans.plan_for(
            name,
            table,
            tile_cuts,
            parts,
            session,
            training=training,
            with_whole_norms=with_whole_norms,
        )
    if saved is not None and session.plans is not None:
        saved_plans.check_pins(options, saved, session.plans.path)
    input_cuts, parts = _input_cuts(signature, parts, options, backend)
    wish = dataclasses.replace(
        session.wish,
        options=dataclasses.replace(options, parts=parts),
        recompute=session.wish.recompute if training else "none",
    )
    # Another plan, such as a saved one, may have cut states in ways that this search cannot.
    state_cuts = {} if options.ties_states or not training else _state_cuts(table, parameters)
    wishes = [{**state_cuts, **input_cuts}] if input_cuts else []
    problem = Problem(
        name,
        table,
        session.workers,
        with_whole_norms and functools.partial(backend.refined, with_whole_norms),
        fixed=tile_cuts,
        wishes=(*wishes, *([state_cuts] if state_cuts else [])),
        saved=saved,
        front_end=MXNET,
    )
    return problem, wish


def _tile_parameters(
    name: str,
    parameters: Mapping[str, Any],
    compiled: Compiled,
    session: Session,
    *,
    trained: Collection[str],
) -> None:
    """Tile the parameters as planned; those that are tiled already keep their tiles.

    trained: the parameters whose updates are part of the plan.
    """
    parts = Parts.of(compiled.searched)
    updates = _updates(compiled, trained, session)
    for parameter_name, parameter in parameters.items():
        layout, update = compiled.variables[parameter_name].layout, updates.get(parameter_name)
        if not is_tiled(parameter):
            cuts = tuple(compiled.searched.cuts(parameter_name))
            tile(parameter, layout, session, cuts, parts, update)
        elif parameter._tofu.layout.boxes != layout.boxes:
            raise InternalError(f"{name}: the plan has moved the tiles of {parameter_name}")
        elif parameter._tofu.update is None:
            parameter._tofu.update = update


def _updates(compiled: Compiled, trained: Collection[str], session: Session) -> dict[str, Update]:
    """The part of each parameter that a worker updates: its part of the states or the gradient.

    The gradient's division counts only if every worker has the weights that it needs.
    """
    parts, cuts_of = Parts.of(compiled.searched), session.state.backend.cuts_of
    updates = {}
    for head in heads_of(compiled.step.backward_heads) if trained else ():
        kind, _, name = head.role.partition(":")
        if kind == "gradient" and name in trained:
            pairs = zip(head.layout.boxes, compiled.variables[name].layout.boxes)
            if all(box.common(tile) == box for box, tile in pairs):
                updates[name] = Update(head.layout, cuts_of(head.layout, parts))
    for variable in compiled.variables.values():
        kind, _, name = variable.role.partition(":")
        if kind == "state":
            updates[name] = Update(variable.layout, tuple(compiled.searched.cuts(variable.name)))
    return updates


def _state_cuts(table: Any, parameters: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Pins for optimizer states that an earlier graph has already divided."""
    updates = {n: p._tofu.update for n, p in parameters.items() if is_tiled(p)}
    pins = {}
    for tensor in table.graph.tensor_names if any(updates.values()) else ():
        name, colon, _ = tensor.rpartition(":")
        update = updates.get(name) if colon else None
        if update is not None and update.cuts is not None:
            pins[tensor] = update.cuts
    return pins


def _input_cuts(
    signature: Signature, parts: Parts, options: SearchOptions, backend: Any
) -> tuple[dict[str, tuple[int, ...]], Parts]:
    """Pins for inputs that are tiles, to use the tiles as they are, and the parts of each step.

    parts: the parts that the parameters need; () for any.
    """
    pins: dict[str, tuple[int, ...]] = {}
    pinned = {name for name, _ in options.pins}
    for name, division in signature.divisions.items():
        if division is None or name in pinned or (parts and division.parts != parts):
            continue
        cuts = backend.cuts_of(*division)
        if cuts is not None:
            pins[name], parts = cuts, division.parts
    return pins, parts


def _parts(parameters: Mapping[str, Any]) -> Parts:
    """The parts of the steps of the parameters that are tiled already; none for none.

    Raises:
        PlanError: earlier plans have cut these parameters in different steps.
    """
    tiled = {p._tofu.parts: p.name for p in parameters.values() if is_tiled(p)}
    if len(tiled) > 1:
        shown = ", ".join(f"{name} in {parts.text}" for parts, name in tiled.items())
        raise PlanError(
            f"earlier graphs have cut the parameters in different steps: {shown} parts; "
            "expected the same steps. Call the block that has all of them first"
        )
    return next(iter(tiled), Parts())


def optimizer_kind(parameters: Mapping[str, Any]) -> Optional[str]:
    """The update to plan for: "sgd", "sgd_mom", "adam", or None (another optimizer or none)."""
    trainers = [p._trainer for p in parameters.values() if getattr(p, "_trainer", None)]
    if not trainers:
        return None
    optimizer = trainers[0]._optimizer
    if type(optimizer) is mx.optimizer.SGD:
        return "sgd_mom" if optimizer.momentum else "sgd"
    return "adam" if type(optimizer) is mx.optimizer.Adam else None


def _training_graphs(
    symbol: Any, parameters: Mapping[str, Any], signature: Signature, session: Session
) -> Callable[[Optional[Collection[str]]], Any]:
    """Return a function from the BatchNorms that stay whole to the training graph."""
    auxiliary = set(symbol.list_auxiliary_states())
    described = {
        name: (shape_of(parameter), dtype)
        for (name, parameter), dtype in zip(parameters.items(), signature.parameter_dtypes)
    }
    on_gpus = any(each.device_type == "gpu" for each in session.contexts)
    return session.state.backend.training_graphs(
        symbol,
        inputs={name: (shape, dtype) for name, shape, dtype in signature.inputs},
        parameters={n: d for n, d in described.items() if n not in auxiliary},
        aux={n: d for n, d in described.items() if n in auxiliary},
        gradients=sorted(signature.gradients),
        use=GraphUse(signature.train, session.workers, on_gpus),
        optimizer=optimizer_kind(parameters) if signature.gradients else None,
    )

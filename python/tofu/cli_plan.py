"""``tofu plan``: the plan of a saved symbol, of a model, or of a script's first training call."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import click

from tofu.config import Config
from tofu.errors import ConfigError, GraphError
from tofu.plan import Compiled, Plan, compile_graph, observe, plan_graph
from tofu.plan.plan import undescribed_text

__all__ = ["SymbolRequest", "plan_model", "plan_script", "plan_symbol"]

DEFAULT_WORKERS = 2
DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")


@dataclasses.dataclass(frozen=True)
class SymbolRequest:
    """A symbol file and what it takes to make a training graph of it.

    Attributes:
        path: the file.
        shapes: shapes of inputs, by name.
        dtypes: data types of inputs, by name; "" stands for all others.
        inputs: further inputs, whose shapes follow.
        optimizer: update to plan for, or None.
        predict: whether to plan the forward pass only.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    inputs: frozenset[str]
    optimizer: Optional[str]
    predict: bool

    @classmethod
    def parse(
        cls,
        path: Path,
        *,
        shapes: Sequence[str],
        dtypes: Sequence[str],
        inputs: Sequence[str],
        optimizer: Optional[str],
        predict: bool,
    ) -> SymbolRequest:
        """Read the texts of the command line. Raises ConfigError."""
        pairs = [text.rpartition("=") for text in dtypes]
        for _, _, dtype in pairs:
            if dtype not in DTYPES:
                raise ConfigError(f"--dtype {dtype}: expected one of {', '.join(DTYPES)}")
        return cls(
            path=path,
            shapes=dict(map(_parse_shape, shapes)),
            dtypes={"": "float32", **{name: dtype for name, _, dtype in pairs}},
            inputs=frozenset(inputs),
            optimizer=None if predict else optimizer,
            predict=predict,
        )


class _PlanReady(BaseException):
    """Ends a script once its first training call is planned."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


def plan_script(script: Path, args: Sequence[str]) -> Plan:
    """Run `script` until its first partitioned training call and return that call's plan.

    What the script prints goes to standard error.

    Raises:
        ConfigError: the script ended before it got there.
    """
    from tofu import _hook

    _hook.install()
    sys.argv = [str(script), *args]
    sys.path[0] = str(script.resolve().parent)
    try:
        with contextlib.redirect_stdout(sys.stderr), observe(_stop_at_training):
            runpy.run_path(str(script), run_name="__main__")
            status: object = 0
    except _PlanReady as ready:
        return ready.plan
    except SystemExit as end:
        status = end.code or 0
    raise ConfigError(
        f"{script} ended (status {status}) before its first partitioned training call: "
        "nothing to plan; its net must be hybridized and called under autograd.record()"
    )


def plan_symbol(request: SymbolRequest) -> Plan:
    """Plan the training graph of a saved symbol.

    Raises:
        GraphError: the file is no symbol, or MXNet finds its shapes inconsistent.
        ConfigError: a shape is missing or belongs to nothing.
    """
    check_symbol_text(request.path)
    # MXNet, and with it the training graph, is loaded only for a file that may be a symbol.
    os.environ.pop("MXNET_GRAPH_PASS", None)
    import mxnet as mx

    from tofu.mx import graph

    try:
        symbol = mx.sym.load(str(request.path))
    except mx.MXNetError as error:
        raise GraphError(
            f"{request.path}: MXNet cannot load it ({_first_line(error)}); "
            "expected a symbol that MXNet 1.9 saved"
        ) from None
    variables = _variables(symbol, request)
    is_input = {
        name: name in request.shapes or name in request.inputs or name.endswith("label")
        for name in symbol.list_arguments()
    }
    parameters = {name: variables[name] for name in is_input if not is_input[name]}
    document = graph.training_graph(
        symbol,
        inputs={name: variables[name] for name in is_input if is_input[name]},
        parameters=parameters,
        aux={name: variables[name] for name in symbol.list_auxiliary_states()},
        gradients=() if request.predict else tuple(parameters),
        train=not request.predict,
        optimizer=request.optimizer,
    )
    table, unknown = graph.strategy_table(document)
    config = Config.from_environment()
    plan = compile_graph(
        document, table, workers=config.workers or DEFAULT_WORKERS, dump_dir=config.dump_dir
    ).plan
    _tell_undescribed(request.path.name, unknown, plan)
    return plan


def plan_model(name: str, *, batch_size: Optional[int], optimizer: Optional[str]) -> Plan:
    """Plan the training graph of a model of tofu.models; its document also names the model.

    Raises:
        ConfigError: there is no such model.
    """
    os.environ.pop("MXNET_GRAPH_PASS", None)
    from tofu import models
    from tofu.mx.graph import strategy_table

    document = models.build(name, batch_size).training_graph(optimizer=optimizer)
    config = Config.from_environment()
    table, unknown = strategy_table(document)
    plan = plan_graph(
        document,
        table,
        workers=config.workers or DEFAULT_WORKERS,
        dump_dir=config.dump_dir,
    )
    _tell_undescribed(name, unknown, plan)
    facts = {"model": models.find(name).name, "nodes": len(json.loads(document)["nodes"])}
    return Plan.from_json(json.dumps({**facts, **json.loads(plan.to_json())}))


def _tell_undescribed(name: str, unknown: Sequence[str], plan: Plan) -> None:
    """One line on standard error with the operators that no description covers."""
    if unknown:
        click.echo(f"tofu: {undescribed_text(name, set(unknown), plan)}", err=True)


def check_symbol_text(path: Path) -> None:
    """Raise GraphError unless the file at `path` is JSON with a symbol's parts."""
    expected = "expected a symbol that MXNet saved (symbol.save or block.export)"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise GraphError(f"{path}: not a text file; {expected}") from None
    except ValueError as error:
        raise GraphError(f"{path}: not JSON, or cut off ({error}); {expected}") from None
    for part in ("nodes", "arg_nodes", "heads"):
        if not isinstance(document, dict) or not isinstance(document.get(part), list):
            raise GraphError(f'{path}: JSON without the list "{part}"; {expected}')


def _stop_at_training(compiled: Compiled) -> None:
    if json.loads(compiled.phases).get("backward") is not None:
        raise _PlanReady(compiled.plan)


def _variables(symbol: Any, request: SymbolRequest) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and data type of every variable of `symbol`, from those of its inputs."""
    import mxnet as mx
    import numpy as np

    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    for name in (*request.shapes, *request.inputs, *filter(None, request.dtypes)):
        if name not in names:
            raise ConfigError(f"{request.path}: no variable {name!r}; it has {', '.join(names)}")
    if not request.shapes:
        raise ConfigError(
            f"{request.path}: no shapes; give those of its inputs, "
            f"such as --shape {names[0] if names else 'data'}=64,1,28,28"
        )
    dtype_of = {name: request.dtypes.get(name, request.dtypes[""]) for name in request.shapes}
    try:
        shapes, _, aux_shapes = symbol.infer_shape_partial(**request.shapes)
        dtypes, _, aux_dtypes = symbol.infer_type_partial(**dtype_of)
    except mx.MXNetError as error:
        raise GraphError(
            f"{request.path}: the shapes do not fit ({_first_line(error)}); check --shape"
        ) from None
    found = dict(zip(names, [*(shapes or ()), *(aux_shapes or ())]))
    missing = [name for name in names if not found.get(name) or 0 in found[name]]
    if missing:
        raise ConfigError(
            f"{request.path}: cannot tell the shape of {', '.join(missing)}; "
            f"give it as --shape {missing[0]}=..."
        )
    types = dict(zip(names, [*(dtypes or ()), *(aux_dtypes or ())]))
    return {
        name: (tuple(found[name]), np.dtype(types.get(name) or request.dtypes[""]).name)
        for name in names
    }


def _parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, numbers = text.partition("=")
    try:
        shape = tuple(int(number) for number in numbers.strip("()").split(",") if number.strip())
    except ValueError:
        shape = ()
    if not (name and equals and shape) or math.prod(max(size, 0) for size in shape) == 0:
        raise ConfigError(f"--shape {text}: expected a name and positive sizes, as data=64,1,28,28")
    return name, shape


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if "Error" in line or "Check failed" in line), "")
    return (text or (lines[0] if lines else type(error).__name__)).rpartition("Error: ")[2][:200]

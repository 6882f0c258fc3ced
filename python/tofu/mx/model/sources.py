"""Training graphs to plan: of saved symbols, of models by name, and of blocks."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Callable, Optional

from tofu import _core
from tofu.config import Config
from tofu.errors import ConfigError, GraphError
from tofu.installation import check_mxnet
from tofu.plans import Problem
from tofu.plans.file import PlanFile
from tofu.plans.progress import stage

from .batch_graphs import BatchGraphs, MakeGraph
from .mxnet_programs import MXNET

__all__ = [
    "SymbolRequest",
    "check_symbol_text",
    "default_workers",
    "from_block",
    "from_model",
    "from_symbol",
    "graphs_of_model",
    "names_model",
    "of_symbol",
]

DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool")
_WHO = "tofu plan"
_NAMES_SHOWN = 8
_TABLES = 4  # kept: of many plans of a graph, most leave the same BatchNorms whole


@dataclasses.dataclass(frozen=True)
class SymbolRequest:
    """A symbol file, and the options that turn it into a training graph.

    Attributes:
        path: the file.
        shapes: shapes of inputs, by name.
        dtypes: data types of inputs, by name; "" stands for all others.
        inputs: more inputs, whose shapes are inferred.
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
        for option, names in (
            ("--shape", [text.partition("=")[0] for text in shapes]),
            ("--dtype", [name for name, _, _ in pairs]),
        ):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise ConfigError(
                    f"{option}: given twice for {twice or 'all inputs'}; keep one of them"
                )
        return cls(
            path=path,
            shapes=dict(map(_parse_shape, shapes)),
            dtypes={"": "float32", **{name: dtype for name, _, dtype in pairs}},
            inputs=frozenset(inputs),
            optimizer=None if predict else optimizer,
            predict=predict,
        )


def names_model(target: str) -> bool:
    """Whether `target` is a model's name. Raises ConfigError if no model has the name."""
    if os.path.exists(target) or os.path.basename(target) != target or "." in target:
        return False
    from tofu import models

    return bool(models.find(target))


def from_symbol(
    request: SymbolRequest,
    *,
    workers: Optional[int] = None,
    config: Optional[Config] = None,
    saved: Optional[PlanFile] = None,
) -> Problem:
    """The training graph of a saved symbol.

    Args:
        request: the file and its options.
        workers: number of workers; None: that of a run.
        config: the settings of a run; None: those of the environment.
        saved: plans, of which the graph's is used; None: it is searched.

    Raises:
        GraphError: the file is not a symbol, or MXNet finds its shapes inconsistent.
        ConfigError: a shape is missing, or names no variable, or no plan is for the graph.
    """
    check_symbol_text(request.path)
    # MXNet, and with it the training graph, is loaded only for a file that may be a symbol.
    check_mxnet(_WHO, load=True)
    import mxnet as mx

    try:
        symbol = mx.sym.load(str(request.path))
    except mx.MXNetError as error:
        raise GraphError(
            f"{request.path}: MXNet cannot load it ({_first_line(error)}); "
            "expected a symbol that MXNet 1.9 saved"
        ) from None
    return of_symbol(symbol, request, workers=workers, config=config, saved=saved)


def of_symbol(
    symbol: Any,
    request: SymbolRequest,
    *,
    frozen: Sequence[str] = (),
    workers: Optional[int] = None,
    config: Optional[Config] = None,
    saved: Optional[PlanFile] = None,
) -> Problem:
    """The training graph of a symbol; parameters in `frozen` get no gradients.

    Raises:
        GraphError: MXNet finds its shapes inconsistent.
        ConfigError: a shape is missing, or names no variable.
    """
    from tofu.mx.devices import GraphUse
    from tofu.mx.graphs.training_graph import training_graphs

    count = workers or default_workers(config)
    variables = _variables(symbol, request)
    is_input = {
        name: name in request.shapes or name in request.inputs or name.endswith("label")
        for name in symbol.list_arguments()
    }
    parameters = {name: variables[name] for name in is_input if not is_input[name]}
    with _making(request.path.name):
        make_graph = training_graphs(
            symbol,
            inputs={name: variables[name] for name in is_input if is_input[name]},
            parameters=parameters,
            aux={name: variables[name] for name in symbol.list_auxiliary_states()},
            gradients=() if request.predict else tuple(n for n in parameters if n not in frozen),
            use=GraphUse(not request.predict, count, _on_gpus(config)),
            optimizer=request.optimizer,
        )
        return _problem(request.path.name, make_graph, count, config, saved)


def from_block(
    block: Any,
    inputs: Sequence[Any],
    *,
    dtypes: Mapping[str, str],
    optimizer: Optional[str],
    predict: bool,
    workers: Optional[int] = None,
    config: Optional[Config] = None,
) -> Problem:
    """The training graph of a HybridBlock, called on inputs of these shapes.

    Args:
        block: the block; it need not be initialized or hybridized.
        inputs: an array or a shape for each of its inputs.
        dtypes: as in SymbolRequest.
        optimizer: update to plan for, or None.
        predict: whether to plan the forward pass only.
        workers: number of workers; None: that of a run.
        config: the settings of a run; None: those of the environment.

    Raises:
        ConfigError: it is no HybridBlock, or there are no inputs.
        GraphError: the shapes do not fit.
    """
    import mxnet as mx

    if not isinstance(block, mx.gluon.HybridBlock):
        raise ConfigError(
            f"tofu.plan: {type(block).__name__}: expected a model's name, a symbol or its file, or "
            "a HybridBlock"
        )
    if not inputs:
        raise ConfigError("tofu.plan: a block needs the shapes of its inputs, as in (32, 64)")
    names = ["data"] if len(inputs) == 1 else [f"data{number}" for number in range(len(inputs))]
    variables = [mx.sym.var(name) for name in names]
    try:
        output = block(*variables)
    except Exception as error:  # whatever the block's own code raises
        raise GraphError(
            f"tofu.plan: {block.name} cannot be traced ({type(error).__name__}: "
            f"{_first_line(error)}); expected a block that hybridizes"
        ) from error
    symbol = mx.sym.Group(list(output)) if isinstance(output, (list, tuple)) else output
    shapes = {name: tuple(getattr(array, "shape", array)) for name, array in zip(names, inputs)}
    request = SymbolRequest(
        Path(block.name), shapes, {"": "float32", **dtypes}, frozenset(), optimizer, predict
    )
    frozen = [n for n, p in block.collect_params().items() if p.grad_req == "null"]
    return of_symbol(symbol, request, frozen=frozen, workers=workers, config=config)


def from_model(
    name: str,
    *,
    batch_size: Optional[int],
    optimizer: Optional[str],
    workers: Optional[int] = None,
    config: Optional[Config] = None,
    saved: Optional[PlanFile] = None,
    graphs: Optional[BatchGraphs] = None,
) -> Problem:
    """The training graph of a model of tofu.models; with its plan if there are saved ones.

    Args:
        name: the model's name.
        batch_size: number of examples; None: the model's own.
        optimizer: update to plan for, or None.
        workers: number of workers; None: that of a run.
        config: the settings of a run; None: those of the environment.
        saved: plans, of which the graph's is used; None: it is searched.
        graphs: those of `graphs_of_model`, to plan for many batch sizes.

    Raises:
        ConfigError: there is no such model, or no plan is for its graph.
    """
    with _making(name):
        check_mxnet(_WHO, load=True)
        from tofu import models

        model = models.find(name)
        graphs = graphs or graphs_of_model(name, optimizer=optimizer, config=config)
        make_graph = graphs.at(model.batch_size if batch_size is None else batch_size)
        return _problem(model.name, make_graph, workers, config, saved)


def graphs_of_model(
    name: str, *, optimizer: Optional[str], config: Optional[Config] = None
) -> BatchGraphs:
    """The training graphs of a model of tofu.models; arguments as for from_model."""

    def from_batch(batch: int) -> MakeGraph:
        from tofu import models

        built = models.build(name, batch)
        return built.training_graphs(optimizer=optimizer, on_gpus=_on_gpus(config))

    return BatchGraphs(from_batch)


def _making(name: str) -> AbstractContextManager[None]:
    return stage(f"making the training graph of {name}")


def _problem(
    name: str,
    make_graph: MakeGraph,
    workers: Optional[int],
    config: Optional[Config],
    saved: Optional[PlanFile],
) -> Problem:
    """The problem of a graph, which `make_graph` also makes with BatchNorms that stay whole."""
    from tofu.analysis.strategy_table import strategy_table
    from tofu.mx.devices import default_fetch
    from tofu.mx.graphs.lower.fused_norm import refined

    @functools.lru_cache(maxsize=_TABLES)
    def table_of(fused: Optional[frozenset[str]]) -> _core.StrategyTable:
        return strategy_table(make_graph(fused))[0]

    def prepare(fused: Optional[Collection[str]]) -> _core.StrategyTable:
        return table_of(None if fused is None else frozenset(fused))

    count = workers or default_workers(config)
    # MXNet cannot bind whole BatchNorms if it copies between workers.
    if ((config or Config.from_environment()).fetch or default_fetch()) == "plain":
        problem = Problem(name, prepare(None), count, front_end=MXNET)
    else:
        refine = functools.partial(refined, prepare)
        problem = Problem(name, prepare(()), count, refine, front_end=MXNET)
    if saved is None:
        return problem
    return dataclasses.replace(problem, saved=_saved_plan(saved, problem, prepare))


def _saved_plan(
    saved: PlanFile,
    problem: Problem,
    prepare: Callable[[Optional[Collection[str]]], _core.StrategyTable],
) -> _core.Plan:
    """The saved plan of a graph, or of the same graph with BatchNorms that the plan keeps whole."""
    kept_whole = saved.kept_whole(problem.graph.hash, problem.workers)
    plan = saved.plan_for(problem.table, problem.workers)
    if plan is None and kept_whole:
        plan = saved.plan_for(prepare(kept_whole), problem.workers)
    if plan is None:
        differs = saved.difference(problem.graph) or "the file is for another graph"
        raise ConfigError(
            f"{saved.path}: no plan for {problem.name} over {problem.workers} workers; {differs}. "
            "Layers, shapes, batch size and optimizer must be the same: save one with tofu plan "
            "--save"
        )
    return plan


def default_workers(config: Optional[Config] = None) -> int:
    """The number of workers of a run: that of the environment, else of GPUs, else two."""
    check_mxnet(_WHO, load=True)
    from tofu.mx.devices import number_of_workers

    return number_of_workers(config or Config.from_environment())


def _on_gpus(config: Optional[Config]) -> bool:
    """Whether a run would use GPUs: their graphs differ from those of CPUs."""
    from tofu.mx.devices import uses_gpus

    return uses_gpus(config or Config.from_environment())


def check_symbol_text(path: Path) -> None:
    """Raise GraphError unless the file at `path` is JSON with a symbol's parts."""
    expected = "expected a symbol that MXNet saved (symbol.save or block.export)"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise GraphError(f"{path}: not a text file; {expected}") from None
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{path}: not JSON, or cut off ({error}); {expected}") from None
    for part in ("nodes", "arg_nodes", "heads"):
        if not isinstance(document, dict) or not isinstance(document.get(part), list):
            raise GraphError(f'{path}: JSON without the list "{part}"; {expected}')
    problem = _broken_entry(document)
    if problem:
        raise GraphError(f"{path}: {problem}; {expected}")


def _broken_entry(document: Mapping[str, Any]) -> Optional[str]:
    """The problem with an input or head of a symbol, if any; MXNet itself does not check it."""
    nodes, rows = document["nodes"], document.get("node_row_ptr")
    outputs: list[Optional[int]] = [None] * len(nodes)
    if isinstance(rows, list) and len(rows) == len(nodes) + 1 and set(map(type, rows)) == {int}:
        outputs = [end - begin for begin, end in zip(rows, rows[1:])]

    def problem(entry: Any, before: int) -> Optional[str]:
        if not isinstance(entry, list) or set(map(type, entry[:2])) != {int} or len(entry) < 2:
            return f"{entry!r}, expected the numbers of a node and of its output"
        node, output = entry[:2]
        if not 0 <= node < before:
            return f"node {node}, expected one of the {before} before it"
        count = outputs[node]
        if output < 0 or (count is not None and output >= count):
            name = nodes[node].get("name")
            return f"output {output} of node {name!r}, which has {1 if count is None else count}"
        return None

    for number, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("inputs"), list):
            return f'node {number}: no object with the list "inputs"'
        for place, entry in enumerate(node["inputs"]):
            fault = problem(entry, number)
            if fault:
                return f"input {place} of node {node.get('name')!r} is {fault}"
    for place, entry in enumerate(document["heads"]):
        fault = problem(entry, len(nodes))
        if fault:
            return f"head {place} is {fault}"
    return None


def _variables(symbol: Any, request: SymbolRequest) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and data type of every variable of `symbol`, from those of its inputs."""
    import mxnet as mx
    import numpy as np

    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    for name in (*request.shapes, *request.inputs, *filter(None, request.dtypes)):
        if name not in names:
            raise ConfigError(f"{request.path}: no variable {name!r}; {_near(name, names)}")
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
    shape_of = dict(zip(names, [*(shapes or ()), *(aux_shapes or ())]))
    missing = [name for name in names if not shape_of.get(name) or 0 in shape_of[name]]
    if missing:
        raise ConfigError(
            f"{request.path}: cannot infer the shape of {', '.join(missing)}; "
            f"give it as --shape {missing[0]}=..."
        )
    types = dict(zip(names, [*(dtypes or ()), *(aux_dtypes or ())]))
    return {
        name: (tuple(shape_of[name]), np.dtype(types.get(name) or request.dtypes[""]).name)
        for name in names
    }


def _near(name: str, names: Sequence[str]) -> str:
    """The names most like one that is not among them."""
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {', '.join(near)}?"
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"it has {', '.join(names[:_NAMES_SHOWN])}{more}"


def _parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, numbers = text.partition("=")
    try:
        shape = tuple(int(number) for number in numbers.strip("()").split(",") if number.strip())
    except ValueError:
        shape = ()
    if not (name and equals and shape) or math.prod(max(size, 0) for size in shape) == 0:
        raise ConfigError(
            f"--shape {text}: expected a name and positive sizes, such as data=64,1,28,28"
        )
    return name, shape


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Traceback (", 'File "'))]
    text = next((line for line in lines if "Error" in line or "Check failed" in line), "")
    return (text or (lines[0] if lines else type(error).__name__)).rpartition("Error: ")[2][:200]

"""Runs a graph of one operator, partitioned at random over workers.

    run = Run(case, seed)
    for cuts in strategies(run, parts, rng):
        outputs, fetches = by_parts(run, parts, cuts, rng)

``tofu.verify`` cuts arrays itself. Here the passes partition the graph: every tensor has
random tiles, and workers fetch their regions with MultiFetch.
"""

import json
import math

import mxnet as mx

from tofu import _core
from tofu.analysis.table import document
from tofu.dtypes import dtype_flag
from tofu.mx.extension import is_stateful_backward, load
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node
from tofu.mx.run.program import Program

__all__ = ["by_parts", "reason_not_to_run", "strategies"]

NAME = "op"
FETCH = "_tofu_multifetch"
_BOOL = "bool"
_OVERWRITES = "MXNet's own fault: it writes its first output over an input that it still reads"
_VARIABLES_ONLY = "MXNet's own fault: it refuses inputs that are not variables"
FAULTS = {
    "_npi_hstack": _VARIABLES_ONLY,
    "_npi_dstack": _VARIABLES_ONLY,
    "_npi_column_stack": _VARIABLES_ONLY,
    "_contrib_allclose": "outside NumPy's semantics its scalar shape means an unknown one",
    "_backward_LeakyReLU": _OVERWRITES,
    "_backward_softmax": _OVERWRITES,
    "_grad_add": "MXNet takes it for a sum in place; tofu lowers it",
    "_backward_softmax_cross_entropy": "has an output that its case does not name",
}


def reason_not_to_run(case):
    """The reason why tofu cannot partition a case's graph; None if it can."""
    load()
    if case.imperative or case.in_place:
        return "not a node of a graph"
    if is_stateful_backward(case.op):
        return "reads state that its forward operator keeps; tofu lowers it"
    if case.hide:
        return "has outputs that it refuses to compute"
    node = Node(case.op, NAME, dict(case.attrs))
    reads = case.inputs if case.forward is None else case.reads
    node.inputs = [Entry(Node(VARIABLE, f"x{k}")) for k, _ in enumerate(reads)]
    if Graph([Entry(node)]).to_symbol().list_auxiliary_states():
        return "writes inputs, which must be tiles of its own; tofu lowers it where it is composite"
    return FAULTS.get(case.op)


def strategies(run, parts, rng):
    """Cuts of the operator, a variable or None for each step: every variable as often as it
    divides, the steps that are left at random."""
    for var in run.row["splittable"]:
        if run.extent(var) % parts[0] == 0:
            yield _cuts(run.extent, run.row["splittable"], parts, rng, first=var)


def _cuts(extent, choices, parts, rng, first=None):
    left, cuts = {choice: extent(choice) for choice in choices}, []
    for part in parts:
        fitting = [choice for choice in choices if left[choice] % part == 0]
        chosen = first if first in fitting else rng.choice([*fitting, *fitting, None])
        if chosen is not None:
            left[chosen] //= part
        cuts.append(chosen)
    return cuts


def by_parts(run, parts, cuts, rng):
    """The operator's outputs, with each instance on another worker, and the number of fetches."""
    contexts = [mx.cpu(worker) for worker in range(math.prod(parts))]
    graph = _graph(run)
    rows = document([run.row if node.op else None for node in graph.nodes])
    table = _core.StrategyTable(rows, graph)
    plan = _core.Plan(_plan(run, graph, parts, cuts, rng), table)
    step = _core.schedule(_core.partition(plan, fetch="multifetch"))
    inputs = {f"x{k}": mx.nd.array(a, dtype=a.dtype) for k, a in enumerate(run.inputs)}
    with mx.util.np_shape(run.case.numpy):
        program = Program(step, contexts, {})
        outputs = program.forward(inputs, is_train=True, ctx=mx.cpu())
        fetches = sum(len(half.nodes_of({FETCH})) for half in step.graphs)
        return [output.asnumpy() for output in outputs], fetches


def _graph(run):
    """The training graph of only the operator, with all its outputs as heads."""
    node = Node(run.case.op, NAME, dict(run.case.attrs), num_outputs=len(run.outputs))
    for k, array in enumerate(run.inputs):
        variable = Node(VARIABLE, f"x{k}", {"__tofu_role__": "data"})
        variable.shapes, variable.dtypes = [array.shape], [dtype_flag(array.dtype.name)]
        node.inputs.append(Entry(variable))
    node.shapes = [array.shape for array in run.outputs]
    node.dtypes = [dtype_flag(array.dtype.name) for array in run.outputs]
    graph = Graph([Entry(node, k) for k in range(len(run.outputs))])
    order = graph.topological()
    attrs = {
        "shape": ["list_shape", [list(shape) for each in order for shape in each.shapes]],
        "dtype": ["list_int", [flag for each in order for flag in each.dtypes]],
        "tofu_heads": ["list_str", ["output"] * len(run.outputs)],
    }
    return _core.Graph(graph.to_json(attrs))


def _plan(run, graph, parts, cuts, rng):
    tensors = []
    for node in graph.nodes:
        arrays = run.outputs if node.op else [run.inputs[int(node.name[1:])]]
        for output, array in enumerate(arrays):
            # MXNet cannot slice booleans, only take rows of them.
            dims = range(min(array.ndim, 1) if array.dtype == _BOOL else array.ndim)
            own = _cuts(lambda dim, shape=array.shape: shape[dim], dims, parts, rng)
            own = [-1 if cut is None else cut for cut in own]
            tensors.append({"node": node.name, "output": output, "cuts": own})
    names = [None if cut is None else run.row["vars"][cut]["name"] for cut in cuts]
    return json.dumps(
        {
            "format": "tofu-plan",
            "version": 1,
            "workers": math.prod(parts),
            "graph_hash": graph.hash,
            "parts": parts,
            "steps": [{"parts": part, "bytes": 0} for part in parts],
            "lower_bound_bytes": 0,
            "status": "feasible",
            "search_seconds": 0.0,
            "tensors": tensors,
            "operators": [{"node": NAME, "cuts": names, "bytes": 0}],
        }
    )

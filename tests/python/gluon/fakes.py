"""A backend that runs a symbol serially behind the interface of the partitioned program.

Parameters are really tiled (along the first dimension that divides, step by step). A
program gathers them, runs the symbol on one context, and scatters the gradients. So tests
see only the Gluon layer, and its results must be exactly those of a serial run.
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import types
from unittest import mock

import mxnet as mx
import numpy as np

from tofu.analysis.described import is_random
from tofu.boxes import Box
from tofu.errors import GraphError
from tofu.gluon.session import backend as own_backend
from tofu.gluon.session.backend import Backend
from tofu.gluon.session.session import active
from tofu.mx.graphs.update_nodes import OPTIMIZERS
from tofu.mx.run import transfer
from tofu.planner.search import Searched
from tofu.plans.layout import Layout, Variable, cuts_of

REFUSED = "sign"  # an operator that the fake cannot plan
UNDESCRIBED = "Hypot"
PARTS = {2: (2,), 3: (3,), 4: (2, 2), 17: (17,), 37: (37,)}
APART = concurrent.futures.ThreadPoolExecutor(1)


class Log:
    """The calls to a backend."""

    def __init__(self):
        self.graphs = []
        self.pins = []
        self.programs = 0


@contextlib.contextmanager
def using(backend, **others):
    """Make sessions in this context use a backend, with some of its functions replaced."""
    backend = dataclasses.replace(backend, **others)
    with mock.patch.object(own_backend, "own", return_value=backend):
        state = active().state if active() is not None else None
        before = None if state is None else state.backend
        if state is not None:
            state.backend = backend
        yield
        if state is not None:
            state.backend = before


def are_used():
    """Whether results are bit for bit those of plain MXNet."""
    return own_backend.own().usable_fetch is _usable_fetch


def logged(backend, log):
    """A backend that records its calls in `log`."""

    def training_graphs(symbol, **options):
        keys = ("gradients", "optimizer", "parameters")
        log.graphs.append({"train": options["use"].train, **{key: options[key] for key in keys}})
        return backend.training_graphs(symbol, **options)

    def search(problem, *args, **options):
        log.pins.append({**problem.fixed, **next(iter(problem.wishes), {})})
        return backend.search(problem, *args, **options)

    def program(*args):
        log.programs += 1
        return backend.program(*args)

    return dataclasses.replace(
        backend, training_graphs=training_graphs, search=search, program=program
    )


# The cuts of parameters, of their gradients and of their states: along the dimensions that divide,
# like the other two, or none.
KINDS = {
    "alike": (True, True, True),
    "stage 1": (False, False, True),
    "stage 2": (False, True, True),
    "crossed": ("last", "last", True),
    "each its own": ("last", False, True),
}


def backend(kind="alike"):
    """The fake; `kind`: its cuts of parameters, gradients and states (KINDS)."""
    of_weights, of_gradients, of_states = KINDS[kind]

    def training_graphs(symbol, *, inputs, parameters, aux, gradients, use, optimizer=None):
        text = symbol.tojson()
        if f'"op": "{REFUSED}"' in text:
            raise GraphError(f"operator {REFUSED}: the fake refuses it")
        described = {}
        states = OPTIMIZERS[optimizer].states if optimizer else ()
        for name in gradients if optimizer else ():
            if name in parameters:
                shape, dtype = parameters[name]
                described.update((f"{name}:{s}", (f"state:{name}", shape, dtype)) for s in states)
        for role, group in (("data", inputs), ("parameter", parameters), ("aux", aux)):
            for name, (shape, dtype) in group.items():
                described[name] = (role, tuple(shape), dtype)
        graph = types.SimpleNamespace(
            symbol=text,
            variables=described,
            gradients=list(gradients),
            hash="0123456789abcdef",
            optimizer=optimizer,
            tensor_names=list(described),
        )
        return lambda fused: graph

    def strategy_table(graph):
        table = types.SimpleNamespace(graph=graph)
        return table, {UNDESCRIBED: ""} if UNDESCRIBED.lower() in graph.symbol else {}

    def search(problem, *_args, **_options):
        pins = {**problem.fixed, **next(iter(problem.wishes), {})}
        plan = types.SimpleNamespace(
            table=problem.table, workers=problem.workers, pins=pins, parts=PARTS[problem.workers],
            shares=(), tile_multiple=1,
        )  # fmt: skip
        return Searched(problem, plan, None)

    def compile_plan(plan, **_options):
        graph, workers, pins = plan.table.graph, plan.workers, plan.pins
        parts = PARTS[workers]
        variables, cuts_of = {}, {}
        for name, (role, shape, dtype) in graph.variables.items():
            how = {"data": False, "parameter": of_weights}.get(role.partition(":")[0], of_states)
            cuts_of[name] = tuple(pins.get(name) or _chosen(how, shape, parts))
            layout = Layout(shape, dtype, _boxes(shape, cuts_of[name], parts))
            tiles = tuple(f"{name}@{worker}" for worker in range(workers))
            variables[name] = Variable(name, role, layout, tiles)
        gradients = {}
        for name in graph.gradients:
            role, shape, dtype = graph.variables[name]
            cuts = cuts_of[name] if role == "data" else _chosen(of_gradients, shape, parts)
            gradients[name] = Layout(shape, dtype, _boxes(shape, cuts, parts))
        searched = _plan(graph, cuts_of, parts, of_weights)
        step = types.SimpleNamespace(
            symbol=graph.symbol,
            variables=variables,
            gradients=graph.gradients,
            gradient_layouts=gradients,
            backward_heads=[_record(name, layout) for name, layout in gradients.items()],
            parts=parts,
        )
        return types.SimpleNamespace(
            searched=searched,
            step=step,
            variables=variables,
            has_backward=bool(graph.gradients),
            serial_bytes=4096,
            bytes_per_worker=[2048] * workers,
            fetched_bytes=1024,
            shared_bytes=512,
            relayed_bytes=0,
            fetch="multifetch",
        )

    return Backend(
        training_graphs=training_graphs,
        refined=lambda prepare, plan: None,
        strategy_table=strategy_table,
        search=search,
        compile_plan=compile_plan,
        serial_memory=lambda problem: 1024,
        step_memory=None,
        usable_fetch=_usable_fetch,
        program=Program,
        scatter=transfer.scatter,
        gather=transfer.gather,
        relay=transfer.relay,
        parts_of=transfer.parts_of,
        spread_parts=transfer.spread_parts,
        views_of=transfer.views_of,
        tiles=transfer.Tiles,
        cuts_of=cuts_of,
        is_random=is_random,
    )


def _usable_fetch(wanted, contexts):
    return types.SimpleNamespace(kind=wanted or "multifetch", reason=None, crossing="plain_tiles")


def bound_with(scalars):
    """A function that binds a symbol; NumPy's shape semantics are set for each thread."""

    def bind(symbol, *args, **kwargs):
        with mx.util.np_shape(scalars):
            return symbol.bind(*args, **kwargs)

    return bind


class Program:
    """Runs the symbol on the script's context."""

    is_used_up = False

    def __init__(self, step, contexts, arrays):
        # Each output has its own gradient, even if two are the same tensor.
        self._symbol = mx.sym.Group(
            [mx.sym.identity(output) for output in mx.sym.load_json(step.symbol)]
        )
        self._variables = step.variables
        self._gradients = step.gradients
        self._parts = step.parts
        self._contexts = contexts
        self._arrays = dict(arrays)
        self._executor = None
        self._outputs = {}
        self.layouts = {name: variable.layout for name, variable in step.variables.items()}
        self.gradient_layouts = step.gradient_layouts

    def forward_tiles(self, inputs, *, is_train):
        ctx = mx.cpu()
        values = {
            name: self._whole(inputs[name]).copyto(ctx)
            if variable.role == "data"
            else transfer.gather(self._tiles(name), self.layouts[name], ctx)
            for name, variable in self._variables.items()
            if not variable.role.startswith("state:")
        }
        self._is_train, self.is_used_up = is_train, False
        auxiliary = set(self._symbol.list_auxiliary_states())
        # A separate thread gives it separate temporary space: see executor.bind_apart.
        self._executor = APART.submit(
            bound_with(mx.util.is_np_shape()),
            self._symbol,
            ctx,
            {n: v for n, v in values.items() if n not in auxiliary},
            args_grad={n: mx.nd.zeros_like(values[n]) for n in self._gradients},
            grad_req={n: "write" if n in self._gradients else "null" for n in values},
            aux_states={n: v for n, v in values.items() if n in auxiliary},
        ).result()
        arrays = self._executor.forward(is_train=is_train)
        return [self._divided(i, array) for i, array in enumerate(arrays)]

    def backward(self, head_gradients, in_place=(), unchanged=()):
        for name, array in self._executor.aux_dict.items():
            transfer.gather(self._tiles(name), self.layouts[name], array.context, out=array)
        # An executor's backward pass overwrites what a second one would need.
        self.is_used_up = True
        self._executor.forward(is_train=self._is_train)
        heads = [
            mx.nd.zeros_like(output) if head is None else self._whole(head)
            for head, output in zip(head_gradients, self._executor.outputs)
        ]
        self._executor.backward(heads, is_train=self._is_train)
        for name in self._gradients:
            # Otherwise MXNet does not order its writes of running statistics.
            self._executor.grad_dict[name].wait_to_read()
        for name, array in self._executor.aux_dict.items():
            if name in unchanged:
                continue
            transfer.scatter(array, self.layouts[name], self._contexts, out=self._tiles(name))
        return {
            name: transfer.scatter(
                self._executor.grad_dict[name],
                (self.gradient_layouts if name in in_place else self.layouts)[name],
                self._contexts,
            )
            for name in self._gradients
        }

    def failing_operator(self):
        return None

    def _whole(self, value):
        return transfer.gather(*value, mx.cpu()) if isinstance(value, transfer.Tiles) else value

    def _divided(self, number, whole):
        shape = whole.shape
        boxes = _boxes(shape, _cuts(shape, self._parts), self._parts)
        layout = Layout(shape, np.dtype(whole.dtype).name, boxes)
        out = self._outputs.get(number)  # like an executor, overwrites its outputs
        self._outputs[number] = transfer.scatter(whole, layout, self._contexts, out=out)
        return transfer.Tiles(self._outputs[number], layout)

    def _tiles(self, name):
        return [self._arrays[tile] for tile in self._variables[name].tiles]


def _plan(graph, cuts_of, parts, of_weights):
    undescribed = UNDESCRIBED.lower() in graph.symbol
    indivisible = {
        name: 4 * int(np.prod(graph.variables[name][1]))
        for name, cuts in cuts_of.items()
        if of_weights and -1 in cuts and graph.variables[name][0] == "parameter"
    }
    return types.SimpleNamespace(
        num_operators=1,
        table=types.SimpleNamespace(graph=graph),
        status="optimal",
        parts=list(parts),
        shares=(),
        tile_multiple=1,
        search_seconds=0.01,
        memory_bytes=512,
        cuts=lambda name: list(cuts_of[name]),
        operator_bytes=lambda ops: 2048 if undescribed and UNDESCRIBED in ops else 0,
        indivisible_bytes=lambda: indivisible,
    )


def _chosen(how, shape, parts):
    """The cuts of a tensor; `how`: whether it is cut; "last": beginning with the last dimension."""
    if how == "last":
        cuts = _cuts(shape[::-1], parts)
        return tuple(cut if cut < 0 else len(shape) - 1 - cut for cut in cuts)
    return tuple(_cuts(shape, parts)) if how else (-1,) * len(parts)


def _record(name, layout):
    tiles = [(worker, box.begin, box.end) for worker, box in enumerate(layout.boxes)]
    return f"gradient:{name}", layout.shape, layout.dtype, tiles


def _cuts(shape, parts):
    extents, cuts = list(shape), []
    for count in parts:
        cut = next((d for d, n in enumerate(extents) if n >= count and n % count == 0), -1)
        if cut >= 0:
            extents[cut] //= count
        cuts.append(cut)
    return cuts


def _boxes(shape, cuts, parts):
    boxes = []
    for digits in itertools.product(*map(range, parts)):
        begin, end = [0] * len(shape), list(shape)
        for cut, count, digit in zip(cuts, parts, digits):
            if cut >= 0:
                piece = (end[cut] - begin[cut]) // count
                begin[cut] += digit * piece
                end[cut] = begin[cut] + piece
        boxes.append(Box.between(begin, end))
    return tuple(boxes)

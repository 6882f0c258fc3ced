"""A backend that runs a symbol serially behind the interface of the partitioned program.

Parameters are tiled for real (along the first dimension that divides, step by step);
a program gathers them, runs the symbol on one context, and scatters the gradients.
So the Gluon layer is tested alone, and its results must be the serial ones exactly.
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import types
from unittest import mock

import mxnet as mx
import numpy as np

from tofu.errors import GraphError
from tofu.gluon import backend as own_backend
from tofu.gluon.backend import Backend
from tofu.gluon.session import active
from tofu.mx.run import layout

DTYPES = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")
REFUSED = "sign"  # an operator that the fake cannot plan
UNDESCRIBED = "Hypot"
PARTS = {2: (2,), 3: (3,), 4: (2, 2)}
APART = concurrent.futures.ThreadPoolExecutor(1)


class Log:
    """What a backend was asked to do."""

    def __init__(self):
        self.graphs = []
        self.pins = []
        self.programs = 0


@contextlib.contextmanager
def using(backend, **others):
    """In this context sessions use a backend, with other functions for some of its own."""
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
    """Whether results are those of plain MXNet to the bit."""
    return own_backend.own().usable_fetch is _usable_fetch


def logged(backend, log):
    """The backend, telling `log` what it is asked to do."""

    def training_graph(symbol, **options):
        keys = ("train", "gradients", "optimizer")
        log.graphs.append({key: options[key] for key in keys})
        return backend.training_graph(symbol, **options)

    def compile_graph(graph, table, **options):
        log.pins.append(dict(options["pins"]))
        return backend.compile_graph(graph, table, **options)

    def program(*args):
        log.programs += 1
        return backend.program(*args)

    return dataclasses.replace(
        backend, training_graph=training_graph, compile_graph=compile_graph, program=program
    )


def backend():
    def training_graph(
        symbol, *, inputs, parameters, aux, gradients, train, optimizer=None, workers=1
    ):
        text = symbol.tojson()
        if f'"op": "{REFUSED}"' in text:
            raise GraphError(f"operator {REFUSED}: the fake refuses it")
        variables = {}
        for role, group in (("data", inputs), ("parameter", parameters), ("aux", aux)):
            for name, (shape, dtype) in group.items():
                variables[name] = {"role": role, "shape": list(shape), "dtype": dtype}
        return json.dumps(
            {
                "symbol": text,
                "variables": variables,
                "gradients": list(gradients),
                "train": train,
            }
        )

    def strategy_table(graph):
        text = json.loads(graph)["symbol"]
        return "{}", [UNDESCRIBED] if UNDESCRIBED.lower() in text else []

    def compile_graph(graph, table, *, workers, pins, **_options):
        document = json.loads(graph)
        parts = PARTS[workers]
        plans = []
        for name, record in document["variables"].items():
            cuts = pins.get(name)
            if cuts is None:
                cuts = _cuts(record["shape"], parts) if record["role"] != "data" else None
            cuts = tuple(cuts) if cuts is not None else (-1,) * len(parts)
            record["tiles"] = _tiles(name, record["shape"], cuts, parts)
            record["dtype"] = DTYPES.index(record["dtype"])
            plans.append(types.SimpleNamespace(name=name, cuts=cuts))
        text = json.dumps(
            {
                **document,
                "workers": workers,
                "backward": {} if document["gradients"] else None,
            }
        )
        plan = _plan(plans, document, parts)
        return types.SimpleNamespace(
            plan=plan,
            partitioned=text,
            variables=document["variables"],
            phases=text,
            has_backward=bool(document["gradients"]),
            serial_bytes=4096,
            fetched_bytes=plan.total_bytes,
        )

    return Backend(
        training_graph=training_graph,
        strategy_table=strategy_table,
        compile_graph=compile_graph,
        usable_fetch=_usable_fetch,
        program=Program,
        layouts=layout.layouts,
        scatter=layout.scatter,
        gather=layout.gather,
    )


def _usable_fetch(wanted, contexts):
    return wanted or "multifetch", None


class Program:
    """Runs the symbol on the script's context."""

    is_used_up = False

    def __init__(self, phases, contexts, arrays):
        document = json.loads(phases)
        # Each output has a gradient of its own, also where two are the same tensor.
        self._symbol = mx.sym.Group(
            [mx.sym.identity(output) for output in mx.sym.load_json(document["symbol"])]
        )
        self._variables = document["variables"]
        self._gradients = document["gradients"]
        self._contexts = contexts
        self._arrays = dict(arrays)
        self._executor = None
        self.layouts = layout.layouts(json.loads(phases)["variables"])

    def forward(self, inputs, *, is_train, ctx):
        values = {
            name: inputs[name].copyto(ctx)
            if record["role"] == "data"
            else layout.gather(self._tiles(name), self.layouts[name], ctx)
            for name, record in self._variables.items()
        }
        self._is_train, self.is_used_up = is_train, False
        auxiliary = set(self._symbol.list_auxiliary_states())
        # In a thread of its own for its temporary space: see tofu.mx.run.executor.bind_apart.
        self._executor = APART.submit(
            self._symbol.bind,
            ctx,
            {n: v for n, v in values.items() if n not in auxiliary},
            args_grad={n: mx.nd.zeros_like(values[n]) for n in self._gradients},
            grad_req={n: "write" if n in self._gradients else "null" for n in values},
            aux_states={n: v for n, v in values.items() if n in auxiliary},
        ).result()
        return [array.copy() for array in self._executor.forward(is_train=is_train)]

    def backward(self, head_gradients):
        for name, array in self._executor.aux_dict.items():
            layout.gather(self._tiles(name), self.layouts[name], array.context, out=array)
        # An executor's backward pass overwrites what a second one would need.
        self.is_used_up = True
        self._executor.forward(is_train=self._is_train)
        self._executor.backward(list(head_gradients), is_train=self._is_train)
        for name in self._gradients:
            # MXNet does not order its writes of running statistics otherwise.
            self._executor.grad_dict[name].wait_to_read()
        for name, array in self._executor.aux_dict.items():
            layout.scatter(array, self.layouts[name], self._contexts, out=self._tiles(name))
        return {
            name: layout.scatter(self._executor.grad_dict[name], self.layouts[name], self._contexts)
            for name in self._gradients
        }

    def failing_operator(self):
        return None

    def _tiles(self, name):
        return [self._arrays[tile["name"]] for tile in self._variables[name]["tiles"]]


def _plan(tensors, document, parts):
    undescribed = UNDESCRIBED.lower() in document["symbol"]
    replicated = {
        t.name: 4 * int(np.prod(document["variables"][t.name]["shape"]))
        for t in tensors
        if -1 in t.cuts and document["variables"][t.name]["role"] == "parameter"
    }
    operators = [types.SimpleNamespace(op=UNDESCRIBED, bytes=2048)] if undescribed else []
    by_name = {t.name: t for t in tensors}
    return types.SimpleNamespace(
        operators=operators,
        parts=parts,
        total_bytes=1024,
        search_seconds=0.01,
        tensor=lambda name: by_name[name],
        replicated_bytes=lambda: replicated,
    )


def _cuts(shape, parts):
    extents, cuts = list(shape), []
    for count in parts:
        cut = next((d for d, n in enumerate(extents) if n >= count and n % count == 0), -1)
        if cut >= 0:
            extents[cut] //= count
        cuts.append(cut)
    return cuts


def _tiles(name, shape, cuts, parts):
    found = []
    for worker, digits in enumerate(itertools.product(*map(range, parts))):
        begin, end = [0] * len(shape), list(shape)
        for cut, count, digit in zip(cuts, parts, digits):
            if cut >= 0:
                piece = (end[cut] - begin[cut]) // count
                begin[cut] += digit * piece
                end[cut] = begin[cut] + piece
        found.append({"name": f"{name}@{worker}", "worker": worker, "begin": begin, "end": end})
    return found

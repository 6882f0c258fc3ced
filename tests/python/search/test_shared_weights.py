"""Plans of random graphs that share weights, compared with a problem that HiGHS solves.

The problem follows the documented rules (docs/search.md, design 0002, 0013 and 0023) and shares
no code with the search: it lists what an operator can be split along, and counts bytes worker by
worker.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
import pytest
from scipy import optimize, sparse  # type: ignore[import-untyped]

from tofu import _core
from tofu.analysis.strategy_table import strategy_table

WHOLE, TERMS = "whole", "terms"
Cuts = tuple[Any, ...]  # of a tensor: a dimension, WHOLE or TERMS for each step
Split = tuple[str, ...]  # of an operator: an index variable for each step


@dataclass
class Tensor:
    name: str
    shape: tuple[int, int]
    role: str = ""  # of a variable
    batch: bool = True


@dataclass
class Operator:
    """``dims``: the variables of each input's dimensions, and at last of the output's."""

    op: str
    attrs: dict[str, str]
    inputs: list[int]
    output: int
    dims: list[str]

    @property
    def elementwise(self) -> bool:
        return self.op != "dot"

    @property
    def adds(self) -> bool:
        return self.op in ("elemwise_add", "_mul_scalar")


@dataclass
class Network:
    """A training graph: a chain of layers that share weights, and its gradients."""

    parts: list[int]
    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    heads: dict[str, int] = field(default_factory=dict)

    def variable(self, name: str, shape: tuple[int, int], role: str) -> int:
        self.tensors.append(Tensor(name, shape, role, role != "parameter"))
        return len(self.tensors) - 1

    def add(self, op: str, inputs: list[int], dims: list[str], **attrs: str) -> int:
        sizes = dict(
            pair
            for entry, names in zip(inputs, dims)
            for pair in zip(names, self.tensors[entry].shape)
        )
        # A dimension of the output is the batch if it is one of an input's first dimension.
        batch = {names[0] for entry, names in zip(inputs, dims) if self.tensors[entry].batch}
        first, second = tuple(dims[-1])
        output = Tensor(f"{op.strip('_')}{len(self.tensors)}", (sizes[first], sizes[second]))
        output.batch = first in batch
        self.tensors.append(output)
        self.operators.append(Operator(op, attrs, inputs, len(self.tensors) - 1, dims))
        return len(self.tensors) - 1

    def product(self, a: int, b: int, of: str) -> int:
        """``of``: "n" or "t" for each factor."""
        dims = [{"n": "mk", "t": "km"}[of[0]], {"n": "kn", "t": "nk"}[of[1]], "mn"]
        return self.add(
            "dot",
            [a, b],
            dims,
            transpose_a=str(of[0] == "t"),
            transpose_b=str(of[1] == "t"),
        )

    def elementwise(self, op: str, *inputs: int, **attrs: str) -> int:
        return self.add(op, list(inputs), ["mn"] * (len(inputs) + 1), **attrs)

    def sum(self, terms: list[int]) -> int:
        total = terms[0]
        for term in terms[1:]:
            total = self.elementwise("elemwise_add", total, term)
        return total

    def differentiate(self, output: int, decay: bool) -> None:
        self.heads["output"] = output
        made = list(self.operators)
        gradients: dict[int, list[int]] = {
            output: [self.variable("above", self.tensors[output].shape, "head_grad:0")]
        }
        for op in reversed(made):
            given = self.sum(gradients.pop(op.output))
            if op.op == "tanh":
                pairs = [(op.inputs[0], self.elementwise("_backward_tanh", given, op.output))]
            elif op.op == "elemwise_add":
                pairs = [(entry, given) for entry in op.inputs]
            else:
                x, w = op.inputs
                if op.attrs["transpose_b"] == "True":
                    pairs = [(w, self.product(given, x, "tn")), (x, -1)]
                else:
                    pairs = [(w, self.product(x, given, "tn")), (x, -1)]
                if self.tensors[x].role != "data":
                    other = "nn" if op.attrs["transpose_b"] == "True" else "nt"
                    pairs[1] = (x, self.product(given, w, other))
            for entry, gradient in pairs:
                if gradient >= 0 and self.tensors[entry].role != "data":
                    gradients.setdefault(entry, []).append(gradient)
        for weight, terms in gradients.items():
            if decay:
                terms = [*terms, self.elementwise("_mul_scalar", weight, scalar="0.5")]
            self.heads[f"gradient:{self.tensors[weight].name}"] = self.sum(terms)

    def to_json(self) -> str:
        maker = {op.output: op for op in self.operators}
        nodes: list[dict[str, Any]] = []
        for entry, tensor in enumerate(self.tensors):
            if entry in maker:
                op = maker[entry]
                inputs = [[each, 0, 0] for each in op.inputs]
                node = {"op": op.op, "attrs": op.attrs, "inputs": inputs}
            else:
                attrs = {"__tofu_role__": tensor.role}
                node = {"op": "null", "attrs": attrs, "inputs": []}
            nodes.append({"name": tensor.name, **node})
        return json.dumps(
            {
                "nodes": nodes,
                "arg_nodes": [e for e in range(len(nodes)) if e not in maker],
                "node_row_ptr": list(range(len(nodes) + 1)),
                "heads": [[entry, 0, 0] for entry in self.heads.values()],
                "attrs": {
                    "mxnet_version": ["int", 10901],
                    "shape": ["list_shape", [list(each.shape) for each in self.tensors]],
                    "dtype": ["list_int", [0] * len(nodes)],
                    "tofu_heads": ["list_str", list(self.heads)],
                },
            }
        )


def network(seed: int, parts: list[int]) -> Network:
    draw = random.Random(seed)
    unit = math.prod(parts)
    net = Network(parts)
    batch = unit * draw.choice([1, 2, 4, 12])
    widths = [unit * draw.choice([1, 2, 3, 8]) for _ in range(2)]
    weights = [
        net.variable(f"w{i}", shape, "parameter")
        for i, shape in enumerate(
            [(widths[0], widths[1]), (widths[0], widths[0])][: draw.randint(1, 2)]
        )
    ]
    states = []
    for i in range(draw.randint(1, 2)):
        hidden = net.variable(f"x{i}", (batch, widths[0]), "data")
        for _ in range(draw.randint(2, 3)):
            width = net.tensors[hidden].shape[1]
            ways = [
                (w, way)
                for w in weights
                for way, dim in (("nn", 0), ("nt", 1))
                if net.tensors[w].shape[dim] == width
            ]
            w, way = draw.choice(ways)
            product = net.product(hidden, w, way)
            if draw.random() < 0.6:
                product = net.elementwise("tanh", product)
            if draw.random() < 0.3 and net.tensors[product].shape == net.tensors[hidden].shape:
                product = net.elementwise("elemwise_add", product, hidden)
            hidden = product
        states.append(hidden)
    if len(states) == 2:
        w = weights[0]
        for i in range(2):
            if net.tensors[states[i]].shape[1] != widths[0]:
                states[i] = net.product(states[i], w, "nt")
        states = [net.elementwise("elemwise_add", *states)]
    net.differentiate(states[0], draw.random() < 0.3)
    return net


# What follows knows the rules.


def waiting(net: Network) -> tuple[set[int], set[int]]:
    """The tensors that may be terms, and the operators that add some up."""
    maker = {op.output: (number, op) for number, op in enumerate(net.operators)}
    readers: dict[int, list[int]] = {}
    for number, op in enumerate(net.operators):
        for entry in op.inputs:
            readers.setdefault(entry, []).append(number)

    def terms(op: Operator) -> list[int]:
        return [entry for entry in op.inputs if op.adds and may_wait(entry)]

    def may_wait(entry: int) -> bool:
        if entry not in maker or entry in net.heads.values() or len(readers[entry]) != 1:
            return False
        op = maker[entry][1]
        return not op.elementwise or bool(terms(op))

    found: set[int] = set()
    adders: set[int] = set()

    def chain(number: int) -> Iterator[int]:
        yield number
        for entry in terms(net.operators[number]):
            if net.operators[maker[entry][0]].adds:
                yield from chain(maker[entry][0])

    starts = [maker[e][0] for head, e in net.heads.items() if head.startswith("gradient")]
    for number in [*starts, *range(len(net.operators))]:
        several = [len(terms(net.operators[each])) > 1 for each in chain(number)]
        if any(several) if number in starts else several[0]:
            for each in filter(lambda each: terms(net.operators[each]), chain(number)):
                found.update(terms(net.operators[each]))
                adders.add(each)
    return found, adders


@dataclass(frozen=True)
class Worker:
    digits: tuple[int, ...]

    def interval(self, size: int, steps: list[int], parts: list[int]) -> tuple[int, int]:
        low, high = 0, size
        for step in steps:
            piece = (high - low) // parts[step]
            low += self.digits[step] * piece
            high = low + piece
        return low, high

    def box(self, shape: Any, names: Any, cuts: Any, parts: list[int]) -> list[tuple[int, int]]:
        return [
            self.interval(size, [s for s, cut in enumerate(cuts) if cut == name], parts)
            for size, name in zip(shape, names)
        ]


def volume(box: Any) -> int:
    return math.prod(high - low for low, high in box)


def common(one: Any, other: Any) -> int:
    return math.prod(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in zip(one, other))


def workers(parts: list[int]) -> Iterator[Worker]:
    return map(Worker, itertools.product(*map(range, parts)))


def input_elements(shape: Any, cuts: Cuts, names: str, split: Split, parts: list[int]) -> int:
    total = 0
    for worker in workers(parts):
        terms, idle = 1, False
        for step, (cut, name) in enumerate(zip(cuts, split)):
            if name == TERMS and cut != TERMS:
                idle |= worker.digits[step] > 0
            elif cut == TERMS and name != TERMS:
                terms *= parts[step]
        if not idle:
            need = worker.box(shape, names, split, parts)
            total += terms * volume(need) - common(need, worker.box(shape, (0, 1), cuts, parts))
    return total


def output_elements(shape: Any, cuts: Cuts, names: str, split: Split, parts: list[int]) -> int:
    reduced = [name != WHOLE and name not in names for name in split]
    terms = math.prod(part for part, r, cut in zip(parts, reduced, cuts) if r and cut != TERMS)
    shared = [s for s, cut in enumerate(cuts) if cut == WHOLE]
    shared.sort(key=lambda step: reduced[step])

    def fetched(along: Optional[int]) -> int:
        total = 0
        for worker in workers(parts):
            if any(
                cut == TERMS and not r and digit
                for cut, r, digit in zip(cuts, reduced, worker.digits)
            ):
                continue
            tile = worker.box(shape, (0, 1), cuts, parts)
            piece = list(tile)
            if along is not None:
                low, high = tile[along]
                start, end = worker.interval(high - low, shared, parts)
                piece[along] = (low + start, low + end)
            made = worker.box(shape, names, split, parts)
            total += terms * volume(piece) - common(piece, made) + volume(tile) - volume(piece)
        return total

    ways: list[Optional[int]] = [None]
    if shared and terms > 1:
        pieces = math.prod(parts[s] for s in shared)
        for along in range(2):
            left = shape[along] // math.prod(p for p, cut in zip(parts, cuts) if cut == along)
            if left % pieces == 0:
                ways.append(along)
    return min(map(fetched, ways))


def first(twins: dict[int, int], entry: int) -> int:
    """The tensor that decides how this one is cut."""
    while entry in twins:
        entry = twins[entry]
    return entry


def optimum(net: Network) -> int:
    """The least bytes of any plan."""
    may_wait, adders = waiting(net)
    steps = len(net.parts)
    twins = {  # a gradient is cut as its parameter
        entry: next(e for e, t in enumerate(net.tensors) if t.name == head.split(":")[1])
        for head, entry in net.heads.items()
        if head.startswith("gradient")
    }
    for op in net.operators:  # an addition whose sum waits, too, cuts its tensors alike
        if op.elementwise and op.output in may_wait:
            for entry in may_wait.intersection(op.inputs):
                twins[first(twins, entry)] = first(twins, op.output)

    offsets: dict[tuple[str, int], int] = {}
    domains: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    size = 0
    for entry in range(len(net.tensors)):
        choices: list[Any] = [0, 1]
        choices.append(TERMS if entry in may_wait else WHOLE)
        domains["tensor", entry] = list(itertools.product(choices, repeat=steps))
    for number, op in enumerate(net.operators):
        names = sorted(set("".join(op.dims)))
        if number in adders:
            names.append(TERMS)
        if op.output not in may_wait and (
            number in adders or (op.elementwise and not net.tensors[op.output].batch)
        ):
            names.append(WHOLE)
        domains["operator", number] = list(itertools.product(names, repeat=steps))
    for key, domain in domains.items():
        if key[0] == "tensor" and key[1] in twins:
            continue
        offsets[key] = size
        size += len(domain)
    whole = size
    costs: list[float] = [0.0] * size
    rows: list[tuple[list[int], list[int], int]] = [
        (list(range(o, o + len(domains[key]))), [1] * len(domains[key]), 1)
        for key, o in offsets.items()
    ]
    memo: dict[Any, int] = {}
    for number, op in enumerate(net.operators):
        slots = [(entry, dims, input_elements) for entry, dims in zip(op.inputs, op.dims)]
        if op.output in net.heads.values() or any(
            op.output in other.inputs for other in net.operators
        ):
            slots.append((op.output, op.dims[-1], output_elements))
        for entry, dims, count in slots:
            tensors, splits = domains["tensor", entry], domains["operator", number]
            x = offsets["tensor", first(twins, entry)]
            y = offsets["operator", number]
            shape = net.tensors[entry].shape
            z = np.arange(len(tensors) * len(splits)).reshape(len(tensors), len(splits)) + size
            for cuts, split in itertools.product(tensors, splits):
                known = (shape, cuts, dims, split, count)
                if known not in memo:
                    memo[known] = count(shape, cuts, dims, split, net.parts)
                costs.append(memo[known])
            size += z.size
            for i in range(len(tensors)):
                rows.append(([*z[i], x + i], [1] * len(splits) + [-1], 0))
            for j in range(len(splits)):
                rows.append(([*z[:, j], y + j], [1] * len(tensors) + [-1], 0))
    matrix = sparse.lil_matrix((len(rows), size))
    for r, (columns, values, _) in enumerate(rows):
        for column, value in zip(columns, values):
            matrix[r, column] += value
    right = [row[2] for row in rows]
    found = optimize.milp(
        costs,
        constraints=optimize.LinearConstraint(matrix.tocsr(), right, right),
        integrality=[1] * whole + [0] * (size - whole),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 0},
    )
    assert found.status == 0, found.message
    elements: int = round(found.fun)
    return 4 * elements


def check(parts: list[int], seeds: range) -> None:
    for seed in seeds:
        net = network(seed, parts)
        table, _ = strategy_table(_core.Graph(net.to_json()))
        plan = _core.plan(table, workers=math.prod(parts), parts=parts, allow_replication=True)
        assert plan.total_bytes == optimum(net), f"seed {seed}"
        assert plan.status == "optimal", f"seed {seed}"


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("begin", range(0, 200, 20))
def test_plans_of_one_step_are_optimal(begin: int) -> None:
    check([2], range(begin, begin + 20))
    check([3], range(begin, begin + 20))


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("begin", range(0, 100, 5))
def test_plans_of_two_steps_are_optimal(begin: int) -> None:
    check([2, 2], range(begin, begin + 5))

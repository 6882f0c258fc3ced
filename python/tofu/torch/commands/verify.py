"""Runs every operator that a module calls whole and in parts, by every strategy, and compares.

The calls come from the module's joint graph, with the values they have there. A part gets the
regions, zeros and attributes that its row of the strategy table says, as on a rank. An operator
that passes terms of its inputs through is run on two terms of each, too, and their results added.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

from tofu.analysis import row_for
from tofu.analysis.apply_row import Part, extent_of, parts_of
from tofu.analysis.described import description_of
from tofu.analysis.table import Row
from tofu.analysis.terms import linear_inputs
from tofu.boxes import Box
from tofu.errors import ConfigError, TdlError
from tofu.torch.commands.loading import load
from tofu.torch.commands.models import MODELS, SMALL
from tofu.torch.graphs.calls import arguments_of, filled, function_of, is_random
from tofu.torch.graphs.module_graph import attributes_of, operator_name
from tofu.torch.graphs.traced import Entry, Operator, Traced
from tofu.torch.tiles.exchange import COMBINE, WEIGHTED, weighted_mean
from tofu.torch.tiles.private_names import pytree
from tofu.torch.tracing.module_trace import trace

__all__ = ["REFUSALS", "Report", "verify_module", "verify_targets"]

# Options of tofu verify that modules do not have, by parameter, each with the reason.
REFUSALS = {
    "describe": "descriptions of your own are for MXNet's operators",
    "form": "modules have lines of text only",
    "processes": "modules are run in this process",
    "quick": "all calls of a module are run",
    "record": "tofu ops lists MXNet's operators only",
}

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
_PARTS = (2, 3, 4)
_UNSET = ("empty", "empty_like")


@dataclass
class Report:
    """Results of verifying a module.

    Attributes:
        calls: number of operator calls in the module.
        described: number of calls whose operator has a description.
        strategies: number of splits that were run.
        false: splits whose parts do not equal the whole, each with the reason.
        undescribed: operators without a description.
        operators: names of the operators that were run in parts.
        covered: names of the operators that have a description for some call.
    """

    calls: int = 0
    described: int = 0
    strategies: int = 0
    false: list[str] = field(default_factory=list)
    undescribed: set[str] = field(default_factory=set)
    operators: set[str] = field(default_factory=set)
    covered: set[str] = field(default_factory=set)


def verify_targets(targets: Sequence[str], seed: int) -> Iterator[tuple[str, Report]]:
    """Verify modules one after the other.

    Args:
        targets: names of tofu's small modules, or ``package.module:function``; none: all of the
            former.
        seed: of parameters and inputs.

    Raises:
        ConfigError: there is no such module.
    """
    torch.set_num_threads(1)
    unknown = [name for name in targets if name not in SMALL and ":" not in name]
    if unknown:
        raise ConfigError(
            f"tofu verify --framework torch: {unknown[0]}: expected package.module:function or one "
            f"of {', '.join(SMALL)}"
        )
    for name in targets or SMALL:
        torch.manual_seed(seed)
        model, *inputs = MODELS[name](torch.float64) if name in SMALL else load(name)
        yield name, verify_module(model, *inputs)


def verify_module(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Optional[Mapping[str, Any]] = None
) -> Report:
    """Verify the operators of a module's forward and backward pass, on this process's CPU.

    Args:
        model: the module.
        args: its inputs.
        kwargs: inputs by name.
    """
    named = dict(kwargs or {})
    traced = trace(model, args, named)
    report, seen = Report(), set()
    for operator, values in _calls(traced, model, pytree.tree_leaves((tuple(args), named))):
        attrs = attributes_of(operator)
        ins = [tuple(value.shape) for value in values]
        outs = [tuple(tensor.shape) for tensor in operator.outputs]
        report.calls += 1
        try:
            row = row_for(operator_name(operator), attrs, ins, outs)
        except TdlError:  # a plan has it whole, too, and says why
            row = None
        if row is None:
            report.undescribed.add(operator_name(operator))
            continue
        report.described += 1
        report.covered.add(operator_name(operator))
        key = operator_name(operator), tuple(sorted(attrs.items())), tuple(ins), tuple(outs)
        if key not in seen:
            seen.add(key)
            _check(operator, row, values, report)
    return report


def _calls(
    traced: Traced, model: torch.nn.Module, given: Sequence[Any]
) -> Iterator[tuple[Operator, list[Any]]]:
    """Run the joint graph whole; yields every call with the values of its inputs."""
    known: dict[Entry, Any] = {}
    torch.manual_seed(0)
    for variable in traced.variables:
        if variable.kind in ("parameter", "buffer"):
            getter = model.get_parameter if variable.kind == "parameter" else model.get_buffer
            value = getter(variable.name).detach().clone()
        elif variable.kind == "input":
            value = given[variable.number]
        elif variable.kind == "tangent":
            value = torch.rand(variable.meta.shape, dtype=variable.meta.dtype) + 0.5
        else:
            value = variable.value
        known[Entry(variable.name)] = value
    for operator in traced.operators:
        values = [known[entry] for _, entry in operator.inputs]
        yield operator, values
        for k, value in enumerate(_run(operator, values, {})):
            known[Entry(operator.name, k)] = value


def _run(operator: Operator, values: Sequence[Any], changed: Mapping[str, str]) -> list[Any]:
    positional, named = arguments_of(operator, changed, "cpu")
    result = function_of(operator)(
        *(filled(each, values) for each in positional),
        **{name: filled(each, values) for name, each in named.items()},
    )
    every = result if isinstance(result, (tuple, list)) else [result]
    return [every[position] for position in operator.positions]


def _check(operator: Operator, row: Row, values: Sequence[Any], report: Report) -> None:
    """Run every split of a call, alone and in pairs."""
    whole = _run(operator, values, {})
    ins = [tuple(value.shape) for value in values]
    outs = [tuple(value.shape) for value in whole]
    extents = {v: extent_of(row["vars"][v]["extent"], ins, outs) for v in row["splittable"]}
    equal, unequal = _counts(extents, equal=True), _counts(extents, equal=False)
    splits = [[each] for each in (*equal.items(), *unequal.items())]
    splits += [list(pair) for pair in itertools.combinations((unequal | equal).items(), 2)]
    splits += [[(v, 2), (v, 2)] for v, extent in extents.items() if extent >= 4]
    for split in splits:
        report.strategies += 1
        report.operators.add(operator_name(operator))
        fault = _fault(operator, row, values, whole, split)
        if fault is not None:
            names = ", ".join(f"{row['vars'][v]['name']} in {n}" for v, n in split)
            report.false.append(f"{operator_name(operator)}{ins}, split by {names}: {fault}")
    for slots in _linear_inputs(operator, values, whole):
        report.strategies += 1
        for number, total in enumerate(_of_terms(operator, values, slots)):
            fault = _unequal(total, whole[number])
            if fault is not None:
                report.false.append(
                    f"{operator_name(operator)}{ins}, terms of inputs {slots}: output {number}: "
                    f"{fault}"
                )


def _linear_inputs(
    operator: Operator, values: Sequence[Any], whole: Sequence[Any]
) -> list[list[int]]:
    """The sets of inputs whose terms pass through, of numbers whose terms add up to them."""
    description = description_of(operator_name(operator))
    if description is None or is_random(operator):
        return []
    ins, outs = ([tuple(value.shape) for value in each] for each in (values, whole))
    sets = linear_inputs(description.trace(ins, outs, attributes_of(operator)))
    floats = {k for k, value in enumerate(values) if value.dtype.is_floating_point}
    return sorted(sorted(slots) for slots in sets if slots <= floats)


def _of_terms(operator: Operator, values: Sequence[Any], slots: Sequence[int]) -> list[Any]:
    """The sums of the outputs of two terms of some inputs; that of the last input is in one."""
    first, second = list(values), list(values)
    for slot in slots:
        alone = slot == slots[-1] and len(slots) > 1
        share = 1.0 if alone else torch.rand_like(values[slot]) * 4 - 2  # of any sign
        finite = values[slot].isfinite()
        first[slot] = torch.where(finite, values[slot] * share, values[slot])
        second[slot] = torch.where(finite, values[slot] - first[slot], 0.0)
    return [sum(both) for both in zip(_run(operator, first, {}), _run(operator, second, {}))]


def _counts(extents: Mapping[int, int], *, equal: bool) -> dict[int, int]:
    """By variable, the least number of parts that are all of one size, or are not."""
    counts: dict[int, int] = {}
    for variable, extent in extents.items():
        fits = (k for k in _PARTS if extent >= k and (extent % k == 0) == equal)
        counts.update((variable, k) for k in itertools.islice(fits, 1))
    return counts


def _region(value: Any, box: Box, fill: Optional[float]) -> Any:
    """The elements of a box, which may reach outside of a tensor with a fill."""
    inside = box.clipped(tuple(value.shape))
    tile = value[tuple(slice(*side) for side in inside)]
    if inside == box:
        return tile.contiguous()
    padded = torch.full(box.shape, 0.0 if fill is None else fill, dtype=value.dtype)
    padded[tuple(slice(*side) for side in inside.relative_to(box))] = tile
    return padded


def _fault(
    operator: Operator, row: Row, values: Sequence[Any], whole: Sequence[Any], split: Any
) -> Optional[str]:
    attrs = attributes_of(operator)
    ins = [tuple(value.shape) for value in values]
    outs = [tuple(value.shape) for value in whole]
    parts = parts_of(row, attrs, ins, outs, split)
    results = []
    for part in parts:
        tiles = [
            _region(value, box, fill) for value, box, fill in zip(values, part.inputs, part.fills)
        ]
        tiles = [torch.zeros_like(t) if zero else t for t, zero in zip(tiles, part.zeros)]
        changed = {n: v for n, v in part.attributes.items() if attrs.get(n) != v}
        try:
            results.append(_run(operator, tiles, changed))
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return f"part {part.digits} fails: {str(error).splitlines()[0]}"
    for number, expected in enumerate(whole):
        fault = _differs(operator, number, expected, row, split, parts, results)
        if fault is not None:
            return f"output {number}: {fault}"
    return None


def _joined(
    number: int,
    row: Row,
    split: Any,
    parts: Sequence[Part],
    results: Sequence[Sequence[Any]],
    whole: Any,
) -> Any:
    """An output of an operator, from those of its parts."""
    output = row["outputs"][number]
    reduce = {int(v): kind for v, kind in output["reduce"].items()}
    steps = [k for k, (variable, _) in enumerate(split) if variable in reduce]

    def terms(of: int, like: Any) -> list[Any]:
        found: dict[tuple[int, ...], Any] = {}
        for part, result in zip(parts, results):
            term = found.setdefault(tuple(part.digits[k] for k in steps), torch.zeros_like(like))
            term[tuple(slice(*side) for side in part.outputs[of])] = result[of]
        return list(found.values())

    kind = reduce[split[steps[0]][0]] if steps else "sum"
    if kind != WEIGHTED:
        return functools.reduce(COMBINE[kind], terms(number, whole))
    weights, dims = output["weights"]["output"], output["weights"]["dims"]
    shape = tuple(whole.shape[d] for d in dims)
    logs = torch.stack(terms(weights, whole.new_empty(shape, dtype=results[0][weights].dtype)))
    return weighted_mean(terms(number, whole), logs, dims)


def _differs(
    operator: Operator,
    number: int,
    expected: Any,
    row: Row,
    split: Any,
    parts: Sequence[Part],
    results: Sequence[Sequence[Any]],
) -> Optional[str]:
    """Describes how an output assembled from parts differs from the whole; None if it does not."""
    for part, result in zip(parts, results):
        if tuple(result[number].shape) != part.outputs[number].shape:
            return f"part of shape {tuple(result[number].shape)}, not {part.outputs[number].shape}"
    if is_random(operator) or operator.target._schema.name.partition("::")[2] in _UNSET:
        return None
    return _unequal(_joined(number, row, split, parts, results, expected), expected)


def _unequal(found: Any, expected: Any) -> Optional[str]:
    """Describes how a result differs from the whole; None if it does not."""
    if not (expected.is_floating_point() or expected.is_complex()):
        return None if torch.equal(found, expected) else "other values"
    bound = _TOLERANCE.get(expected.dtype, 2e-2)
    slack = bound * (1 + float(expected.abs().nan_to_num(0, 0, 0).max()))
    same = torch.allclose(found, expected, rtol=bound, atol=slack, equal_nan=True)
    return None if same else f"differs by {float((found - expected).abs().max()):.2g}"

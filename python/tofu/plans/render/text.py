"""A plan as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tofu.tables import table

from ..names import readable
from ..plan import (
    REPLICATED,
    STOPPED,
    TERMS,
    IfWhole,
    OperatorPlan,
    Plan,
    TensorPlan,
    format_bytes,
    format_seconds,
)
from .grouping import Repeated, repeated_operators, repeated_tensors

__all__ = [
    "cuts_text",
    "render_text",
    "sentence",
    "summary",
    "tiles_text",
    "unequal_sizes",
    "unequal_text",
]

# Up to this many tensors, each has its own line.
SMALL = 64
ROWS = 20
_MOST = 0.5  # share of all bytes


def render_text(plan: Plan, *, everything: bool = False) -> str:
    """The plan as text.

    Args:
        plan: the plan.
        everything: whether every tensor and operator gets a line. Otherwise, for a large
            graph, equal ones share a line, and only the largest are shown.
    """
    lines = [*summary(plan), ""]
    lines += table(
        ("step", "parts", "groups", "bytes"),
        (
            (str(i), str(s.parts), str(s.groups), f"{s.bytes:,}")
            for i, s in enumerate(plan.steps, 1)
        ),
    )
    if everything or len(plan.tensors) <= SMALL:
        lines += _all(plan)
    else:
        lines += _largest(plan)
    return "\n".join(lines) + "\n"


def sentence(plan: Plan, *, has_limit: bool = False) -> str:
    """The plan for someone who knows none of its words.

    has_limit: whether it was searched within a limit of memory.
    """
    held = sum(plan.bytes_per_worker.values())
    holds = f"Each worker holds at most {format_bytes(held)}" if held else "Memory is unknown"
    if plan.workers == 1:
        return f"{holds}. One worker fetches nothing."
    fetched = plan.total_bytes if plan.fetched_bytes is None else plan.fetched_bytes
    is_own = plan.mode in ("", "tofu")
    kind = "plan" if is_own else f"plan of {plan.mode}"
    advice = ""
    if is_own and not plan.replication:
        kind = "plan that cuts every tensor"
        advice = " One that keeps some whole may cost less: --allow-replication."
        if plan.if_whole is not None:
            advice = f" W{_if_whole(plan.if_whole)[1:]}."
    if has_limit:
        kind += " within this limit"
    cost, bound = plan.proven_cost
    if cost <= bound or plan.status == "optimal":
        proof = f"No other {kind} costs less; that is proven."
    elif bound > 0:
        proof = f"No other {kind} can cost less than {100 * bound / cost:.3g}% of this one."
    else:
        proof = f"Whether another {kind} costs less is not known."
    return (
        f"{holds}; in a training step the {plan.workers} workers fetch {format_bytes(fetched)} "
        f"from each other. {proof}{advice}"
    )


def summary(plan: Plan) -> list[str]:
    """The lines before any table."""
    lines = [
        f"{_workers(plan)}, "
        f"{format_bytes(plan.total_bytes)} communicated per training step "
        f"({plan.quality()}), found in {plan.search_seconds:.3f} s{STOPPED.get(plan.stopped, '')}"
    ]
    if plan.fetched_bytes is not None and plan.fetched_bytes < plan.total_bytes:
        saved = format_bytes(plan.total_bytes - plan.fetched_bytes)
        lines.append(f"{saved} of that is not communicated: equal fetches are shared")
    lines += _shares(plan)
    lines += _time(plan)
    if plan.model:
        lines.append(
            f"{plan.model}: {plan.nodes:,} nodes, {len(plan.operators):,} operators, "
            f"{len(plan.tensors):,} tensors"
        )
    if plan.bytes_per_worker:
        kinds = ", ".join(
            f"{kind.replace('_', ' ')} {format_bytes(count)}"
            + " at that moment" * (plan.memory == "lives" and not count)
            for kind, count in plan.bytes_per_worker.items()
        )
        total = format_bytes(sum(plan.bytes_per_worker.values()))
        exact = {"exact": "", "lives": " at the worst moment"}.get(plan.memory, " (an estimate)")
        lines.append(f"a worker holds {total}{exact}: {kinds}")
    if plan.peak is not None and not plan.peak.reuses:
        needed, allocated = max(plan.peak.bytes, default=0), plan.peak.allocated_bytes
        lines.append(
            "beside plain copies between CPU contexts, MXNet uses no memory again: it allocates "
            f"{format_bytes(allocated)} where {format_bytes(needed)} are needed at once; GPUs, and "
            "--fetch multifetch, take less"
        )
    if plan.if_whole is not None:
        lines.append(_if_whole(plan.if_whole))
    return [*lines, *_recompute(plan), *_whole(plan)]


def _if_whole(cheaper: IfWhole) -> str:
    """The line on a cheaper plan."""
    change = round(100 * (cheaper.held_share - 1))
    more = f"{abs(change)}% {'more' if change > 0 else 'less'}" if change else "as much"
    return (
        f"with --allow-replication {100 * cheaper.saved_share:.2g}% less is communicated, "
        f"{format_bytes(cheaper.total_bytes)}, and a worker holds about {more}"
    )


def _recompute(plan: Plan) -> Iterator[str]:
    """Lines on the operators that run again in the backward pass."""
    counts = plan.recompute
    if counts:
        yield (
            f"{counts['operators']:,} operators in {counts['segments']:,} segments run again in "
            f"the backward pass: {counts['computation']:.2f} x the computation, and "
            f"{format_bytes(counts['bytes'])} of {format_bytes(counts['saved_bytes'])} of "
            "activations (all workers) at a time"
        )


def _shares(plan: Plan) -> Iterator[str]:
    """Lines on steps whose parts get other shares than equal ones."""
    for number, shares in enumerate(plan.parts.shares, 1):
        if shares:
            whole = sum(shares)
            shown = ", ".join(f"{100 * share / whole:.0f}%" for share in shares)
            yield f"devices differ, and so do tiles: step {number} gives its parts {shown}"


def _time(plan: Plan) -> Iterator[str]:
    """The predicted time of a step, and the bytes that cross each level of links."""
    if plan.predicted is None:
        return
    spent = {name: format_seconds(ns / 1e9) for name, ns in plan.predicted.items() if _is_ns(name)}
    yield (
        f"predicted on {plan.predicted['machine']}: {spent['step_ns']} a step; operators "
        f"{spent['compute_ns']}, fetches {spent['fetch_ns']} ({spent['hidden_ns']} of it during "
        f"operators), host {spent['host_ns']}"
    )
    links = plan.predicted["links"]
    if len(links) > 1:
        sizes = [f"{format_bytes(link['bytes'])} over {link['name']}" for link in reversed(links)]
        yield f"of the communication {', '.join(sizes)}"
    if plan.routes:
        yield f"{len(plan.routes):,} inputs cross slow links once and are gathered within hosts"
    if plan.output_routes:
        yield f"{len(plan.output_routes):,} outputs cross slow links once for each host"
    if plan.chosen:
        yield f"chosen by simulation: {_candidates(plan)}"


def _is_ns(name: str) -> bool:
    return name.endswith("_ns")


def _candidates(plan: Plan) -> str:
    """The plans that were simulated, the fastest that fits first."""
    order = sorted(plan.simulated_ns.items(), key=lambda each: (each[1] < 0, abs(each[1])))
    sentences = [
        f"the plan for {name} takes {format_seconds(abs(ns) / 1e9)}"
        f"{' and does not fit' if ns < 0 else ''}"
        for name, ns in order
    ]
    return "; ".join(sentences)


def _whole(plan: Plan) -> list[str]:
    """A hint for plans that leave most bytes whole on every worker."""
    sizes = plan.whole_bytes()
    whole, total = sum(sizes.values()), plan.tensor_bytes
    if not whole or whole < _MOST * total:
        return []
    shown = ", ".join(f"{readable(name)} ({format_bytes(sizes[name])})" for name in list(sizes)[:3])
    return [
        f"{format_bytes(whole)} of the {format_bytes(total)} of all tensors stay whole on every "
        f"worker, as no dimension has {' x '.join(map(str, plan.parts))} elements: {shown}"
        + (", ..." if len(sizes) > 3 else ""),
        "choose fewer workers, or a larger batch or layers",
    ]


def _workers(plan: Plan) -> str:
    """The number of workers: "1 worker", "2 workers", "4 workers (2 x 2)"."""
    steps = f" ({plan.parts.text})" if len(plan.parts) > 1 or not plan.parts.are_equal else ""
    return f"{plan.workers} worker{'s' * (plan.workers != 1)}{steps}"


def _all(plan: Plan) -> list[str]:
    lines = ["", "Tensors (pieces along each dimension; '=' marks a replicated one)", ""]
    lines += table(
        ("tensor", "shape", "dtype", "tiles", "cut per step"),
        ((tensor.label, *_tensor_cells(tensor, plan)) for tensor in plan.tensors),
    )
    lines += ["", "Operators (index variable split at each step)", ""]
    lines += table(
        ("operator", "kind", "split per step", "bytes fetched"),
        ((o.label, o.op, _split_text(o), f"{o.bytes:,}") for o in plan.operators),
    )
    return lines


def _largest(plan: Plan) -> list[str]:
    tensors, operators = repeated_tensors(plan), repeated_operators(plan)
    lines = [
        "",
        "Largest tensors (pieces along each dimension; '=' marks a replicated one; x N: N tensors",
        "whose names differ only in a number)",
        "",
    ]
    lines += table(
        ("tensor", "x N", "shape", "dtype", "tiles", "cut per step", "bytes"),
        (
            (g.name, _times(g), *_tensor_cells(g.first, plan), format_bytes(g.bytes))
            for g in tensors[:ROWS]
        ),
    )
    lines += _rest(tensors, "tensors")
    lines += ["", "Operators that fetch most (index variable split at each step)", ""]
    lines += table(
        ("operator", "x N", "kind", "split per step", "bytes fetched"),
        (
            (g.name, _times(g), g.first.op, _split_text(g.first), format_bytes(g.bytes))
            for g in operators[:ROWS]
        ),
    )
    lines += _rest(operators, "operators")
    return lines


def _rest(
    groups: Sequence[Repeated[TensorPlan]] | Sequence[Repeated[OperatorPlan]], what: str
) -> list[str]:
    rest = groups[ROWS:]
    if not rest:
        return []
    count, size = sum(map(len, rest)), sum(group.bytes for group in rest)
    return [f"... and {count:,} more {what}, {format_bytes(size)} together; --all shows all"]


def _times(group: Repeated[TensorPlan] | Repeated[OperatorPlan]) -> str:
    return f"x {len(group)}" if len(group) > 1 else ""


def _tensor_cells(tensor: TensorPlan, plan: Plan) -> tuple[str, str, str, str]:
    return (
        "x".join(map(str, tensor.shape)) or "scalar",
        tensor.dtype_name,
        tiles_text(tensor, plan.parts),
        cuts_text(tensor),
    )


def tiles_text(tensor: TensorPlan, parts: Sequence[int]) -> str:
    """The number of pieces along each dimension, with "=" if replicated, and unequal sizes."""
    numbers = "x".join(map(str, tensor.tiles(parts))) or "-"
    unequal = unequal_sizes(tensor, parts)
    return numbers + "=" * tensor.replicated + (f" ({unequal})" if unequal else "")


def unequal_sizes(tensor: TensorPlan, parts: Sequence[int]) -> str:
    """The sizes of a tensor's pieces along dimensions whose pieces are not equal."""
    return "; ".join(filter(None, map(unequal_text, tensor.shape, tensor.bounds(parts))))


def unequal_text(extent: int, bounds: Iterable[tuple[int, int]]) -> str:
    """The sizes of a dimension's pieces, largest first, "" where all are equal.

    >>> unequal_text(1024, pieces(1024, (6,)))
    '171 or 170 of 1,024'
    """
    sizes = sorted({high - low for low, high in bounds}, reverse=True)
    if len(sizes) == 1:
        return ""
    *others, last = (f"{size:,}" for size in sizes)
    return f"{', '.join(others)} or {last} of {extent:,}"


def cuts_text(tensor: TensorPlan) -> str:
    """The dimension that each step cuts, "-" for none."""
    names = {REPLICATED: "-", TERMS: "terms"}
    return " ".join(names.get(cut, str(cut)) for cut in tensor.cuts)


def _split_text(operator: OperatorPlan) -> str:
    return " ".join(cut or "-" for cut in operator.cuts)

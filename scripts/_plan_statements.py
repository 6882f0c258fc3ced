"""Checks the papers' statements on searches and plans against ours.

Each check reads the raw data of table1.py, table2.py, figure11.py, tensoropt.py or tensoropt7.py,
and lists the results that contradict its statement.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["PLAN_CHECKS", "observations"]

Document = Mapping[str, Any]
Check = Callable[[Document], list[str]]
_EQUAL = 1.01  # within so much, times and bytes are alike
_NEAR = 0.02  # the largest relative difference of the memory of weights from the paper's
_SHARP = 1.5  # a turning point is sharp if the frontier falls by so much before it


def observations(document: Document) -> Iterator[tuple[str, list[str]]]:
    """Section 7.4's observations, which figure11.py checks: (statement, contradicting results)."""
    for observation in document["observations"]:
        text = observation["text"].rstrip(".")
        contradictions = (
            [] if observation["holds"] else [said.rstrip(".") for said in observation["evidence"]]
        )
        yield f"Figure 11: {text[:1].lower()}{text[1:]}", contradictions


def _recursion_is_faster(document: Document) -> list[str]:
    times: dict[str, dict[str, float]] = {}
    for cell in document["cells"]:
        if cell["seconds"]:
            seconds = statistics.median(cell["seconds"])
            times.setdefault(cell["model"], {})[cell["variant"]] = seconds
    return [
        f"{model}: {seconds['with recursion']:.2f} s instead of {seconds['with coarsening']:.2f} s"
        for model, seconds in times.items()
        if {"with recursion", "with coarsening"} <= seconds.keys()
        and seconds["with recursion"] >= seconds["with coarsening"]
    ]


def _weights_are_as_large(document: Document) -> list[str]:
    return [
        f"{row['model']}: {row['ours_gib']:.2f} GiB, the paper {row['paper_gib']}"
        for row in document["rows"]
        if abs(row["ours_gib"] / row["paper_gib"] - 1) > _NEAR
    ]


# --- TensorOpt ------------------------------------------------------------------------------------


def _rivals(row: Document) -> dict[str, Document]:
    return {each["name"]: each for each in row["rivals"]}


def _least_seconds(row: Document) -> float:
    return float(min(point["step_seconds"] for point in row["frontier"]))


def _optcnn_is_the_fast_end(document: Document) -> list[str]:
    problems = []
    for row in document["rows"]:
        share = _rivals(row)["optcnn"]["step_seconds"] / _least_seconds(row)
        if not 1 / _EQUAL <= share <= _EQUAL:
            problems.append(f"{row['model']}: {share:.2f} times")
    return problems


def _takes_longer(rival: str) -> Check:
    def problems(document: Document) -> list[str]:
        return [
            f"{row['model']}: {_rivals(row)[rival]['step_seconds'] / _least_seconds(row):.2f} times"
            for row in document["rows"]
            if _rivals(row)[rival]["step_seconds"] <= _least_seconds(row)
        ]

    return problems


def _data_parallelism_is_worst(document: Document) -> list[str]:
    problems = []
    for row in document["rows"]:
        plans = [*row["frontier"], *row["rivals"]]
        data = _rivals(row)["data-parallel"]
        for key, what in (("step_seconds", "takes"), ("held_bytes", "holds")):
            if data[key] * _EQUAL < max(plan[key] for plan in plans):
                problems.append(f"{row['model']}: another {what} more")
    return problems


def _turns_sharply(document: Document) -> list[str]:
    problems = []
    for row in document["rows"]:
        slowest = max(point["step_seconds"] for point in row["frontier"])
        if slowest < _SHARP * _least_seconds(row):
            saved = 1 - _least_seconds(row) / slowest
            problems.append(f"{row['model']}: more memory saves {saved:.0%} of the time")
    return problems


def _turning(document: Document, name: str) -> Document:
    """The turning point of a row, or its fastest plan where too few are left to turn."""
    row = next(row for row in document["rows"] if row["name"] == name)
    point: Document = row["turning"] or min(row["frontier"], key=lambda p: p["step_seconds"])
    return point


def _times(document: Document, slow: str, fast: str) -> float:
    slower, faster = (_turning(document, each)["step_seconds"] for each in (slow, fast))
    return float(faster / slower)


def _larger_turn_later(document: Document) -> list[str]:
    sizes = [row["name"] for row in document["rows"] if row["part"] == "size"]
    held = [_turning(document, each)["held_bytes"] for each in sizes]
    return [] if held == sorted(held) else [f"{each / 2**30:.1f} GiB" for each in held]


def _links_do_not_move_it(document: Document) -> list[str]:
    names = [row["name"] for row in document["rows"] if row["part"] == "across hosts"]
    held = [_turning(document, each)["held_bytes"] for each in names]
    far = max(held) / min(held)
    return [] if far <= 1.1 else [f"{far:.2f} times"]


def _four_links_halve_it(document: Document) -> list[str]:
    share = _times(document, "no RDMA", "4 x RDMA")
    return [] if 0.4 <= share <= 0.6 else [f"{share:.2f} of it"]


def _nvlink_is_faster(document: Document) -> list[str]:
    share = _times(document, "PCIe", "NVLink")
    return [] if share <= 0.5 else [f"{share:.2f} of the time"]


def _by_workers(row: Document) -> dict[int, Document]:
    return {each["workers"]: each for each in row["workers"]}


def _ours_needs_half(document: Document) -> list[str]:
    problems = []
    for row in document["rows"]:
        by_workers = _by_workers(row)
        our_counts = [count for count, each in by_workers.items() if each["ours"]]
        data = [count for count, each in by_workers.items() if each["data-parallel"]["fits"]]
        if min(our_counts, default=0) != 8 or min(data, default=0) != 16:
            texts = [f"{min(some)}" if some else "none" for some in (our_counts, data)]
            problems.append(f"{row['model']}: ours {texts[0]}, data parallelism {texts[1]}")
    return problems


def _over_8_and_16(document: Document, key: str) -> Iterator[tuple[str, Any, Any]]:
    """Models with their rows of 8 and of 16 workers; reduced models have none."""
    for row in document["rows"]:
        by_workers = _by_workers(row)
        if {8, 16} <= by_workers.keys():
            yield row["model"], by_workers[8][key], by_workers[16][key]


_LACKS_BOTH = ["not measured over 8 and 16 workers"]


def _less_than_twice_as_fast(document: Document) -> list[str]:
    pairs = list(_over_8_and_16(document, "ours"))
    return [
        f"{model}: {eight['step_seconds'] / sixteen['step_seconds']:.2f}"
        for model, eight, sixteen in pairs
        if eight and sixteen and eight["step_seconds"] >= 2 * sixteen["step_seconds"]
    ] or _LACKS_BOTH[len(pairs) :]


def _tofu_slows_down(document: Document) -> list[str]:
    pairs = list(_over_8_and_16(document, "tofu"))
    return [
        f"{model}: {sixteen['step_seconds'] / eight['step_seconds']:.2f} of it"
        for model, eight, sixteen in pairs
        if sixteen["step_seconds"] <= eight["step_seconds"]
    ] or _LACKS_BOTH[len(pairs) :]


# Script -> its statements.
PLAN_CHECKS: Mapping[str, tuple[tuple[str, Check], ...]] = {
    "table1": (
        ("Table 1: the search is faster with recursion than without", _recursion_is_faster),
    ),
    "table2": (("Table 2: weights take what the paper says, within 2%", _weights_are_as_large),),
    "tensoropt": (
        ("TensorOpt: OptCNN's plan is the fast end of the frontier", _optcnn_is_the_fast_end),
        ("TensorOpt: Tofu's plan takes longer than the frontier's fastest", _takes_longer("tofu")),
        ("TensorOpt: Mesh-TensorFlow's takes longer, too", _takes_longer("mesh-tensorflow")),
        ("TensorOpt: data parallelism takes longest and holds most", _data_parallelism_is_worst),
        ("TensorOpt: a frontier turns sharply, then is flat", _turns_sharply),
        ("TensorOpt: ours runs on 8 workers, data parallelism needs 16", _ours_needs_half),
        ("TensorOpt: 16 workers are less than twice as fast as 8", _less_than_twice_as_fast),
        ("TensorOpt: Tofu's plan takes longer over 16 workers than over 8", _tofu_slows_down),
    ),
    "tensoropt7": (
        ("TensorOpt: larger models turn at more memory", _larger_turn_later),
        ("TensorOpt: links between hosts do not move the turn", _links_do_not_move_it),
        ("TensorOpt: 4 x RDMA takes half the time of no RDMA", _four_links_halve_it),
        ("TensorOpt: NVLink is much faster than PCIe", _nvlink_is_faster),
    ),
}

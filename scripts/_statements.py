"""Checks the papers' statements on their measurements against the simulation.

Each statement reads the raw data of a figure's or table's script and says "holds", or lists the
results that contradict it. SoyBean's statements are in _soybean_statements.py, statements on
searches and plans in _plan_statements.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

from _plan_statements import PLAN_CHECKS, observations
from _soybean_statements import CHECKS

__all__ = ["VERDICTS", "check_statements", "verdict"]

Document = Mapping[str, Any]
Rows = dict[tuple[str, str], Mapping[str, Any]]
HOLDS = "holds"
DIFFERS, UNKNOWN = "differs", "not measured"
VERDICTS = (HOLDS, DIFFERS, UNKNOWN)
# A check says this if the raw data lacks the rows that it needs.
_LACKS = ("not simulated", "not planned", "not measured", "no step")
SMALL = {"wresnet-50-4", "wresnet-50-6", "wresnet-101-4"}  # all that SmallBatch fits
TABLE3 = {
    ("rnn-6-4k", "tofu"): 210,
    ("rnn-8-4k", "tofu"): 154,
    ("rnn-10-4k", "tofu"): 122,
    ("rnn-6-4k", "placement"): 107,
    ("rnn-8-4k", "placement"): 95,
    ("rnn-10-4k", "placement"): 59,
}
NEAR = 0.30  # the largest relative difference of a row of Table 3 from the paper's


def verdict(result: str) -> str:
    """One of VERDICTS: whether the results contradict a statement."""
    if result == HOLDS:
        return HOLDS
    parts = result.split("; ")
    return UNKNOWN if all(any(word in part for word in _LACKS) for part in parts) else DIFFERS


def check_statements(documents: Mapping[str, Document]) -> Iterator[tuple[str, str]]:
    """(statement, "holds" or why not) for every statement whose raw data there is.

    documents: by the name of the script.
    """
    checks: dict[str, list[tuple[str, Callable[[Rows], list[str]]]]] = {
        "figure8": [
            ("tofu reaches 60-95% of ideal (WResNet)", lambda rows: _share(rows, 0.60, 0.95)),
            ("SmallBatch fits WResNet-50-4, 50-6 and 101-4 only", _small_batch),
            ("SmallBatch beats tofu by 12% on WResNet-50-4", _beats("wresnet-50-4", 0.12)),
            ("SmallBatch beats tofu by 15% on WResNet-101-4", _beats("wresnet-101-4", 0.15)),
            (
                "swapping is 20-63% slower than tofu (WResNet)",
                lambda rows: _against_tofu(rows, "swap", 0.37, 0.80),
            ),
            ("tofu fits batch 8 of WResNet-152-10", _batch("wresnet-152-10", 8)),
            ("tofu fits batch 32 of WResNet-152-4", _batch("wresnet-152-4", 32)),
        ],
        "figure9": [
            ("tofu reaches 70-98% of ideal (RNN)", lambda rows: _share(rows, 0.70, 0.98)),
            (
                "swapping has 23-30% of tofu's throughput where weights are large (RNN, 8K)",
                lambda rows: _against_tofu(_of(rows, "8k"), "swap", 0.23, 0.30),
            ),
            (
                "swapping has 48-53% of placement's throughput where weights are large (RNN, 8K)",
                lambda rows: _against(_of(rows, "8k"), "swap", "placement", 0.48, 0.53),
            ),
            (
                "operator placement has 38-61% of tofu's throughput (RNN)",
                lambda rows: _against_tofu(rows, "placement", 0.38, 0.61),
            ),
            ("operator placement is out of memory on RNN-10-8K", _is_out("placement")),
            ("tofu fits batch 128 of RNN-10-8K", _batch("rnn-10-8k", 128)),
        ],
        "table3": [
            ("Table 3's rows are in the paper's order", _order),
            ("Table 3's rows are within 30% of the paper's", _near),
        ],
        "figure10": [
            ("AllRow-Greedy is out of memory on WResNet-152-10", _does_not_fit("allrow-greedy")),
            ("ICML18 is out of memory on WResNet-152-10", _does_not_fit("icml18")),
            ("Spartan saves 3-10% of AllRow-Greedy's time on RNN-4-8K", _saves("spartan")),
            ("EqualChop saves 3-10% of AllRow-Greedy's time on RNN-4-8K", _saves("equalchop")),
            ("ICML18 is 7% slower than Tofu on RNN-4-8K", _icml18_is_slower),
            ("no algorithm with partitioned weights is faster than Tofu", _tofu_is_fastest),
        ],
    }
    for name, statements in checks.items():
        if name not in documents:
            continue
        key = "mode" if name == "figure10" else "system"
        rows = {(row["model"], row[key]): row for row in documents[name]["rows"]}
        for statement, problems in statements:
            yield statement, _told(problems(rows))
    for name, row_checks in CHECKS.items():
        for statement, check in row_checks if name in documents else ():
            yield statement, _told(check(documents[name]["rows"]))
    for name, plan_checks in PLAN_CHECKS.items():
        for statement, judge in plan_checks if name in documents else ():
            yield statement, _told(judge(documents[name]))
    for statement, contradictions in (
        observations(documents["figure11"]) if "figure11" in documents else ()
    ):
        yield statement, _told(contradictions)


def _told(problems: Sequence[str]) -> str:
    return "; ".join(problems) if problems else HOLDS


def _rate(rows: Rows, model: str, system: str) -> float:
    """The throughput; 0 if it does not fit."""
    row = rows[model, system]
    return float(row["samples_per_second"]) if row["fits"] else 0.0


def _models(rows: Rows) -> list[str]:
    return list(dict.fromkeys(model for model, _ in rows))


def _of(rows: Rows, ending: str) -> Rows:
    return {key: row for key, row in rows.items() if key[0].endswith(ending)}


def _outside(model: str, share: float, low: float, high: float) -> list[str]:
    return [] if low <= round(share, 2) <= high else [f"{model}: {share:.0%}"]


def _share(rows: Rows, low: float, high: float) -> list[str]:
    return [
        problem
        for model in _models(rows)
        for problem in _outside(
            model, _rate(rows, model, "tofu") / _rate(rows, model, "ideal"), low, high
        )
    ]


def _against_tofu(rows: Rows, system: str, low: float, high: float) -> list[str]:
    return _against(rows, system, "tofu", low, high)


def _against(rows: Rows, system: str, base: str, low: float, high: float) -> list[str]:
    problems = []
    for model in _models(rows):
        if (model, base) not in rows or (model, system) not in rows:
            problems.append(f"{model}: not simulated")
            continue
        base_rate, system_rate = _rate(rows, model, base), _rate(rows, model, system)
        if base_rate and system_rate:
            problems += _outside(model, system_rate / base_rate, low, high)
        elif not base_rate:
            problems.append(f"{model}: {base} is out of memory")
    return problems


def _small_batch(rows: Rows) -> list[str]:
    problems = []
    for model in _models(rows):
        fits = bool(rows[model, "smallbatch"]["fits"])
        if fits != (model in SMALL):
            problems.append(f"{model}: {'fits' if fits else 'does not fit'}")
    return problems


def _beats(model: str, by: float) -> Callable[[Rows], list[str]]:
    def problems(rows: Rows) -> list[str]:
        if (model, "tofu") not in rows:
            return [f"{model} was not simulated"]
        gain = _rate(rows, model, "smallbatch") / (_rate(rows, model, "tofu") or 1) - 1
        return [] if abs(gain - by) <= 0.05 else [f"by {gain:.0%}"]

    return problems


def _batch(model: str, size: int) -> Callable[[Rows], list[str]]:
    def problems(rows: Rows) -> list[str]:
        if (model, "tofu") not in rows:
            return [f"{model} was not simulated"]
        row = rows[model, "tofu"]
        if not row["fits"]:
            return [f"not even batch {row['batch_size']}"]
        return [] if row["batch_size"] == size else [f"batch {row['batch_size']}"]

    return problems


def _is_out(system: str) -> Callable[[Rows], list[str]]:
    def problems(rows: Rows) -> list[str]:
        row = rows.get(("rnn-10-8k", system))
        if row is None:
            return ["rnn-10-8k was not simulated"]
        return [f"it fits batch {row['batch_size']}"] if row["fits"] else []

    return problems


def _order(rows: Rows) -> list[str]:
    problems = []
    for system in ("tofu", "placement"):
        rates = [_rate(rows, f"rnn-{layers}-4k", system) for layers in (6, 8, 10)]
        if rates != sorted(rates, reverse=True):
            problems.append(f"{system}: {', '.join(f'{rate:.0f}' for rate in rates)}")
    for model in _models(rows):
        if _rate(rows, model, "placement") >= _rate(rows, model, "tofu"):
            problems.append(f"{model}: placement is faster")
    return problems


def _near(rows: Rows) -> list[str]:
    return [
        f"{model}, {system}: {_rate(rows, model, system):.0f}, the paper {paper}"
        for (model, system), paper in TABLE3.items()
        if abs(_rate(rows, model, system) / paper - 1) > NEAR
    ]


# --- Figure 10, whose rows have search modes --------------------------------------------------

_PARTITIONED = ("allrow-greedy", "spartan", "equalchop", "icml18")


def _does_not_fit(mode: str) -> Callable[[Rows], list[str]]:
    def problems(rows: Rows) -> list[str]:
        row = rows.get(("wresnet-152-10", mode))
        if row is None:
            return ["wresnet-152-10 was not planned"]
        held = (row.get("allocated_bytes") or sum(row["worker_bytes"].values())) / 2**30
        return [f"a worker holds {held:.1f} GiB"] if row["fits"] else []

    return problems


def _slower(rows: Rows, model: str, mode: str) -> Optional[float]:
    """The slowdown against the paper's algorithm; None where no step was simulated."""
    times = [(rows.get((model, each)) or {}).get("step_seconds") for each in (mode, "recursion")]
    return times[0] / times[1] - 1 if times[0] and times[1] else None


def _saves(mode: str) -> Callable[[Rows], list[str]]:
    """Check the saving against AllRow-Greedy, which is 0% slower than itself."""

    def problems(rows: Rows) -> list[str]:
        slowdown, base_slowdown = (
            _slower(rows, "rnn-4-8k", mode),
            _slower(rows, "rnn-4-8k", "allrow-greedy"),
        )
        if slowdown is None or base_slowdown is None:
            return ["not simulated"]
        saved = 1 - (1 + slowdown) / (1 + base_slowdown)
        return [] if 0.03 <= round(saved, 2) <= 0.10 else [f"{saved:.1%}"]

    return problems


def _icml18_is_slower(rows: Rows) -> list[str]:
    slowdown = _slower(rows, "rnn-4-8k", "icml18")
    if slowdown is None:
        return ["not simulated"]
    return [] if abs(slowdown - 0.07) <= 0.05 else [f"{slowdown:.0%}"]


def _tofu_is_fastest(rows: Rows) -> list[str]:
    problems = []
    for model in _models(rows):
        for mode in _PARTITIONED:
            slowdown = _slower(rows, model, mode)
            if slowdown is None:
                problems.append(f"{model}, {mode}: not simulated")
            elif slowdown < -0.01:
                problems.append(f"{model}, {mode}: {-slowdown:.0%} faster")
    return problems

"""Checks all strategies of one operator, on its cases' shapes and types and on random ones."""

from __future__ import annotations

import dataclasses
import shlex
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence

import mxnet as mx
import numpy as np

from tofu.analysis.apply_row import Split
from tofu.boxes import piece
from tofu.config import Config
from tofu.errors import TdlError, TofuError
from tofu.lang import lookup
from tofu.lang.example_calls import Case
from tofu.verify.check.draw import drawn, with_dtype
from tofu.verify.find.missing import missing_ways
from tofu.verify.find.omitted_splits import EXPLAINED
from tofu.verify.run.by_parts import MismatchError, Run

__all__ = [
    "SEARCH",
    "Finding",
    "Verdict",
    "check_operator",
    "described_in",
    "splits_of",
    "unequal_pieces",
]

_DTYPES = ("float32", "float16", "float64", "int32", "int64", "int8", "uint8", "bool")
_WHOLE_NUMBERS = [t for t in _DTYPES if np.dtype(t).kind != "f"]
SEARCH = "search"  # the step that searches for missing splits
_DRAWS = 3  # random calls of an operator, over all of its cases; at least one for each
_DTYPE_CASES = 1
_SEARCH_CASES = 2
# A quick check: numbers of cases, random calls and types of an operator; no search.
_QUICK_CASES, _QUICK_DRAWS, _QUICK_DTYPES = 3, 1, ("float32", "int32")
_MOST_PARTS = 7
_MANY = (30, 40, 45, 60)  # sizes large enough to compare distributions


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something to report about an operator.

    Attributes:
        op: the operator.
        case: the call: shapes, attributes and type.
        strategy: the split; empty for a call that did not run.
        detail: the finding in words.
        reproduce: the command that reproduces it.
    """

    op: str
    case: str
    strategy: str
    detail: str
    reproduce: str


@dataclasses.dataclass
class Verdict:
    """The findings about one operator.

    Attributes:
        op: its name.
        checked: number of runs in parts, of one strategy or several.
        false: strategies that are wrong.
        missing: splits that work, without a strategy or an explanation.
        explained: splits that work but are not strategies, for a known reason.
        skipped: calls that did not run.
    """

    op: str
    checked: int = 0
    false: list[Finding] = dataclasses.field(default_factory=list)
    missing: list[Finding] = dataclasses.field(default_factory=list)
    explained: list[Finding] = dataclasses.field(default_factory=list)
    skipped: list[Finding] = dataclasses.field(default_factory=list)


def check_operator(
    op: str,
    cases: Sequence[Case],
    seed: int,
    tell: Callable[[str], None] = lambda step: None,
    avoid: Collection[str] = (),
    quick: bool = False,
) -> Verdict:
    """Run every strategy of an operator in parts.

    Args:
        op: the operator.
        cases: example calls of it.
        seed: seeds shapes and values, independently of other operators.
        tell: called with the name of each call before it runs.
        avoid: calls that are known to crash the process.
        quick: whether to run only a sample.
    """
    return _Checker(op, cases, seed, tell, avoid, quick).run()


def splits_of(run: Run, rng: np.random.Generator) -> Iterator[list[Split]]:
    """Splits to try: none, each variable in equal and unequal parts, pairs of neighbours.

    Unequal parts are those that plans have, and others.
    """
    yield []
    splittable = run.row["splittable"]
    for var in splittable:
        extent = run.extent(var)
        for parts in (2, 3):
            if extent % parts == 0:
                yield [(var, parts)]
        for sizes in unequal_pieces(extent):
            yield [(var, sizes)]
        if extent > 2:
            yield [(var, _uneven(extent, rng))]
    for a, b in zip(splittable, splittable[1:]):
        yield [(a, _halves(run.extent(a))), (b, _halves(run.extent(b)))]


def _once(run: Run) -> Iterator[list[Split]]:
    """Splits each variable into two parts."""
    for var in run.row["splittable"]:
        if run.extent(var) > 1:
            yield [(var, _halves(run.extent(var)))]


def unequal_pieces(extent: int) -> list[tuple[int, ...]]:
    """Ways to cut as a plan's step does: one piece is larger, one smaller, or all have 1 or 2.

    >>> unequal_pieces(7)
    [(2, 2, 2, 1), (2, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1)]
    """
    remainders = {parts: extent % parts for parts in range(2, min(extent, _MOST_PARTS) + 1)}
    larger = [parts for parts, rest in remainders.items() if rest == 1]
    smaller = [parts for parts, rest in remainders.items() if rest == parts - 1]
    tiny = [parts for parts in (extent - 1, extent) if 3 < parts <= _MOST_PARTS]
    counts = sorted({*larger[-1:], *smaller[-1:], *tiny})
    return [
        tuple(end - begin for begin, end in (piece((0, extent), parts, k) for k in range(parts)))
        for parts in counts
    ]


def _uneven(extent: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Splits an extent about 60/40 or 40/60."""
    larger = min(max(round(0.6 * extent), extent // 2 + 1), extent - 1)
    sizes = (larger, extent - larger)
    return sizes if rng.integers(2) else sizes[::-1]


def _halves(extent: int) -> tuple[int, ...]:
    return (extent - extent // 2, extent // 2) if extent > 1 else (1,)


def described_in() -> str:
    """Command-line options that name the files with the operators' descriptions."""
    files = Config.from_environment().describe
    return "".join(f" --describe {shlex.quote(str(path))}" for path in files)


class _Checker:
    """The state of ``check_operator``."""

    def __init__(
        self,
        op: str,
        cases: Sequence[Case],
        seed: int,
        tell: Callable[[str], None],
        avoid: Collection[str],
        quick: bool,
    ) -> None:
        self.cases = cases
        self.quick = quick
        self.seed = seed
        self.tell = tell
        self.avoid = avoid
        self.verdict = Verdict(op)
        self.rng = np.random.default_rng([seed, zlib.crc32(op.encode())])
        description = lookup(op)
        self.random = description is not None and description.random

    def run(self) -> Verdict:
        """Check all calls."""
        mx.random.seed(self.seed)
        if self.quick:
            self.cases = self._some(self.cases, _QUICK_CASES)
        for case in self.cases:
            self._check(case, required=True)
        calls = [*self.cases, *self._drawn()]
        if not self.quick:
            self._search()
        for case in self._some(calls, _DTYPE_CASES):
            for dtype in _QUICK_DTYPES if self.quick else _DTYPES:
                if dtype != case.dtype and not (case.floats and dtype in _WHOLE_NUMBERS):
                    self._check(with_dtype(case, dtype), required=False, briefly=True)
        return self.verdict

    def _drawn(self) -> list[Case]:
        """Draws more calls that run: the cases with other sizes."""
        draws = max(1, _DRAWS // max(len(self.cases), 1))
        sizes = {"sizes": _MANY} if self.random else {}
        others = []
        for case in self._some(self.cases, _QUICK_DRAWS) if self.quick else self.cases:
            for _ in range(1 if self.quick else draws):
                variant = drawn(case, self.rng, **sizes)
                if variant is not None and self._check(variant, required=False):
                    others.append(variant)
        return others

    def _some(self, calls: Sequence[Case], count: int) -> list[Case]:
        chosen = self.rng.permutation(len(calls))[:count]
        return [calls[k] for k in sorted(chosen)]

    def _check(self, case: Case, *, required: bool, briefly: bool = False) -> bool:
        """Check a call. Returns False if it does not run, and reports it if the call is `required`.

        `briefly` checks every strategy once.
        """
        name = f"{case.name} {case.dtype}"
        if self._ends_the_process(case, name):
            if name in self.avoid:
                self._skip(name, "MXNet ends the process")
            return False
        self.tell(name)
        try:
            run = Run(case, self.seed)
        except (mx.MXNetError, TofuError, ValueError, TypeError) as error:
            if required and isinstance(error, TdlError):
                lines = "\n  ".join(str(error).splitlines())  # the place, finding and expectation
                rejected = f"the analysis rejects its description: {lines}"
                self.verdict.false.append(self._finding(name, "", rejected))
            elif required:
                self._skip(name, str(error).strip().splitlines()[-1])
            return False
        tried = _once(run) if briefly else splits_of(run, self.rng)
        for splits in tried:
            self.verdict.checked += 1
            try:
                run.check(splits)
            except MismatchError as error:
                self._false(name, run, splits, str(error))
            except mx.MXNetError as error:
                detail = f"a part does not run: {str(error).strip().splitlines()[-1]}"
                self._false(name, run, splits, detail)
        self._check_terms(name, run)
        return True

    def _check_terms(self, name: str, run: Run) -> None:
        """Check that terms pass through the operator where its description says so."""
        for slots in run.linear_inputs():
            self.verdict.checked += 1
            try:
                run.check_terms(slots)
            except (MismatchError, mx.MXNetError) as error:
                self.verdict.false.append(self._finding(name, "terms", str(error)))

    def _search(self) -> None:
        """Search for splits that the description does not yield."""
        if SEARCH in self.avoid:
            return  # the search crashed the process on parts that the operator does not check
        self.tell(SEARCH)
        for case in self._some(self.cases, _SEARCH_CASES):
            if case.fixed or case.imperative:
                continue
            try:
                for way in missing_ways(case, self.seed):
                    self._missing(case.name, way.text())
            except (mx.MXNetError, TofuError):
                continue  # already reported

    def _ends_the_process(self, case: Case, name: str) -> bool:
        """Whether this call, or the same one with another integer type, crashed the process."""
        whole = np.dtype(case.dtype).kind != "f"
        return name in self.avoid or (
            whole and any(a.split()[-1] in _WHOLE_NUMBERS for a in self.avoid)
        )

    def _false(self, name: str, run: Run, splits: Sequence[Split], detail: str) -> None:
        strategy = ", ".join(run.names([var for var, _ in splits]))
        self.verdict.false.append(self._finding(name, strategy, detail))

    def _missing(self, name: str, split: str) -> None:
        reason = EXPLAINED.get(self.verdict.op)
        if reason is None:
            self.verdict.missing.append(self._finding(name, "", split))
        else:
            self.verdict.explained.append(self._finding(name, "", f"{split} ({reason})"))

    def _skip(self, name: str, detail: str) -> None:
        self.verdict.skipped.append(self._finding(name, "", detail))

    def _finding(self, name: str, strategy: str, detail: str) -> Finding:
        op = self.verdict.op
        command = f"tofu verify {op} --seed {self.seed}{' --quick' * self.quick}{described_in()}"
        return Finding(op, name, strategy, detail, command)

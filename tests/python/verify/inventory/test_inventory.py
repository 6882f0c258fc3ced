"""The inventory, and the page made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

import tofu
from tofu.analysis import row_for
from tofu.cli.reports import operator_list, operator_report
from tofu.lang import lookup, op
from tofu.mx.extension import load
from tofu.mx.graphs.gradient import RENAMED
from tofu.verify.calls.operator_calls import NOT_RUN, cases_by_operator, shipped_cases
from tofu.verify.check.operator import check_operator
from tofu.verify.find.omitted_splits import EXPLAINED
from tofu.verify.inventory import cache, recorded_results
from tofu.verify.inventory.classes import CLASSES, class_of, counts
from tofu.verify.inventory.inventory import (
    Call,
    call_of,
    fingerprint,
    inventory,
    operator_of,
)
from tofu.verify.inventory.listing import registered_operators

PAGE = Path(__file__).parents[4] / "docs" / "operators.md"


@pytest.fixture(scope="module")
def operators() -> list[dict[str, object]]:
    return [operator.to_document() for operator in inventory()]


def test_every_registered_operator_is_listed_once(operators: list) -> None:
    document = json.loads(operator_list.ops_text(operators, "json"))
    assert set(document) == {"format", "version", "summary", "operators"}
    assert set(document["summary"]) == {"registered", "described", "verified", "inexpressible"}
    assert document["summary"]["registered"] == 886
    names = [o["name"] for o in document["operators"]]
    assert len(set(names)) == 886
    assert set(document["operators"][0]) == {
        *("name", "aliases", "class", "described", "strategies", "reductions", "halos"),
        *("verified", "reason"),
    }
    assert {o["class"] for o in document["operators"]} <= set(CLASSES)
    aliases = {alias: o["name"] for o in document["operators"] for alias in o["aliases"]}
    assert aliases["identity"] == "_copy"


def test_what_tofu_itself_registers_is_not_listed() -> None:
    load()
    names = registered_operators()
    assert not RENAMED.keys() & names.keys()
    assert not [name for name in names if name.startswith("_tofu_")]
    assert {"_zeros_without_dtype", "add_n"} <= names.keys()


def test_what_is_not_described_has_a_reason(operators: list) -> None:
    assert all(o["reason"] for o in operators if not o["described"])


def test_what_is_described_and_not_verified_says_why(operators: list) -> None:
    """All other operators were run, even those without shape inference, like NumPy's stacks."""
    reasons = {o["name"]: o["reason"] for o in operators if o["described"] and not o["verified"]}
    assert reasons == {name: f"not run: {why}" for name, why in NOT_RUN.items()}
    assert next(o for o in operators if o["name"] == "_npi_dstack")["strategies"] == 2


def test_the_page_is_true(operators: list) -> None:
    """To update the page, run: tofu ops --format markdown > docs/operators.md."""
    assert PAGE.read_text(encoding="utf-8") == operator_list.ops_text(operators, "markdown")


def test_only_what_was_verified_as_it_is_now_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed description, or more calls, change the fingerprint."""
    cases = cases_by_operator()

    def verified(op: str) -> bool:
        return operator_of(op, [], cases[op], {}).verified

    assert verified("relu") and verified("sum")
    other = {op: fingerprint([call_of(cases[op][0])]) for op in ("relu", "sigmoid", "sum")}
    assert len(set(other.values())) == 3
    for mark in ({}, {"fingerprint": other["sigmoid"]}, {"fingerprint": "0" * 16}):
        monkeypatch.setattr("tofu.verify.inventory.inventory.recorded", lambda m=mark: {"relu": m})
        assert not verified("relu")
    # One of several calls is not enough.
    own = {"fingerprint": other["sum"]}
    monkeypatch.setattr("tofu.verify.inventory.inventory.recorded", lambda: {"sum": own})
    assert len(cases["sum"]) > 1 and not verified("sum")


def test_a_fingerprint_follows_the_description() -> None:
    def described(number: int) -> str:
        @op(name=f"fingerprinted{number}")
        def description(x):
            return (lambda i: x[i]) if number else (lambda i: tofu.lang.exp(x[i]))

        return fingerprint([Call(f"fingerprinted{number}", {}, ((4,),), ((4,),))])

    assert described(0) != described(1)


def test_what_is_verified_is_in_the_record(operators: list) -> None:
    kept = recorded_results.recorded()
    verified = {o["name"] for o in operators if o["verified"]}
    assert verified <= set(kept)
    assert all(kept[name]["checked"] > 0 for name in verified)


CALLS = {
    "relu": ({}, [(6, 4)], [(6, 4)], "element-wise", (2, 0, 0)),
    "broadcast_add": ({}, [(6, 4), (1, 4)], [(6, 4)], "broadcast", (2, 0, 0)),
    "sum": ({"axis": "1"}, [(6, 4)], [(6,)], "reduction", (2, 1, 0)),
    "dot": ({}, [(6, 4), (4, 8)], [(6, 8)], "contraction", (3, 1, 0)),
    "transpose": ({}, [(6, 4)], [(4, 6)], "data movement", (2, 0, 0)),
    "softmax": ({}, [(6, 4)], [(6, 4)], "opaque with batch dimensions", (1, 0, 0)),
    "Dropout": ({}, [(6, 4)], [(6, 4), (6, 4)], "random", (2, 0, 0)),
    "sgd_update": ({"lr": "1"}, [(6, 4), (6, 4)], [(6, 4)], "optimizer update", (2, 0, 0)),
}


@pytest.mark.parametrize("op", CALLS)
def test_the_class_comes_from_the_description(op: str) -> None:
    attrs, ins, outs, expected, numbers = CALLS[op]
    row = row_for(op, attrs, ins, outs)
    trace = lookup(op).trace(ins, outs, attrs)
    assert class_of(trace, row) == expected
    assert counts(row, attrs, ins, outs) == numbers


def test_a_convolution_reads_a_halo() -> None:
    attrs = {"kernel": "(3,)", "num_filter": "4", "no_bias": "True"}
    ins, outs = [(2, 3, 10), (4, 3, 3)], [(2, 4, 8)]
    row = row_for("Convolution", attrs, ins, outs)
    assert counts(row, attrs, ins, outs)[2] >= 1


def test_the_cache_is_read_and_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache.cache_directory()
    folder.mkdir(parents=True)
    kept = folder / f"inventory-{cache._fingerprint()}.json"
    operators = [{"name": "kept"}]
    whole = json.dumps({"sha256": cache._digest(operators), "operators": operators})
    kept.write_text(whole)
    assert cache.cached_inventory() == [{"name": "kept"}]
    monkeypatch.setattr("tofu.verify.inventory.inventory.inventory", lambda: [])
    for damaged in (whole.replace("kept", "gone"), whole[:-1], "{}", "[]", "null", "[" * 9999):
        kept.write_text(damaged)
        assert cache.cached_inventory() == [], damaged
        assert json.loads(kept.read_text())["operators"] == []
    monkeypatch.setattr(cache, "_fingerprint", lambda: "another")
    assert cache.cached_inventory() == []
    assert [path.name for path in folder.iterdir()] == ["inventory-another.json"]


def test_every_split_that_is_missing_is_explained_and_nothing_else() -> None:
    """Run after tofu verify --record. Delete explanations of splits that are no longer found."""
    kept = recorded_results.recorded()
    assert [op for op, mark in kept.items() if "missing" in mark] == []
    assert {op for op, mark in kept.items() if "explained" in mark} == set(EXPLAINED)
    assert all(EXPLAINED.values())


def test_an_explanation_takes_a_split_out_of_the_missing() -> None:
    case = next(case for case in shipped_cases() if case.op == "size_array")
    verdict = check_operator("size_array", [case], 1)
    document = json.loads(operator_report.verdicts_document([verdict]))
    kinds = {"checked", "false", "missing", "explained", "skipped"}
    assert set(document) == {"format", "version", *kinds}
    assert document["false"] == document["missing"] == []
    reason = f"({EXPLAINED['size_array']})"
    assert all(f["detail"].endswith(reason) for f in document["explained"])
    assert [f["detail"].split(":")[0] for f in document["explained"]] == [
        "dimension 1 of input 0",
        "dimension 0 of input 0",
    ]
    assert "0 false, 0 missing, 2 explained, 0 skipped" in operator_report.verdicts_text([verdict])


def test_what_nothing_explains_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tofu.verify.check.operator.EXPLAINED", {})
    case = next(case for case in shipped_cases() if case.op == "size_array")
    verdict = check_operator("size_array", [case], 1)
    assert len(verdict.missing) == 2 and verdict.explained == []


def test_terms_that_do_not_pass_through_are_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tofu.verify.run.by_parts.linear_inputs", lambda trace: [frozenset({0})])
    case = next(case for case in shipped_cases() if case.op == "relu")
    verdict = check_operator("relu", [case], 1, quick=True)
    assert {finding.strategy for finding in verdict.false} == {"terms"}
    assert "from terms of inputs [0]: differs by up to" in verdict.false[0].detail

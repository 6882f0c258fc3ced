"""The commands about operators, and the effects of their options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

from click.testing import CliRunner, Result

from tofu.cli.main import cli
from tofu.cli.reports import operator_list, operator_report
from tofu.errors import ConfigError
from tofu.verify.check.operator import Finding, Verdict
from tofu.verify.inventory import recorded_results

from ..support import forked


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MXNET_GRAPH_PASS", "OMP_NUM_THREADS", "TOFU_DESCRIBE"):
        monkeypatch.setenv(name, "")


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


def test_a_finding_names_the_seed_that_it_was_found_with(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Runs in a separate process, in which the finding is about the real operator."""
    ran = invoke("verify", "size_array", "--seed", "7", "--processes", "1")
    assert capfd.readouterr() == ("", ""), "MXNet's log of what it binds"
    assert ran.exit_code == 0, ran.output
    assert ran.output.count("  tofu verify size_array --seed 7\n") == 2
    assert "explained: size_array-" in ran.output


class Calls:
    """Stands in for the verifying processes, and records the calls."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = verdicts
        self.asked: list = []

    def __call__(self, ops, seed, *, processes, quick):
        self.asked.append((list(ops), seed, processes, quick))
        return iter(self.verdicts)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recorded_results, "PATH", tmp_path / "recorded.json")
    recorded_results.recorded.cache_clear()
    yield tmp_path / "recorded.json"
    recorded_results.recorded.cache_clear()


def replace(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict) -> Calls:
    calls = Calls(*verdicts)
    monkeypatch.setattr(operator_report, "check_all", calls)
    return calls


def test_options_reach_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = replace(monkeypatch, Verdict("relu", 4))
    assert invoke("verify", "relu", "--seed=7", "--processes=3", "--quick").exit_code == 0
    assert invoke("verify", "relu", "--processes=1").exit_code == 0
    assert calls.asked == [(["relu"], 7, 3, True), (["relu"], 1, 1, False)]


def test_all_operators_are_verified_unless_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = replace(monkeypatch)
    invoke("verify", "--processes=1")
    ((names, *_),) = calls.asked
    assert names == sorted(names) and {"Convolution", "relu"} <= set(names)


def test_a_name_that_no_operator_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="tofu verify rleu: MXNet has no such operator; did you"):
        operator_report.known_operators(["relu", "rleu"])


def test_others_are_checked_beside_an_operator_that_cannot_be_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = replace(monkeypatch, Verdict("relu", 4))
    ran = invoke("verify", "_backward_add", "relu", "_contrib_boolean_mask", "--processes=1")
    assert ran.exit_code == 1
    assert calls.asked == [(["relu"], 1, 1, False)]
    assert "1 operator, 4 runs in parts" in ran.output
    said = ran.output + ran.stderr
    assert "tofu: nothing of _backward_add was checked: not run: no gradient uses it" in said
    reason = "the output's shape depends on the values"  # as tofu ops says
    assert f"tofu: nothing of _contrib_boolean_mask was checked: {reason}" in said


def test_another_name_of_an_operator_will_do() -> None:
    assert operator_report.known_operators(["elemwise_add", "_add"]) == (["elemwise_add"], {})


def finding(op: str, strategy: str = "") -> Finding:
    return Finding(op, f"{op}-6x4-", strategy, "differs by up to 1", f"tofu verify {op} --seed 1")


def test_a_false_strategy_is_shown_and_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, Verdict("relu", 4, false=[finding("relu", "i0")]), Verdict("dot", 2))
    ran = invoke("verify", "relu", "dot", "--processes=1")
    assert ran.exit_code == 1
    assert ran.output.strip().splitlines() == [
        "false: relu-6x4-, split by i0",
        "  differs by up to 1",
        "  tofu verify relu --seed 1",
        "2 operators, 6 runs in parts: 1 false, 0 missing, 0 explained, 0 skipped",
    ]


def test_one_operator_is_no_plural(monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, Verdict("relu", 4))
    assert invoke("verify", "relu", "--processes=1").output.strip().startswith("1 operator, 4")


def test_missing_and_skipped_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, Verdict("relu", 4, missing=[finding("relu")], skipped=[finding("relu")]))
    ran = invoke("verify", "relu", "--processes=1", "--format=json")
    assert ran.exit_code == 0
    document = json.loads(ran.output)
    assert document["checked"] == 4 and len(document["missing"]) == len(document["skipped"]) == 1


def test_the_record_says_what_was_checked_and_how(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(monkeypatch, Verdict("relu", 4), Verdict("dot", 6, explained=[finding("dot")]))
    invoke("verify", "relu", "dot", "--seed=7", "--record", "--quick", "--processes=1")
    found = json.loads(kept.read_text())
    marks = {
        op: {k: v for k, v in mark.items() if k != "fingerprint"} for op, mark in found.items()
    }
    assert marks == {
        "relu": {"seed": 7, "checked": 4, "quick": True},
        "dot": {"seed": 7, "checked": 6, "quick": True, "explained": 1},
    }
    replace(monkeypatch, Verdict("relu", 9))
    invoke("verify", "relu", "--record", "--processes=1")
    again = json.loads(kept.read_text())
    assert again["dot"] == found["dot"]
    assert again["relu"] == {"fingerprint": found["relu"]["fingerprint"], "seed": 1, "checked": 9}


@pytest.mark.parametrize(
    "verdict", [Verdict("relu", 4, false=[finding("relu", "i0")]), Verdict("relu")]
)
def test_what_is_false_or_was_not_run_leaves_the_record(
    kept: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    kept.write_text('{"relu": {"checked": 1}, "dot": {"checked": 2}}')
    replace(monkeypatch, verdict)
    invoke("verify", "relu", "--record", "--processes=1")
    assert json.loads(kept.read_text()) == {"dot": {"checked": 2}}


def test_nothing_is_recorded_unless_asked_to(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, Verdict("relu", 4))
    invoke("verify", "relu", "--processes=1")
    assert not kept.exists()


OPERATORS = [
    {
        "name": "relu", "aliases": ["r"], "class": "element-wise", "described": True,
        "strategies": 2, "reductions": 0, "halos": 0, "verified": True, "reason": None,
    },
    {
        "name": "sum", "aliases": [], "class": "reduction", "described": True,
        "strategies": 12, "reductions": 1, "halos": 3, "verified": False, "reason": None,
    },
    {
        "name": "svd", "aliases": [], "class": "not expressible", "described": False,
        "strategies": 0, "reductions": 0, "halos": 0, "verified": False, "reason": "it is whole",
    },
]  # fmt: skip


def test_operators_as_a_table() -> None:
    assert operator_list.ops_text(OPERATORS, "text").splitlines() == [
        "operator  class            splits  reduce  halo  verified",
        "relu      element-wise          2       0     0  yes",
        "sum       reduction            12       1     3  no",
        "svd       not expressible                        it is whole",
        "3 registered, 2 described, 1 verified, 1 inexpressible",
    ]


def test_operators_as_a_page() -> None:
    page = operator_list.ops_text(OPERATORS, "markdown")
    assert "3 operators, 2 described, 1 of those verified" in page
    assert "| reduction | 1 | 0 | 1 | 1 |\n" in page
    assert "| `relu` | `r` | 2 | 0 | 0 | yes |\n" in page
    assert "| `sum` |  | 12 | 1 | 3 | no |\n" in page
    assert page.endswith("| `svd` | it is whole |\n")


def test_attributes_of_suggest_have_a_value() -> None:
    ran = invoke("suggest", "relu", "--shape=6,4", "--attr=axis")
    assert isinstance(ran.exception, ConfigError)
    assert "--attr axis: expected NAME=VALUE" in str(ran.exception)


def test_options_reach_the_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def suggestion(operator, inputs, attrs, *, dtype, seed):
        asked.append((operator, [i.shape for i in inputs], attrs, dtype, seed))
        return "text\n"

    monkeypatch.setattr("tofu.verify.find.suggest.suggestion", suggestion)
    ran = invoke(
        "suggest", "sum", "--shape=6,4", "--attr=axis=(0, 1)", "--dtype=float64", "--seed=7"
    )
    assert ran.output == "text\n"
    assert asked == [("sum", [(6, 4)], {"axis": "(0, 1)"}, "float64", 7)]


REJECTED = """
import mxnet as mx
import tofu
from tofu.verify import In, case

class Square(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * in_data[0])

@mx.operator.register("square")
class SquareProp(mx.operator.CustomOpProp):
    def create_operator(self, context, shapes, dtypes):
        return Square()

@tofu.op(name="Custom:square")
def square(data):
    return lambda i: data[i] * data[i]

CASES = [case("Custom", In((4, 6)), attrs={"op_type": "square"}, dtype="float32", outputs=1)]
"""


def test_a_description_that_the_analysis_rejects_is_false(tmp_path: Path) -> None:
    """Runs separate processes, because descriptions last as long as the process."""
    (tmp_path / "my file.py").write_text(REJECTED)
    command = ["-m", "tofu", "verify", "--describe", "my file.py", "Custom:square"]
    ran = forked.run([*command, "--processes=1"], cwd=tmp_path)
    assert ran.returncode == 1
    assert "false: Custom" in ran.stdout
    assert "the analysis rejects its description: " in ran.stdout
    # The error says where it is, what was found there, and what is allowed.
    assert "\n    >     return lambda i: data[i] * data[i]\n    found: " in ran.stdout
    assert "\n    allowed: " in ran.stdout
    assert f"tofu verify Custom:square --seed 1 --describe '{tmp_path}/my file.py'\n" in ran.stdout


def test_the_list_needs_no_mxnet() -> None:
    text = "import sys, tofu.cli.reports.operator_list; print('mxnet' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_one_operator_is_explained() -> None:
    ran = invoke("ops", "_npx_fully_connected")  # another name of it
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("FullyConnected (")
    assert "contraction, described in tdl/linear.py:" in ran.output
    assert "\n    @op(" in ran.output
    assert "\nExample: FullyConnected(data " in ran.output
    assert "reduced: dimension 1 of data" in ran.output
    assert "reduce sum" in ran.output


def test_an_operator_that_cannot_be_expressed_says_why() -> None:
    ran = invoke("ops", "Custom")
    assert ran.output.startswith("Custom: not expressible; ")
    assert "Every worker computes it whole." in ran.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("FullyConected",), "tofu ops FullyConected: MXNet has no such operator; did you mean F"),
        (("relu", "tanh"), "tofu ops relu: 'tanh' is one too many"),
        (("--format=json", "relu"), "tofu ops --format json: only for the list of all operators"),
        (("--of", "absent.py"), "absent.py: no such file"),
    ],
)
def test_operators_that_cannot_be_shown(arguments: tuple[str, ...], expected: str) -> None:
    ran = invoke("ops", *arguments)
    assert isinstance(ran.exception, ConfigError)
    assert expected in str(ran.exception)


def test_the_operators_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\n"
        "import mxnet as mx\n"
        "assert sys.argv[1:] == ['--epochs', '3']\n"
        "net = mx.gluon.nn.Dense(8)\n"
        "net.initialize()\n"
        "with mx.autograd.record():\n"
        "    loss = net(mx.nd.ones((4, 6)))\n"
    )
    command = ["-m", "tofu", "ops", "--of", "train.py", "--", "--epochs", "3"]
    ran = forked.run(command, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "FullyConnected                1  contraction  described\n" in ran.stdout
    assert ran.stdout.endswith("2 operators, all described\n")


def test_an_operator_of_which_nothing_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = Verdict("relu", 0, skipped=[finding("relu")])
    replace(monkeypatch, skipped)
    ran = invoke("verify", "relu", "--processes=1")
    assert ran.exit_code == 1
    assert "tofu: nothing of relu was checked" in ran.output + ran.stderr
    replace(monkeypatch, skipped)
    assert invoke("verify", "--processes=1").exit_code == 0  # some of all never run

"""``tofu.plan`` and ``tofu plan`` give the same plan for the same wish."""

import json
import os

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

import tofu
from tofu.cli import main

MACHINE = "p2.8xlarge"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("MEMORY", "WORKERS", "REPLICATION", "KEEP_FETCHED", "SEARCH", "PLAN", "MACHINE"):
        monkeypatch.delenv(f"TOFU_{name}", raising=False)


def by_command(capsys, *args):
    """The document that the command writes; restores the variables that it sets."""
    before = dict(os.environ)
    with pytest.raises(SystemExit) as ended:
        main.main(["plan", "--format=json", *args])
    os.environ.clear()
    os.environ.update(before)
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    return document(out)


def document(text):
    found = json.loads(text)
    del found["search_seconds"]  # a measured time
    return found


WISHES = {
    "nothing": ((), {}),
    "workers": (("--workers=2",), {"workers": 2}),
    "device": (("--device=cpu",), {"device": "cpu"}),
    "search": (("--search=spartan",), {"search": "spartan"}),
    "pin": (("--pin=*_weight=1",), {"pins": {"*_weight": 1}}),
    "replication": (("--allow-replication",), {"allow_replication": True}),
    "replication within": (("--allow-replication-within=2%",), {"allow_replication": "2%"}),
    "machine": ((f"--machine={MACHINE}",), {"machine": MACHINE}),
    "objective": (
        (f"--machine={MACHINE}", "--objective=time"),
        {"machine": MACHINE, "objective": "time"},
    ),
    "memory": (("--memory=4GiB",), {"memory": "4GiB"}),
    "recompute": (("--recompute=all",), {"recompute": "all"}),
    "keep fetched": (("--keep-fetched=64MiB",), {"keep_fetched": "64MiB"}),
    "keep what fits": (
        ("--keep-fetched=auto", "--memory=4GiB"),
        {"keep_fetched": "auto", "memory": "4GiB"},
    ),
    "fetch": (("--fetch=plain",), {"fetch": "plain"}),
    "optimizer": (("--optimizer=adam",), {"optimizer": "adam"}),
    "no optimizer": (("--optimizer=none",), {"optimizer": None}),
    "batch size": (("--batch-size=128",), {"batch_size": 128}),
    "time limit": (("--time-limit=30",), {"time_limit_s": 30}),
}


@pytest.mark.parametrize(("options", "arguments"), WISHES.values(), ids=WISHES)
def test_a_model(capsys, options, arguments):
    expected = by_command(capsys, *options, "mlp")
    assert document(tofu.plan("mlp", **arguments).to_json()) == expected


SYMBOL_WISHES = {
    "shapes": ((), {}),
    "dtype": (("--dtype=float64",), {"dtypes": {"": "float64"}}),
    "predict": (("--predict",), {"predict": True}),
}


@pytest.mark.parametrize(("options", "arguments"), SYMBOL_WISHES.values(), ids=SYMBOL_WISHES)
def test_a_symbol(capsys, tmp_path, options, arguments):
    path = tmp_path / "net-symbol.json"
    mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc").save(str(path))
    expected = by_command(capsys, "--shape=data=16,4", *options, str(path))
    found = tofu.plan(str(path), shapes={"data": (16, 4)}, **arguments)
    assert document(found.to_json()) == expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [("TOFU_WORKERS", "3"), ("TOFU_MEMORY", "4GiB"), ("TOFU_SEARCH", "recursion")],
)
def test_variables_count_for_both(capsys, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    expected = by_command(capsys, "mlp")
    assert document(tofu.plan("mlp").to_json()) == expected

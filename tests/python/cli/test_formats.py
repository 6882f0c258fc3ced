"""--format of every command: JSON has its fields and types, CSV its columns."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import click
import pytest

from tofu.cli import main

from ..support import forked

pytest.importorskip("mxnet")
pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NUMBER, MAYBE = (int, float), (int, float, type(None))
TEXT, ITEMS, MAP = str, list, dict
# Command line -> name of the format, and the types of its fields; "list[field]": of each item.
SCHEMAS = {
    "plan --workers 2 --count estimate mlp.py": ("tofu-plan", {
        "workers": int, "graph_hash": TEXT, "parts": ITEMS, "total_bytes": int,
        "lower_bound_bytes": int, "status": TEXT, "steps[parts]": int, "steps[bytes]": int,
        "tensors[node]": TEXT, "tensors[shape]": ITEMS, "tensors[cuts]": ITEMS,
        "operators[node]": TEXT, "operators[op]": TEXT, "operators[bytes]": int,
    }),
    "compare --workers 2 --search tofu mlp.py": ("tofu-comparison", {
        "target": TEXT, "advice": ITEMS, "plans[workers]": int, "plans[mode]": TEXT,
        "plans[bytes]": MAYBE, "plans[memory_bytes]": MAYBE, "plans[status]": TEXT,
        "plans[search_seconds]": MAYBE,
    }),
    "estimate --workers 1,2 --gpu-memory 1GiB --count estimate mlp.py": ("tofu-estimate", {
        "target": TEXT, "memory": TEXT, "optimizer": TEXT, "limit_bytes": int,
        "batches_extrapolated": bool, "estimates[workers]": int,
        "estimates[bytes_per_worker]": MAP, "estimates[total_bytes]": MAP,
        "estimates[communicated_bytes]": int, "estimates[largest_batch]": MAYBE,
        "estimates[of_no_use]": TEXT,
    }),
    "frontier --workers 2 --quick --limits 2 --rivals spartan mlp.py": ("tofu-frontier", {
        "target": TEXT, "workers": int, "complete": bool, "frontier[name]": TEXT,
        "frontier[held_bytes]": int, "frontier[communicated_bytes]": int,
        "frontier[step_seconds]": MAYBE, "frontier[turning_point]": bool,
        "frontier[changes]": TEXT, "rivals[name]": TEXT,
    }),
    "check --workers 2 --steps 1 mlp.py": ("tofu-check", {
        "fault": bool, "operators": ITEMS, "verdict": TEXT, "tensors": ITEMS,
    }),
    "trace --workers 2 --skip 1 mlp.py": ("tofu-trace", {
        "steps": int, "step_us": NUMBER, "busiest": int, "bounds": ITEMS, "workers[name]": TEXT,
        "workers[computation_us]": NUMBER, "workers[fetch_us]": NUMBER,
    }),
    "diff one.plan other.plan": ("tofu-difference", {
        "plans": ITEMS, "differ": bool, "communicated_bytes": ITEMS, "bytes_per_worker": ITEMS,
        "layers": MAP, "tensors": MAP, "operators": MAP,
    }),
    "simulate --workers 2 --machine p2.8xlarge mlp": ("tofu-simulation", {
        "model": TEXT, "fits": bool, "step_seconds": NUMBER, "memory_bytes": int, "workers": ITEMS,
    }),
    "models": ("tofu-models", {
        "models[name]": TEXT, "models[batch_size]": int, "models[inputs]": MAP,
        "models[label]": ITEMS,
    }),
    "ops": ("tofu-operators", {
        "summary": MAP, "operators[name]": TEXT, "operators[described]": bool,
        "operators[verified]": bool,
    }),
    "verify relu": ("tofu-verification", {
        "checked": int, "false": ITEMS, "missing": ITEMS, "skipped": ITEMS,
    }),
}  # fmt: skip


def choices(command):
    (option,) = [each for each in command.params if each.name == "form"] or [None]
    return () if option is None else option.type.choices


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("formats")
    (path / "mlp.py").write_text((EXAMPLES / "mlp.py").read_text())
    for name, options in (("one", []), ("other", ["--pin=dense0_weight=1"])):
        tofu(path, "plan", "--workers=2", "--count=estimate", f"--save={name}.plan", *options,
             "mlp.py")  # fmt: skip
    return path


def tofu(folder, *words):
    ran = forked.run(["-m", "tofu", *words], cwd=folder)
    assert ran.returncode == 0 or words[0] == "diff", ran.stderr
    return ran.stdout


def test_every_command_with_json_has_a_schema():
    commands = {name for name, each in main.cli.commands.items() if "json" in choices(each)}
    assert commands - {"show"} == {line.split()[0] for line in SCHEMAS}
    assert all(isinstance(each, click.Command) for each in main.cli.commands.values())


@pytest.mark.parametrize("line", SCHEMAS, ids=lambda line: line.split()[0])
def test_json_has_its_fields(folder, line):
    command, *rest = line.split()
    document = json.loads(tofu(folder, command, "--format=json", *rest))
    name, fields = SCHEMAS[line]
    assert (document["format"], document["version"]) == (name, 1)
    for field, kind in fields.items():
        outer, _, inner = field.partition("[")
        found = document[outer]
        values = [each[inner.rstrip("]")] for each in found] if inner else [found]
        assert values or not inner, field
        assert all(isinstance(value, kind) for value in values), (field, values)


def test_show_lists_the_plans_of_a_file(folder):
    (plan,) = json.loads(tofu(folder, "show", "--format=json", "one.plan"))
    assert plan["workers"] == 2


@pytest.mark.parametrize(
    "line", [line for line in SCHEMAS if "csv" in choices(main.cli.commands[line.split()[0]])],
    ids=lambda line: line.split()[0],
)  # fmt: skip
def test_csv_has_a_row_for_each_record(folder, line):
    command, *rest = line.split()
    rows = list(csv.DictReader(io.StringIO(tofu(folder, command, "--format=csv", *rest))))
    document = json.loads(tofu(folder, command, "--format=json", *rest))
    lists = [value for value in document.values() if isinstance(value, list)]
    assert len(rows) == (sum(map(len, lists)) if command == "frontier" else max(map(len, lists)))
    assert all(None not in row and None not in row.values() for row in rows)


def test_a_difference_names_what_is_not_alike(folder):
    found = json.loads(tofu(folder, "diff", "--format=json", "one.plan", "other.plan"))
    assert found["differ"] is True and found["tensors"]["dense0_weight"][1] == [1]
    same = json.loads(tofu(folder, "diff", "--format=json", "one.plan", "one.plan"))
    assert (same["differ"], same["tensors"], same["operators"]) == (False, {}, {})

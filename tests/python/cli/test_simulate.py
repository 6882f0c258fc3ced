"""tofu simulate and tofu calibrate: their output, their files and their errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..support import forked

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}


def tofu(*args: object, status: int = 0, **variables: str) -> str:
    """The output of a command; its error text if it fails."""
    done = forked.run(["-m", "tofu", *args], env={**ENVIRONMENT, **variables})
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


@pytest.fixture(scope="module")
def mlp() -> dict[str, Any]:
    options = ("--workers", 4, "--machine", "p3.16xlarge", "--batch-size", 64, "--format", "json")
    document: dict[str, Any] = json.loads(tofu("simulate", *options, "mlp"))
    return document


def test_the_document_is_labelled_simulated(mlp: dict[str, Any]) -> None:
    assert (mlp["format"], mlp["version"], mlp["simulated"]) == ("tofu-simulation", 1, True)
    assert (mlp["machine"], mlp["measured"]) == ("p3.16xlarge", False)
    assert (mlp["model"], mlp["batch_size"], mlp["fetch"]) == ("mlp", 64, "plain")


def test_the_times_of_the_document_agree(mlp: dict[str, Any]) -> None:
    step = mlp["step_seconds"]
    assert len(mlp["workers"]) == 4
    for worker in mlp["workers"]:
        assert worker["busy_seconds"] + worker["waiting_seconds"] == pytest.approx(step)
        assert worker["static_bytes"] < worker["allocated_bytes"] <= mlp["memory_bytes"]
        peak = worker["static_bytes"] + max(worker["live_bytes"])
        assert peak <= worker["allocated_bytes"]
        assert len(worker["live_bytes"]) == 60
    assert mlp["fits"]
    path = mlp["critical_path"]
    assert sum(path["seconds"].values()) == pytest.approx(step)
    assert path["longest"][0]["seconds"] == max(each["seconds"] for each in path["longest"])
    assert sum(link["bytes"] for link in mlp["links"]) > 0
    assert all(0 < link["busy_seconds"] <= step for link in mlp["links"])
    assert [(link["name"], link["devices"]) for link in mlp["links"]] == [("NVLink", [0, 3])]


def test_the_predicted_step_is_a_trace_as_a_measured_one(tmp_path: Path) -> None:
    """Its tracks have no gaps, and their operators are those of the simulation."""
    options = ["--workers=4", "--machine=p3.16xlarge", "--batch-size=64", "--format=json"]
    path = tmp_path / "predicted.json"
    document = json.loads(tofu("simulate", *options, "--perfetto", path, "mlp"))
    step = document["step_seconds"] * 1e6
    events = json.loads(path.read_text())["traceEvents"]
    names = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert names == {"steps", *(f"worker {w} (p3.16xlarge)" for w in range(4))}
    slices = [each for each in events if each["ph"] == "X"]
    assert [each["dur"] for each in slices if each["tid"] == 0] == [pytest.approx(step)]
    for track, worker in enumerate(document["workers"], 1):
        own = [each for each in slices if each["tid"] == track]
        assert sum(each["dur"] for each in own) == pytest.approx(step, rel=1e-4)
        busy = sum(each["dur"] for each in own if each["cat"] != "waiting")
        assert worker["busy_seconds"] * 1e6 - 1 <= busy < step  # with launches and copies
    ran = {each["args"]["node"]: each for each in slices if "args" in each}
    longest = [each for each in document["critical_path"]["longest"] if each["name"] in ran]
    assert len(longest) > 16  # others overlap with an operator before them on the track
    for each in longest:
        assert ran[each["name"]]["args"]["operator"] == each["op"]
        assert ran[each["name"]]["ts"] >= each["begin"] * 1e6 - 0.01
    copies = {each["cat"] for each in slices if each["name"].endswith(": copy")}
    assert copies == {"fetch"}


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("mlp.py", "expected a .json file, not a script"),
        ("none/step.json", "there is no folder none"),
        ("/proc/step.json", "No such file or directory"),
    ],
)
def test_a_trace_is_not_written_just_anywhere(path: str, what: str) -> None:
    error = tofu("simulate", "--machine=p3.16xlarge", "--perfetto", path, "mlp", status=2)
    assert error == f"tofu: --perfetto {path}: {what}\n"


def test_every_group_of_a_link_is_listed() -> None:
    text = tofu("simulate", "--workers=16", "--machine=2x8v100", "--format=json", "mlp")
    links = [(link["name"], link["devices"]) for link in json.loads(text)["links"]]
    assert links == [("NVLink", [0, 7]), ("NVLink", [8, 15]), ("InfiniBand", [0, 15])]


def test_the_text_is_labelled_simulated() -> None:
    text = tofu("simulate", "--workers", 2, "--machine", "2x8v100", "--batch-size", 8, "mlp")
    first, second, *_ = text.splitlines()
    assert first.startswith("simulated: mlp, batch 8, 2 workers on 2x8v100 ")
    assert first.endswith(" (from data sheets, not measured), fetch plain")
    assert second.startswith("a step takes ")
    assert "critical path of " in text


def test_too_many_workers_and_wrong_machines_take_one_line(tmp_path: Path) -> None:
    error = tofu("simulate", "--workers", 16, "--machine", "p2.8xlarge", "mlp", status=2)
    assert error == (
        "tofu: --workers 16: p2.8xlarge has 8 devices; expected at most one worker for each\n"
    )
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"format": "tofu-machine", "version": 7}')
    error = tofu("simulate", "--machine", damaged, "mlp", status=2)
    assert error.startswith(f"tofu: machine file {damaged}: version: found 7, expected version 1;")
    assert error.count("\n") == 1
    error = tofu("simulate", "--machine", "p2.8xlarge", "mlq", status=2)
    assert error.startswith("tofu: no model 'mlq'; did you mean mlp")


def test_variables_of_a_plan_count() -> None:
    line = ("simulate", "--workers", 2, "--machine", "p2.8xlarge", "--batch-size", 64, "mlp")
    assert "fits in 1.0 MiB" in tofu(*line, status=2, TOFU_MEMORY="1MiB")
    assert tofu(*line) != tofu(*line, TOFU_PINS="*weight=1")


def test_a_calibrated_machine_can_be_simulated(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    assert tofu("calibrate", "--smoke", "--output", path).startswith(f"{path}: ")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["measured"] is True
    assert "measured by tofu calibrate" in document["sources"][0].lower()
    options = ("--workers", 2, "--machine", path, "--batch-size", 8)
    text = tofu("simulate", *options, "mlp")
    assert "(measured), fetch multifetch" in text.splitlines()[0]
    error = tofu("calibrate", "--output", tmp_path / "none" / "x.json", status=2)
    assert "found no folder" in error


# --- tofu compare --machine -----------------------------------------------------------------------


def compared(*options: object, status: int = 0) -> str:
    return tofu("compare", "--machine", "p2.8xlarge", *options, "mlp", status=status)


def test_a_comparison_predicts_times() -> None:
    options = ("--workers=2", "--search=tofu,allrow-greedy", "--batch-size=64")
    header, *rows = compared(*options).splitlines()
    assert header.split()[-3:] == ["a", "step", "takes"]
    assert all(row.split()[-1] in ("s", "ms", "us") for row in rows[:4])
    assert rows[-1].startswith("fastest step predicted: ")
    document = json.loads(compared(*options, "--format=json"))
    seconds = {(p["mode"], p["replication"]): p["step_seconds"] for p in document["plans"]}
    simulated = ("--workers=2", "--machine=p2.8xlarge", "--batch-size=64", "--format=json", "mlp")
    alone = json.loads(tofu("simulate", *simulated))
    assert alone["step_seconds"] == pytest.approx(seconds["tofu", False])
    page = compared(*options, "--format=html")
    assert "<th class=number>a step takes</th>" in page and page.count("<tr>") == 5


def test_a_comparison_of_plans_for_bytes_and_for_time() -> None:
    options = ("--workers=4", "--search=tofu", "--batch-size=64", "--objective=both")
    text = compared(*options)
    header, *rows = text.splitlines()
    assert header.split()[-2:] == ["plan", "for"]
    assert [row.split()[-1] for row in rows[:4]] == ["bytes", "time"] * 2
    assert "--objective time" in text
    plans = json.loads(compared(*options, "--format=json"))["plans"]
    assert [p["objective"] for p in plans] == ["bytes", "time"] * 2
    assert all(p["step_seconds"] > 0 for p in plans)
    assert plans[1]["bytes"] >= plans[0]["bytes"]
    assert {p["objective"] for p in json.loads(
        compared("--workers=4", "--search=tofu", "--objective=time", "--format=json")
    )["plans"]} == {"time"}  # fmt: skip
    complaint = tofu("compare", "--objective=both", "--workers=4", "mlp", status=2)
    assert "--objective time: expected --machine as well" in complaint


def test_a_comparison_needs_a_device_for_each_worker() -> None:
    complaint = compared("--workers=2,16", "--search=tofu", status=2)
    assert "--workers 16: p2.8xlarge has 8 devices" in complaint


def test_without_a_machine_no_time_is_predicted() -> None:
    text = tofu("compare", "--workers=2", "--search=tofu", "mlp")
    assert "a step takes" not in text and "fastest" not in text


# --- scripts, symbols and saved plans -------------------------------------------------------------

SCRIPT = """
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.Dense(16))
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
with autograd.record():
    loss = net(mx.nd.ones((32, 64)))
loss.backward()
trainer.step(32)
print("trained")
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("simulate") / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_a_script_is_simulated_without_running(script: Path) -> None:
    text = tofu("simulate", "--workers", 2, "--machine", "p2.8xlarge", script, "--epochs", 3)
    assert text.startswith("simulated: train.py, batch 32, 2 workers on p2.8xlarge ")
    assert "trained" not in text


def test_saved_plans_are_simulated(script: Path, tmp_path: Path) -> None:
    machine = ("--machine", "p2.8xlarge", "--format", "json")
    for target, others in ((script, ()), ("mlp", ("--batch-size", 64))):
        path = tmp_path / f"{Path(str(target)).stem}.plan"
        tofu("plan", "--workers", 2, "--search", "data-parallel", "--save", path, *others, target)
        saved = json.loads(tofu("simulate", *machine, "--plan", path, *others, target))
        again = json.loads(
            tofu("simulate", *machine, "--workers", 2, "--search", "data-parallel", *others, target)
        )
        assert saved == again
        assert saved != json.loads(tofu("simulate", *machine, "--workers", 2, *others, target))
    wrong = ("simulate", "--machine", "p2.8xlarge", "--plan", path)
    error = tofu(*wrong, "--workers", 4, "mlp", status=2)
    assert f"{path}: a plan for 2 workers, but this run has 4" in error
    error = tofu(*wrong, "--objective", "time", "mlp", status=2)
    assert f"--objective: the plan {path} is not searched again" in error
    error = tofu(*wrong, "--batch-size", 32, "mlp", status=2)
    assert error.startswith(f"tofu: {path}: no plan for mlp over 2 workers; ")

"""tofu estimate: memory over numbers of workers, limits, batches, and output."""

from __future__ import annotations

import dataclasses
import json

import pytest

pytest.importorskip("mxnet")

from tofu import models
from tofu.cli import main
from tofu.cli.reports import estimate_report
from tofu.errors import PlanError
from tofu.mx.model.sources import from_model
from tofu.planner import estimate as estimating
from tofu.planner import sweep
from tofu.planner.estimate import (
    OPTIMIZERS,
    Estimate,
    batch_of,
    estimate,
    extrapolated_batch,
    fewest,
    largest_batches,
)
from tofu.planner.model import Devices
from tofu.planner.search import search_plan
from tofu.plans import Plan

from ..plans.documents import document
from ..support import forked

MIB = 2**20


def mlp(workers, batch=None, optimizer="sgd"):
    return from_model("mlp", batch_size=batch, optimizer=optimizer, workers=workers)


def over(problem_for, *workers, **options):
    return estimate(
        lambda each: problem_for(each.workers), devices=list(map(Devices, workers)), **options
    )


def made(workers, fixed, growing):
    kinds = {"parameters": 0, "gradients": fixed, "optimizer_state": 0, "activations": growing}
    return Estimate(workers, Plan.from_json(json.dumps(document(bytes_per_worker=kinds))))


def test_the_state_of_an_optimizer_is_what_a_plan_with_it_holds():
    for workers in (1, 2):
        (found,) = over(mlp, workers)
        for optimizer in OPTIMIZERS:
            (exact,) = over(lambda k, o=optimizer: mlp(k, optimizer=o), workers)
            held = sum(exact.plan.bytes_per_worker.values())
            assert found.held_bytes(optimizer) == held, (workers, optimizer)


def test_masters_are_copies_of_small_parameters_and_double_their_state():
    tensors = [
        {"node": name, "output": 0, "shape": [size], "dtype": dtype, "cuts": [0, 0]}
        for name, size, dtype in (("half", 300, 12), ("single", 100, 0), ("input", 999, 12))
    ]
    operators = [
        {"node": f"{name}_update", "op": "sgd_update", "cuts": ["x", "x"], "bytes": 0}
        for name in ("half", "single")
    ]
    plan = Plan.from_json(json.dumps(document(tensors=tensors, operators=operators)))
    held = {"parameters": 250, "gradients": 250, "activations": 7}  # a quarter of 1,000 bytes
    plan = dataclasses.replace(plan, bytes_per_worker=held)
    before, after = Estimate(4, plan), Estimate(4, plan, has_masters=True)
    assert before.state_bytes("adam") == 2 * 250
    assert after.state_bytes("sgd") == 4 * 300 / 4
    assert after.state_bytes("adam") == 4 * 300 / 4 + 2 * 4 * 400 / 4
    assert after.held_bytes("sgd") == 507 + 300


def test_numbers_of_workers_that_divide_nothing_evenly_are_of_use():
    found = {each.workers: each for each in over(mlp, 4, 3, 2, 1, 6, exact=False)}
    assert list(found) == [1, 2, 3, 4, 6]
    assert not any(each.reason for each in found.values())
    for workers in (2, 3, 4, 6):
        share = found[workers].held_bytes("sgd") / found[1].held_bytes("sgd")
        assert share < 1.12 / workers, workers


def test_workers_beyond_the_elements_of_every_dimension_are_of_no_use():
    tensors = [{"node": "w", "output": 0, "shape": [1], "dtype": 0, "cuts": [-1, -1]}]
    kinds = {"parameters": 0, "gradients": 9, "optimizer_state": 0, "activations": 0}
    text = json.dumps(document(bytes_per_worker=kinds, tensors=tensors))
    whole = Estimate(4, Plan.from_json(text))
    assert estimating._no_use(whole, made(2, 9, 0)) == (
        "holds no less than 2 workers, as most tensors have no dimension for 2 x 2 parts"
    )
    assert estimating._no_use(made(4, 9, 0), made(2, 9, 0)) == "holds no less than 2 workers"


def test_a_number_without_a_plan_costs_only_itself(monkeypatch):
    real = sweep.begin_search

    def refuse():
        raise PlanError("two are refused")

    def refuse_two(problem, options, **how):
        return refuse if problem.workers == 2 else real(problem, options, **how)

    monkeypatch.setattr(sweep, "begin_search", refuse_two)
    found = list(over(mlp, 1, 2, 4, exact=False))
    assert [each.reason for each in found] == ["", "two are refused", ""]


def test_rows_are_printed_as_they_are_known(monkeypatch, capsys):
    """A row that needs hours must not hold back earlier rows."""
    real = sweep.begin_search
    printed = []

    def note(problem, options, **how):
        wait = real(problem, options, **how)

        def waits():
            printed.append(capsys.readouterr().out)
            if problem.workers == 2:
                raise PlanError("two are refused")
            return wait()

        return waits

    monkeypatch.setattr(sweep, "begin_search", note)
    given = ["--workers=1,2,4", "--count=estimate", "--batch-size=64", "--gpu-memory=2GiB"]
    assert run(["estimate", "mlp", *given]) == 0
    header, first, second, *batches = printed
    assert header.split()[:2] == ["workers", "parameters"]
    assert first.split()[0] == "1" and second.endswith("no plan: two are refused\n")
    rows = (header + first).splitlines()
    assert {len(row) for row in rows} == {len(rows[0])}, "columns as wide as the header's"
    assert batches[0].split()[0] == "4"
    assert "largest batch" in "".join(batches) + capsys.readouterr().out


def test_progress_says_which_row_of_how_many(monkeypatch):
    told = []
    monkeypatch.setattr(
        estimating, "sweep", lambda trials, _: told.extend(t.doing for t in trials) or ()
    )
    assert not list(over(mlp, 4, 1, 2))
    assert told == ["1 worker (row 1 of 3)", "2 workers (row 2 of 3)", "4 workers (row 3 of 3)"]


def test_without_a_wish_all_numbers_up_to_16_are_estimated(monkeypatch):
    asked = []

    def note(make, *, devices, **how):
        asked.extend(each.workers for each in devices)
        return [made(1, fixed=8, growing=8)]

    monkeypatch.setattr(estimate_report, "estimate", note)
    assert run(["estimate", "mlp"]) == 0
    assert asked == list(range(1, 17))


def test_the_graph_of_a_model_is_made_once(monkeypatch):
    made_graphs = []
    real = models.build

    def note(name, batch_size=None, **how):
        made_graphs.append(batch_size)
        return real(name, batch_size, **how)

    monkeypatch.setattr(models, "build", note)
    given = ["--workers=1,2,4,8", "--count=estimate", "--batch-size=64"]
    assert run(["estimate", "mlp", *given]) == 0
    assert made_graphs == [64]
    made_graphs.clear()
    assert run(["estimate", "mlp", *given, "--gpu-memory=3GiB"]) == 0
    assert len(made_graphs) == len(set(made_graphs)), "every batch once"


def test_the_graph_with_the_same_norms_whole_is_made_once():
    problem = from_model("wresnet-50-4", batch_size=2, optimizer=None, workers=2)
    plan = search_plan(problem.table, 2)
    table = problem.refine(plan)
    assert table is not None
    assert problem.refine(plan) is table


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("limit", [150 * MIB, 2300 * MIB, 3000 * MIB])
def test_the_largest_batch_fits_and_the_next_one_does_not(workers, limit):
    start = next(iter(over(lambda k: mlp(k, 64), workers, exact=False)))

    def held(batch):
        (found,) = over(lambda k: mlp(k, batch), workers, exact=False)
        return found.held_bytes("adam")

    ((_, fit),) = largest_batches(
        mlp, [start], 64, optimizer="adam", limit_bytes=limit, exact=False
    )
    if fit.batch == 0:
        assert held(1) > limit
        return
    assert fit.batch % workers == 0
    assert held(fit.batch) <= limit < held(fit.batch + workers)
    assert fit.estimate.held_bytes("adam") == held(fit.batch)


def memory_is(monkeypatch, estimate_of):
    """Let a problem that is a batch size have this estimate."""

    def estimate_at(size, *_, **__):
        yield
        return estimate_of(size)

    monkeypatch.setattr(estimating, "_estimating", estimate_at)


def fit_from(start, batch, limit):
    ((_, fit),) = largest_batches(
        lambda _, size: size, [start], batch, optimizer="sgd", limit_bytes=limit
    )
    return fit


def test_batches_of_several_numbers_of_workers_are_searched_at_once_and_come_in_order(monkeypatch):
    tried = []

    def estimate_of(given):
        tried.append(given)
        workers, size = given
        return made(workers, 100, size * size // 10 if workers == 2 else size)

    memory_is(monkeypatch, estimate_of)
    monkeypatch.setattr(estimating, "most_at_once", lambda: 1)
    starts = [made(2, 100, 64 * 64 // 10), made(4, 100, 64), made(8, 100, 64)]
    found = largest_batches(lambda *given: given, starts, 64, optimizer="sgd", limit_bytes=1100)
    assert [(workers, fit.batch) for workers, fit in found] == [(2, 100), (4, 1000), (8, 1000)]
    of_workers = [workers for workers, _ in tried]
    assert of_workers.index(4) < len(of_workers) - of_workers[::-1].index(2) - 1
    assert of_workers.index(8) > of_workers.index(4)


def test_below_the_number_of_workers_its_divisors_are_tried(monkeypatch):
    memory_is(monkeypatch, lambda size: made(8, 100, size))
    start = made(8, 100, 64)
    tried = {102: 2, 104: 4, 107: 4, 108: 8, 100: 0, 1000: 896}
    for limit, batch in tried.items():
        fit = fit_from(start, 64, limit)
        assert fit.batch == batch, limit


def test_memory_that_does_not_grow_linearly_is_followed(monkeypatch):
    memory_is(monkeypatch, lambda size: made(4, 100, size * size // 10))
    assert fit_from(made(4, 100, 4 * 4 // 10), 4, 1100).batch == 100


@pytest.mark.parametrize(("batch", "most"), [(64, 9), (2048, 6)])
def test_few_batches_are_tried_where_memory_grows_along_a_line(monkeypatch, batch, most):
    """From a batch nearby two tries are enough; from one far off, as buffers do not grow, three."""
    tried = []

    def estimate_of(given):
        tried.append(given)
        workers, size = given
        return made(workers, 1000, 5000 + 10 * size)

    memory_is(monkeypatch, estimate_of)
    starts = [made(workers, 1000, 5000 + 10 * batch) for workers in (4, 8, 16)]
    found = largest_batches(
        lambda *given: given, starts, batch, optimizer="sgd", limit_bytes=16_000
    )
    assert [(workers, fit.batch) for workers, fit in found] == [(4, 1000), (8, 1000), (16, 992)]
    assert len(tried) <= most, tried


def test_a_batch_of_one_tells_that_none_fits(monkeypatch):
    tried = []

    def estimate_of(size):
        tried.append(size)
        return made(16, 1000, size)

    memory_is(monkeypatch, estimate_of)
    assert fit_from(made(16, 1000, 64), 64, 1000).batch == 0
    assert tried == [1]


def test_limits():
    found = [made(1, 100, 100), made(2, 50, 50), made(4, 25, 25)]
    assert fewest(found, "sgd", 100).workers == 2
    assert fewest(found, "adam", 100).workers == 4
    assert fewest(found, "sgd", 49) is None
    assert extrapolated_batch(found[0], 10, "sgd", 150) == 5
    assert extrapolated_batch(found[0], 10, "sgd", 99) == 0


def test_the_batch_is_what_most_inputs_share():
    assert batch_of(mlp(2, 24, "adam")) == 24
    assert batch_of(from_model("wresnet-50-4", batch_size=6, optimizer="sgd", workers=2)) == 6


# --- the command ------------------------------------------------------------------------------


def run(args):
    """Run the command; return its exit status."""
    with pytest.raises(SystemExit) as end:
        main.main(args)
    return end.value.code


def json_of(capsys, *args):
    assert run(["estimate", *args, "--format", "json", "--count", "estimate"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_document(capsys):
    found = json_of(capsys, "mlp", "--workers", "2", "--gpu-memory", "3GiB")
    assert (found["format"], found["version"], found["limit_bytes"]) == (
        "tofu-estimate",
        1,
        3 << 30,
    )
    (record,) = found["estimates"]
    assert record["total_bytes"]["sgd"] == sum(record["bytes_per_worker"].values())
    assert record["largest_batch"] > 512 and record["of_no_use"] == ""
    assert not found["batches_extrapolated"]
    assert json_of(capsys, "mlp", "--workers", "2")["estimates"][0]["largest_batch"] is None


def test_a_symbol_file_is_scaled_by_its_first_extent(capsys, tmp_path):
    import mxnet as mx

    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, name="fc")
    path = tmp_path / "net.json"
    mx.sym.SoftmaxOutput(net, name="softmax").save(str(path))
    given = str(path), "--shape", "data=8,32", "--workers", "1,2"
    found = json_of(capsys, *given, "--gpu-memory", "1MiB")["estimates"]
    batches = [each["largest_batch"] for each in found]
    assert 8 < batches[0] < batches[1]
    assert run(["estimate", *given, "--batch-size", "4"]) == 2
    assert "--batch-size: only for a model" in capsys.readouterr().err


SCRIPT = """
import mxnet as mx
from mxnet import autograd, gluon
net = gluon.nn.Dense(64, in_units=32)
net.initialize()
net.hybridize()
with autograd.record():
    loss = net(mx.nd.ones((16, 32))).sum()
loss.backward()
raise SystemExit("the script went on")
"""


def test_a_script_ends_at_its_first_call_and_its_batch_is_extrapolated(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    options = "--workers", "1,2", "--gpu-memory", "1MiB", "--count", "estimate"
    found = forked.run(["-m", "tofu", "estimate", *options, path], timeout=120)
    assert (found.returncode, found.stderr) == (0, "")
    assert "about " in found.stdout


def test_activations_can_be_computed_again(capsys):
    kinds = []
    for recompute in ("none", "all"):
        words = ["--workers=2", f"--recompute={recompute}", "--batch-size=64", "--format=json"]
        with pytest.raises(SystemExit):
            main.main(["estimate", *words, "mlp"])
        (found,) = json.loads(capsys.readouterr().out)["estimates"]
        kinds.append(found["bytes_per_worker"])
    assert kinds[1]["activations"] != kinds[0]["activations"]  # more, as the network is shallow
    assert kinds[1]["parameters"] == kinds[0]["parameters"]


def test_the_command_prints_what_fits(capsys):
    given = ["estimate", "mlp", "--optimizer", "adam", "--count", "estimate"]
    assert run([*given, "--workers", "1,2,3,4", "--gpu-memory", "1200 MiB"]) == 0
    told = capsys.readouterr().out
    table = told.partition("\n\n")[0]
    row = {line.split()[0]: line for line in table.splitlines() if line[:7].strip().isdigit()}
    assert row["4"].count(" +") == 3 and row["2"].count(" -") == 2
    assert row["3"].count(" +") == 2 and "no use" not in row["3"]
    assert "4 workers are the fewest that fit with adam: " in told


def test_several_machines_and_their_prices_are_compared(capsys, tmp_path):
    prices = {"8xh100": 3.0, "p2.8xlarge": 0.9}
    path = tmp_path / "prices.json"
    document = {"format": "tofu-prices", "version": 1, "currency": "USD"}
    path.write_text(json.dumps({**document, "per_device_hour": prices}))
    given = ["estimate", "mlp", "--devices", "8xh100, p2.8xlarge", "--workers", "2,4"]
    given += ["--batch-size", "64", "--count", "estimate", "--price", str(path)]
    assert run([*given, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["machine"] for each in found] == ["8xh100", "p2.8xlarge"]
    assert found[0]["limit_bytes"] > found[1]["limit_bytes"]
    for each in found:
        price = prices[each["machine"]] / 3600
        for row in each["estimates"]:
            expected = price * row["workers"] * row["step_seconds"]
            assert row["step_price"] == pytest.approx(expected)
    assert run(given) == 0
    told = capsys.readouterr().out
    assert told.startswith("8xh100:\n")
    assert "\np2.8xlarge:\n" in told
    cheapest = min(row["step_price"] for row in found[0]["estimates"])
    assert f" cost least: {1000 * cheapest:.3g} USD for 1,000 steps." in told
    assert "2 workers are the fewest of these that fit with sgd" in told
    assert run([*given, "--format", "csv"]) == 0
    assert [line.split(",")[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["machine", "workers"],
        *(["8xh100", "2"], ["8xh100", "4"], ["p2.8xlarge", "2"], ["p2.8xlarge", "4"]),
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--devices", "nosuch"], "--devices nosuch: found no such file or machine"),
        (["--machine", "nosuch"], "--machine nosuch: found no such file or machine"),
        (["--price", "nosuch"], "--price: the time of a step is not known; give --devices, too"),
        (["--machine", "8xh100", "--devices", "8xh100"], "--devices and --machine: give one"),
    ],
)
def test_errors_name_the_option_that_was_given(capsys, options, reason):
    assert run(["estimate", "mlp", *options]) == 2
    assert reason in capsys.readouterr().err


def test_nothing_that_fits_tells_what_takes_the_memory(capsys):
    given = ["estimate", "mlp", "--workers", "1,2", "--gpu-memory", "1.5GiB"]
    assert run([*given, "--optimizer", "adam", "--batch-size", "64"]) == 1
    told = capsys.readouterr().out
    least = "Nothing fits in 1.5 GiB with adam: the least is 2.1 GiB, over 2 workers; "
    assert f"{least}recomputation hardly helps." in told
    assert "needs most while it runs" in told
    assert "largest then: " in told
    assert "What would help: sgd instead of adam; more than 2 workers." in told
    assert run(["estimate", "mlp", "--workers", "2", "--gpu-memory", "1100MiB"]) == 1
    assert "a batch of 302 over 2 workers" in capsys.readouterr().out

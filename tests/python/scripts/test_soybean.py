"""SoyBean's worked example and figures, and TensorOpt's tables."""

import json
import sys

import pytest

pytest.importorskip("mxnet")


def run(module, main, monkeypatch, tmp_path, *options):
    arguments = [module.__name__, "--smoke", "--output", str(tmp_path), *options]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    return json.loads((tmp_path / f"{module.__name__}.json").read_text())


def test_the_example_is_soybeans(import_script, monkeypatch, tmp_path, capsys):
    soybean = import_script("soybean")
    assert soybean.example() == pytest.approx(soybean.PAPER)
    document = run(soybean, soybean.main, monkeypatch, tmp_path)
    assert "33.6 MB" in capsys.readouterr().out
    assert document["example"]["data"] == pytest.approx(57.6e6)
    sizes = {row["search"]: row["bytes"] for row in document["rows"]}
    assert sizes["tofu, replication allowed"] <= sizes["soybean"] < sizes["data-parallel"]
    cuts = document["rows"][0]["cuts"]
    assert cuts == sorted(cuts), "SoyBean's Theorem 3: the first cut communicates least"
    assert sizes["tofu, replication allowed"] <= min(sizes["data-parallel"], sizes["tofu"])


def test_a_figure_of_soybean_compares_three_kinds(import_script, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    soybean8, shared = import_script("soybean8"), import_script("_soybean")
    monkeypatch.setattr(soybean8, "GPUS", (4,))
    document = run(soybean8, lambda: shared.main(soybean8.FIGURE, "Test."), monkeypatch, tmp_path)
    assert document["simulated"]
    assert len(document["rows"]) == 2 * 3
    for row in document["rows"]:
        assert 0 < row["compute_seconds"] <= row["step_seconds"]
    assert "SoyBean" in (tmp_path / "soybean8.svg").read_text()
    text = capsys.readouterr().out
    assert "batch 128, 64 x 64 weights" in text
    cuts = {
        row["system"]: row["fetched_bytes"]
        for row in document["rows"]
        if row["panel"] == "batch 128, 64 x 64 weights"
    }
    # SoyBean's tilings include those of the other two.
    assert cuts["soybean"] <= min(cuts["data"], cuts["model"])


def test_convolutions_are_cut_by_channels_where_images_are_small(import_script):
    from tofu.planner.search import plan_graph

    shared = import_script("_soybean")
    problem = shared.convolutions(8, 64, 2, 3)(2)
    model = plan_graph(problem, shared.SYSTEMS["model"])
    assert model.tensor("layer1_weight").cuts == (1,)
    assert model.tensor("layer1").cuts == (1,)
    data = plan_graph(problem, shared.SYSTEMS["data"])
    assert data.tensor("layer1_weight").cuts == (-1,)
    best = plan_graph(problem, shared.SYSTEMS["soybean"])
    assert best.total_bytes <= min(model.total_bytes, data.total_bytes)


def soybean_row(panel, label, system, step, *, compute=1.0, batch=512, workers=8, **more):
    return {
        "panel": panel, "label": label, "system": system, "step_seconds": step, "batch": batch,
        "compute_seconds": compute, "workers": workers, **more,
    }  # fmt: skip


def test_statements_of_soybean(import_script):
    checks = dict(import_script("_soybean_statements").CHECKS["soybean8"])
    rows = [
        soybean_row("a", f"{gpus} GPUs", system, step, workers=gpus)
        for gpus, times in ((2, (2.0, 1.5, 1.4)), (8, (6.0, 1.5, 1.45)))
        for system, step in zip(("data", "model", "soybean"), times)
    ]
    said = {
        statement: check(rows) for statement, check in checks.items() if "2048" not in statement
    }
    assert not any(said.values())
    rows[-1]["step_seconds"] = 1.6
    rows[3]["step_seconds"] = 1.2
    assert checks["SoyBean, MLP: its tilings are never slower"](rows) == [
        "a, 8 GPUs: 33% slower than data parallelism",
        "a, 8 GPUs: 7% slower than model parallelism",
    ]
    assert checks["SoyBean, MLP: data parallelism's overhead grows with the GPUs"](rows)
    assert checks["SoyBean, MLP: data parallelism is slower than the others"](rows)
    assert checks["SoyBean, MLP: on 8 GPUs, 5 times the computation, batch 512"](rows) == [
        "0.2 times"
    ]


def test_speedups_compare_with_the_fastest_single_gpu(import_script):
    rows = [
        soybean_row("net", "64", "single", 1.0, samples_per_second=64.0),
        soybean_row("net", "64", "soybean", 0.25, samples_per_second=256.0, batch=64),
        soybean_row("net", "128", "single", 1.6, samples_per_second=80.0),
        soybean_row("net", "128", "soybean", 0.2, samples_per_second=640.0, batch=128),
    ]
    found = import_script("_soybean").speedups(rows)
    assert [row["speedup"] for row in found] == [256 / 80, 8.0]


def test_tensoropts_frontier_of_a_reduced_model(import_script, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    tensoropt = import_script("tensoropt")
    monkeypatch.setattr(tensoropt, "LIMITS", 1)
    document = run(tensoropt, tensoropt.main, monkeypatch, tmp_path, "--models", "rnn")
    (row,) = document["rows"]
    held = [point["held_bytes"] for point in row["frontier"]]
    times = [point["step_seconds"] for point in row["frontier"]]
    assert held == sorted(held)
    assert times == sorted(times, reverse=True)
    rivals = [point["name"] for point in row["rivals"]]
    assert rivals == ["data-parallel", "tofu", "optcnn", "mesh-tensorflow"]
    assert [each["workers"] for each in row["workers"]] == [2, 4]
    assert row["search_seconds"] > 0
    assert "108 GB" in capsys.readouterr().out
    assert "frontier" in (tmp_path / "tensoropt.svg").read_text()


@pytest.mark.whole
def test_figure_7_and_limits_of_reduced_models(import_script, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    tensoropt, figure = import_script("tensoropt"), import_script("tensoropt7")
    monkeypatch.setattr(tensoropt, "LIMITS", 1)
    monkeypatch.setattr(figure, "LIMITED", figure.LIMITED[1:])
    monkeypatch.setattr(figure, "UNITS", ())
    monkeypatch.setattr(figure, "ACROSS", {"slow": 0.5, "fast": 4})
    monkeypatch.setattr(figure, "WITHIN", {"PCIe": 0.05})
    monkeypatch.setattr(figure, "observations", None)  # these do not hold for reduced models
    monkeypatch.setattr(figure, "_transformer", lambda *_: figure.problem("mlp", reduced=True))
    document = run(figure, figure.main, monkeypatch, tmp_path)
    parts = [row["part"] for row in document["rows"]]
    assert parts == ["across hosts", "across hosts", "within a host"]
    slow, fast, pcie = (row["frontier"][0]["step_seconds"] for row in document["rows"])
    assert fast <= slow < pcie
    (limited,) = document["limited"]
    assert limited["limits"]["12 GiB"]["held_bytes"] <= 12 * 2**30
    assert "within 12 GiB" in capsys.readouterr().out
    assert "PCIe" in (tmp_path / "tensoropt7.svg").read_text()


def test_observations_of_figure_7(import_script):
    figure = import_script("tensoropt7")

    def row(part, name, held, seconds):
        point = {"held_bytes": held, "step_seconds": seconds}
        return {"part": part, "name": name, "turning": point, "frontier": [point]}

    rows = [row("size", f"{units:,} units", units, 1.0) for units in figure.UNITS]
    rows += [row("across hosts", name, 100, 2.0 - n / 2) for n, name in enumerate(figure.ACROSS)]
    rows += [row("within a host", name, 100, 3.0 - 2 * n) for n, name in enumerate(figure.WITHIN)]
    assert [found for _, found in figure.observations(rows)] == ["holds"] * 4
    rows += [row("size", f"{figure.UNITS[0]:,} units", 1 << 40, 1.0)]
    rows += [row("across hosts", name, 100 * n, 2.0) for n, name in enumerate(figure.ACROSS)]
    rows += [row("within a host", name, 100, 3.0) for name in figure.WITHIN]
    assert "holds" not in [found for _, found in figure.observations(rows)]


def test_observations_of_tensoropt(import_script):
    def times(eight, sixteen):
        return [
            {"workers": count, **{name: {"step_seconds": step} for name in ("ours", "tofu")}}
            for count, step in ((8, eight), (16, sixteen))
        ]

    def point(step, name=""):
        return {"step_seconds": step, "name": name}

    row = {
        "model": "net",
        "frontier": [point(3.0), point(1.02), point(1.0)],
        "turning": point(1.02),
        "rivals": [point(1.5, "tofu")],
        "workers": times(1.0, 1.1),
    }
    observations = import_script("tensoropt").observations
    assert [found for _, found in observations([row])] == ["holds"] * 4
    row["rivals"] = [point(0.9, "tofu")]
    row["workers"] = times(1.0, 0.4)
    row["turning"] = point(2.0)
    found = [why for _, why in observations([row])]
    assert found[0] == "net: 100% are left"
    assert all(why.startswith("net: ") for why in found)

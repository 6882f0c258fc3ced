"""tofu plan MODEL: a model of the registry, planned by its name."""

import json

import pytest

from tofu.cli import main
from tofu.plans import file as plan_file


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in (
        "MXNET_GRAPH_PASS",
        "TOFU_WORKERS",
        "TOFU_DEVICE",
        "TOFU_LOG",
        "TOFU_SEARCH",
        "TOFU_REPLICATION",
        "TOFU_PINS",
    ):
        # Setting it first makes monkeypatch undo what the command sets.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def run(capsys, *args):
    """Run tofu plan; return its exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as end:
        main.main(["plan", *args])
    return end.value.code, *capsys.readouterr()


def test_document_of_a_model(capsys):
    status, out, _ = run(capsys, "mlp", "--workers", "8", "--batch-size=64", "--format=json")
    plan = json.loads(out)
    assert status == 0
    assert (plan["model"], plan["workers"], plan["status"]) == ("mlp", 8, "optimal")
    assert plan["nodes"] > len(plan["operators"]) > 0
    assert plan["total_bytes"] == sum(step["bytes"] for step in plan["steps"])
    assert [64, 8192] in [each["shape"] for each in plan["tensors"] if each["node"] == "data"]


def test_text_of_a_model(capsys):
    status, out, _ = run(capsys, "--workers", "2", "--optimizer", "none", "MLP")
    assert status == 0
    assert out.startswith("2 workers, ")
    assert "512x8192" in out  # the model's own batch size
    assert "sgd_update" not in out


def test_workers_are_all_gpus_where_there_are_some(capsys, monkeypatch):
    import mxnet as mx

    monkeypatch.setattr(mx.context, "num_gpus", lambda: 3)
    args = ("mlp", "--batch-size=6", "--format=json")
    assert json.loads(run(capsys, *args)[1])["workers"] == 3
    # A plan needs no GPUs, so there may be more workers than GPUs.
    assert json.loads(run(capsys, *args, "--workers=4")[1])["workers"] == 4
    monkeypatch.delenv("TOFU_WORKERS")
    assert json.loads(run(capsys, *args, "--device=cpu")[1])["workers"] == 2


def test_pins_are_kept(capsys, tmp_path):
    (tmp_path / "pins").write_text("mlp_dense1_weight=0,1\n")
    args = ("--workers=4", f"--pins={tmp_path / 'pins'}", "--pin=mlp_dense2_weight=1")
    _, out, _ = run(capsys, "mlp", *args, "--format=json")
    cuts = {each["node"]: each["cuts"] for each in json.loads(out)["tensors"]}
    assert (cuts["mlp_dense1_weight"], cuts["mlp_dense2_weight"]) == ([0, 1], [1, 1])


def test_what_is_explained(capsys):
    args = ("mlp", "--workers=4", "--explain=mlp_dense0_weight", "--explain=mlp_dense1_fwd")
    _, text, _ = run(capsys, *args)
    assert "Tensor mlp_dense0_weight (8192x8192 float32), step 1 of 2, in 2 parts: " in text
    assert "Operator mlp_dense1_fwd (FullyConnected), step 2 of 2, in 2 parts: split" in text
    _, text, _ = run(capsys, "mlp", "--workers=2", "--explain=mlp_dense1_fwd_backward[1]")
    assert "Tensor mlp_dense1_fwd_backward[1] (" in text
    _, out, _ = run(capsys, *args, "--format=json")
    plan = json.loads(out)
    assert [told["name"] for told in plan["explanations"]] == [
        "mlp_dense0_weight",
        "mlp_dense1_fwd",
    ]
    assert plan["model"] == "mlp"


def test_a_plan_is_saved_and_shown_as_a_page(capsys, tmp_path):
    path = tmp_path / "mlp.plan"
    _, out, _ = run(capsys, "mlp", "--workers=2", "--format=html", f"--save={path}")
    assert out.startswith("<!DOCTYPE html>")
    assert "Plan of mlp over 2 workers" in out
    assert plan_file.read(path).workers == (2,)


def test_a_page_has_the_graph_the_memory_and_the_command(capsys):
    args = ["mlp", "--batch-size=64", "--optimizer=adam", "--workers=4", "--allow-replication"]
    _, out, _ = run(capsys, *args, "--pin=mlp_dense0_weight=0", "--format=html")
    data = json.loads(out.partition('id="data">')[2].partition("</script>")[0])
    assert data["command"] == [
        "tofu plan --allow-replication --optimizer adam --batch-size 64 --workers 4", "mlp",
    ]  # fmt: skip
    names, tensors, operators = data["names"], data["tensors"], data["operators"]
    reads = {
        names[name]: [names[tensors["name"][tensor]] for tensor in read]
        for name, read in zip(operators["name"], operators["reads"])
    }
    assert reads["mlp_dense0_fwd"] == ["data", "mlp_dense0_weight", "mlp_dense0_bias"]
    peak = data["plans"][0]["peak"]
    kinds = dict(data["plans"][0]["kinds"])
    most = max(sum(bytes_of_kinds) for *_, bytes_of_kinds in peak["points"]) - peak["fixed"]
    assert most == sum(group[-1] for group in peak["held"]) <= peak["allocated"]
    assert peak["fixed"] + peak["allocated"] <= sum(kinds.values())
    assert len(peak["points"]) == peak["count"]


def test_a_plans_worst_moment(capsys):
    _, out, _ = run(capsys, "mlp", "--workers=2", "--batch-size=64", "--peak")
    assert "needs most while it runs mlp_dense" in out
    assert "mlp_dense*_fwd_backward[1]" in out
    status, _, err = run(capsys, "mlp", "--workers=2", "--peak", "--count=estimate")
    assert status == 2
    assert err == "tofu: --peak needs --count exact: an estimate has no moments\n"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["rnn-10-9k"], "no model 'rnn-10-9k'; did you mean rnn-10-8k"),
        (["mlp", "--shape", "data=3"], "a model has its own shapes"),
        (["mlp", "3"], "'3': only a script takes arguments"),
        (["mlp", "--pin", "mlp_dens0_weight=0"], "did you mean mlp_dense0_weight"),
        (
            ["mlp", "--workers=4", "--pin", "label=0,0,0"],
            "found 3 cuts, expected one for each of the 2 steps",
        ),
        (["mlp", "--explain=mlp_dense0_wight"], "no tensor or operator of that name; did you mean"),
        (["mlp", "--save", "/dev/null/x"], "--save /dev/null/x: cannot be written"),
        (["./mlp"], "./mlp: no such file; expected the path of a script or a symbol file"),
    ],
)
def test_bad_input_is_told_in_one_line(capsys, args, expected):
    status, out, error = run(capsys, *args)
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert expected in error


def test_a_script_has_its_own_batch_size(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    status, _, error = run(capsys, "--batch-size", "3", str(script))
    assert status == 2
    assert "--batch-size: only for a model's name" in error

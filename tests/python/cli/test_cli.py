"""The command tofu: its arguments, and its errors for bad input."""

import importlib
import importlib.util
import json
import subprocess
import sys

import pytest

from tofu.cli import main

from ..support import forked

pytestmark = pytest.mark.slow

PROBE = """
import os, sys
if __name__ == "__main__":
    print(sys.argv, sys.path[0], os.environ["MXNET_GRAPH_PASS"], os.environ.get("TOFU_WORKERS"))
    sys.exit(3)
"""


VARIABLES = (
    "MXNET_GRAPH_PASS", "TOFU_WORKERS", "TOFU_DEVICE", "TOFU_LOG", "TOFU_SEARCH", "TOFU_PINS",
    "TOFU_PLAN", "TOFU_REPLICATION", "TOFU_FETCH", "TOFU_DESCRIBE", "TOFU_STRICT",
    "TOFU_HYBRIDIZE",
)  # fmt: skip


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in VARIABLES:
        # Setting it first makes monkeypatch undo what the command sets.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def fail(capsys, *args):
    """Run the command, expect status 2 and one line on standard error, and return it."""
    with pytest.raises(SystemExit) as end:
        main.main([str(arg) for arg in args])
    captured = capsys.readouterr()
    assert end.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.fixture
def symbol_file(tmp_path):
    def write(text):
        path = tmp_path / "net-symbol.json"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("workers", ["0", "-1", "two", "1.5", "", "100000"])
@pytest.mark.parametrize("command", ["run", "plan"])
def test_worker_count_must_be_a_whole_number(capsys, tmp_path, command, workers):
    script = tmp_path / "train.py"
    script.write_text("")
    message = fail(capsys, command, f"--workers={workers}", script)
    assert f"--workers={workers}: expected a whole number of workers" in message


def test_environment_is_checked_as_well(capsys, tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("")
    monkeypatch.setenv("TOFU_WORKERS", "two")
    assert "TOFU_WORKERS=two: expected a whole number" in fail(capsys, "run", script)


def test_unknown_log_word(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    assert "'loud' is unknown; expected" in fail(capsys, "run", "--log=loud", script)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_missing_file(capsys, tmp_path, command):
    message = fail(capsys, command, tmp_path / "absent.py")
    assert "absent.py: no such file; expected the path of a script" in message


def test_folder_in_place_of_a_script(capsys, tmp_path):
    assert "is a folder; expected the path of a script" in fail(capsys, "run", tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"nodes": [', "not JSON, or cut off", id="truncated"),
        pytest.param("", "not JSON, or cut off", id="empty"),
        pytest.param("[1, 2]", 'JSON without the list "nodes"', id="list"),
        pytest.param('{"layers": []}', 'JSON without the list "nodes"', id="foreign"),
        pytest.param('{"nodes": [], "heads": []}', 'without the list "arg_nodes"', id="incomplete"),
    ],
)
def test_not_a_symbol(capsys, symbol_file, text, expected):
    message = fail(capsys, "plan", symbol_file(text), "--shape", "data=1,2")
    assert expected in message
    assert "expected a symbol that MXNet saved" in message


def symbol_with(entry, *, head=(2, 0, 0), rows=(0, 1, 2, 3)):
    """A symbol whose node n has this input."""
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "relu", "name": "f", "inputs": [[0, 0, 0]]},
        {"op": "relu", "name": "n", "inputs": [entry]},
    ]
    document = {"nodes": nodes, "arg_nodes": [0], "heads": [list(head)]}
    return json.dumps({**document, "node_row_ptr": list(rows)} if rows else document)


BROKEN = {
    "output": (symbol_with([1, 2**31 - 1, 0]), "is output 2147483647 of node 'f', which has 1"),
    "negative output": (symbol_with([1, -2, 0]), "input 0 of node 'n' is output -2 of node 'f'"),
    "loop": (symbol_with([2, 0, 0]), "is node 2, expected one of the 2 before it"),
    "negative node": (symbol_with([-1, 0, 0]), "is node -1, expected one of the 2 before it"),
    "no entry": (symbol_with("x"), "is 'x', expected the numbers of a node and of its output"),
    "head": (symbol_with([1, 0], head=(2, 3, 0)), "head 0 is output 3 of node 'n', which has 1"),
    "no rows": (symbol_with([1, -1], rows=None), "input 0 of node 'n' is output -1 of node 'f'"),
    "no node": ('{"nodes": [1], "arg_nodes": [], "heads": []}', 'no object with the list "inputs"'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_symbol_whose_nodes_read_what_is_not_there(capsys, symbol_file, name):
    text, expected = BROKEN[name]
    message = fail(capsys, "plan", symbol_file(text), "--shape", "data=1,2")
    assert expected in message
    assert "expected a symbol that MXNet saved" in message
    assert message.count("\n") <= 1


def test_binary_file_is_no_symbol(capsys, tmp_path):
    path = tmp_path / "net.json"
    path.write_bytes(bytes(range(256)))
    assert "not a text file" in fail(capsys, "plan", path)


@pytest.mark.parametrize("shape", ["data", "data=", "=1,2", "data=1,x", "data=0,2", "data=-1,-2"])
def test_shape_must_be_a_name_and_sizes(capsys, symbol_file, shape):
    message = fail(capsys, "plan", symbol_file("{}"), "--shape", shape)
    assert "expected a name and positive sizes" in message


def test_unknown_dtype(capsys, symbol_file):
    message = fail(capsys, "plan", symbol_file("{}"), "--dtype", "data=float31")
    assert "--dtype float31: expected one of float16" in message


def test_arguments_after_a_symbol_file(capsys, symbol_file):
    assert "'extra': only a script" in fail(capsys, "plan", symbol_file("{}"), "extra")


def test_symbol_options_do_not_fit_a_script(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    message = fail(capsys, "plan", "--shape", "data=1,2", script)
    assert "only for a symbol file" in message


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("tofu 0.")


def run_tofu(*args, cwd):
    return forked.run(["-m", "tofu", *args], cwd=cwd)


def start_tofu(*args, cwd):
    """Run tofu in a separate process, in which only the script imports MXNet."""
    words = [sys.executable, "-m", "tofu", *map(str, args)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)


def test_run_is_python_with_the_switch_on(tmp_path):
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text(PROBE)
    ran = run_tofu("run", "--workers", "3", script, "--workers", "9", "x.json", cwd=tmp_path)
    argv = [str(script), "--workers", "9", "x.json"]
    assert ran.stdout == f"{argv} {script.parent} tofu 3\n"
    assert ran.returncode == 3


def test_run_takes_a_module_as_python_does(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "train.py").write_text(PROBE)
    ran = run_tofu("run", "--workers=3", "-m", "package.train", "--workers", "9", cwd=tmp_path)
    assert ran.stdout == f"{[str(package / 'train.py'), '--workers', '9']} {tmp_path} tofu 3\n"
    assert ran.returncode == 3
    ran = run_tofu("run", "-m", "package.nosuch", cwd=tmp_path)
    assert ran.returncode == 1 and "No module named package.nosuch" in ran.stderr


def test_two_dashes_say_that_the_script_gets_what_follows(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROBE)
    for dashes in ([], ["--"]):
        ran = run_tofu("run", script, *dashes, "--workers", "9", "--", "x", cwd=tmp_path)
        assert ran.stdout.startswith(f"{[str(script), '--workers', '9', '--', 'x']} ")
        assert ("the script gets --workers" in ran.stderr) == (not dashes)


def test_models_are_those_that_can_be_planned(tmp_path):
    from tofu.models import MODELS

    found = {
        form: run_tofu("models", f"--format={form}", cwd=tmp_path).stdout
        for form in ("text", "json", "csv")
    }
    listed = {each["name"]: each["batch_size"] for each in json.loads(found["json"])["models"]}
    assert listed == {name: model.batch_size for name, model in MODELS.items()}
    assert [row.split()[0] for row in found["text"].splitlines()[1:]] == list(MODELS)
    assert [row.partition(",")[0] for row in found["csv"].splitlines()[1:]] == list(MODELS)


def test_run_hands_on_what_steers_the_search(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os\n"
        "names = ('SEARCH', 'PINS', 'PLAN', 'WORKERS', 'STRICT')\n"
        "print(*(os.environ.get('TOFU_' + key) for key in names))"
    )
    (tmp_path / "pins").write_text("v=1  # columns\n")
    ran = start_tofu(
        "run", "--search=EqualChop", "--pin=w=0,1", "--pins=pins", "--strict", script, cwd=tmp_path
    )
    assert ran.stdout == "equalchop v=1 w=0,1 None None 1\n"
    ran = start_tofu("run", "--pin=w=0,1", "--pins=pins", "--plan=a.plan", script, cwd=tmp_path)
    assert ran.stdout == "None v=1 w=0,1 a.plan None None\n"


def test_a_search_beside_a_plan_is_refused(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("")
    found = fail(capsys, "run", "--search=tofu", "--plan=a.plan", script)
    assert "--search tofu: --plan a.plan is used instead of a search; leave one" in found


OPTIONS = {
    "--strict": ("STRICT", "1"),
    "--workers=3": ("WORKERS", "3"),
    "--device=cpu": ("DEVICE", "cpu"),
    "--fetch=plain": ("FETCH", "plain"),
    "--log=debug": ("LOG", "debug"),
    "--search=flat": ("SEARCH", "flat"),
    "--allow-replication": ("REPLICATION", "1"),
    "--pin=w=1": ("PINS", "w=1"),
    "--plan=a.plan": ("PLAN", "a.plan"),
    "--describe=describe.py": ("DESCRIBE", "{folder}/describe.py"),
}


def test_replication_within_a_share_sets_the_same_variable(capsys, tmp_path):
    (tmp_path / "train.py").write_text("import os; print(os.environ['TOFU_REPLICATION'])")
    ran = run_tofu("run", "--allow-replication-within=2%", "train.py", cwd=tmp_path)
    assert ran.stdout == "2%\n"
    found = fail(capsys, "plan", "--allow-replication", "--allow-replication-within=2%", "mlp")
    assert "--allow-replication and --allow-replication-within: give one" in found


def test_every_option_of_run_reaches_the_script(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import json, os\n"
        "del os.environ['TOFU_CACHE']  # set for all tests\n"
        "print(json.dumps({k[5:]: v for k, v in os.environ.items() if k.startswith('TOFU_')}))"
    )
    (tmp_path / "describe.py").write_text("")
    expected = {name: text.format(folder=tmp_path) for name, text in OPTIONS.values()}
    options = {option: name for option, (name, _) in OPTIONS.items()}
    for left_out in ("PLAN", "SEARCH"):  # a plan is used instead of a search
        given = [option for option, name in options.items() if name != left_out]
        ran = start_tofu("run", *given, script, cwd=tmp_path)
        wanted = {name: value for name, value in expected.items() if name != left_out}
        assert json.loads(ran.stdout) == wanted
    assert json.loads(start_tofu("run", script, cwd=tmp_path).stdout) == {}


def test_files_that_describe_are_added_to_those_of_the_environment(tmp_path, monkeypatch):
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "train.py").write_text("import os; print(os.environ['TOFU_DESCRIBE'])")
    monkeypatch.setenv("TOFU_DESCRIBE", str(tmp_path / "first.py"))
    ran = run_tofu("run", "--describe=second.py", "train.py", cwd=tmp_path)
    assert ran.stdout == f"{tmp_path / 'first.py'}:{tmp_path / 'second.py'}\n"


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--search=tufo", "--search=tufo: no such search mode; expected one of tofu, recursion,"),
        ("--pin=w", "--pin w: expected TENSOR=DIM"),
        ("--pins=absent", "--pins absent: cannot be read (No such file or directory)"),
    ],
)
def test_search_options_are_checked(capsys, tmp_path, command, option, expected):
    script = tmp_path / "train.py"
    script.write_text("")
    assert expected in fail(capsys, command, option, script)


def test_plan_without_mxnet_says_what_to_install(capsys, symbol_file, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "mxnet" else find(name)
    )
    symbol = symbol_file('{"nodes": [], "arg_nodes": [], "heads": []}')
    (symbol.parent / "train.py").write_text("")
    for target in ("mlp", symbol, symbol.parent / "train.py"):
        message = fail(capsys, "plan", target)
        assert "tofu plan needs MXNet 1.9.1, but there is no module mxnet; install" in message


@pytest.mark.parametrize(
    "fault", [OSError("libcuda.so.1: no such file"), AttributeError("np.bool")]
)
def test_plan_says_when_mxnet_cannot_be_imported(capsys, monkeypatch, fault):
    def refuse(name):
        raise fault

    monkeypatch.setattr(importlib, "import_module", refuse)
    message = fail(capsys, "plan", "mlp")
    assert f"mxnet cannot be imported ({fault}); install tofu with the extra [mxnet-cpu]" in message


def test_run_leaves_the_number_of_workers_to_the_environment(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(PROBE)
    assert run_tofu("run", script, cwd=tmp_path).stdout.endswith(" tofu None\n")


MLP = """
import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn
import sys

net = nn.HybridSequential()
net.add(nn.Dense(16, activation="relu"), nn.Dense(8))
net.initialize()
print("started", sys.argv[1:])
if "--hybridize" in sys.argv:
    net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
for step in range(2):
    with autograd.record():
        loss = net(mx.nd.ones((4, 12))).sum()
    loss.backward()
    trainer.step(4)
print("trained")
"""


@pytest.fixture
def mlp_script(tmp_path):
    script = tmp_path / "mlp.py"
    script.write_text(MLP)
    return script


def test_plan_of_a_script_stops_at_its_first_training_call(mlp_script):
    ran = run_tofu(
        "plan", "--workers=2", "--device=cpu", mlp_script, "--hybridize", cwd=mlp_script.parent
    )
    assert ran.returncode == 0, ran.stderr
    assert "2 workers" in ran.stdout
    assert "FullyConnected" in ran.stdout
    assert "started ['--hybridize']" in ran.stderr
    assert "trained" not in ran.stdout + ran.stderr


def test_plan_searches_though_a_run_would_use_a_saved_plan(mlp_script, monkeypatch):
    monkeypatch.setenv("TOFU_PLAN", "absent.plan")
    args = ("--workers=2", "--device=cpu", "--fetch=plain", "--format=json", mlp_script)
    ran = run_tofu("plan", *args, "--hybridize", cwd=mlp_script.parent)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["fetch"] == "plain"


def test_plan_of_a_script_that_never_hybridizes(mlp_script):
    ran = run_tofu("plan", "--workers=2", "--device=cpu", mlp_script, cwd=mlp_script.parent)
    assert ran.returncode == 0, ran.stderr
    assert "2 workers" in ran.stdout
    assert "trained" not in ran.stdout + ran.stderr


def test_plan_says_when_a_script_never_trains(mlp_script, monkeypatch):
    monkeypatch.setenv("TOFU_HYBRIDIZE", "0")
    ran = run_tofu("plan", "--workers=2", "--device=cpu", mlp_script, cwd=mlp_script.parent)
    assert ran.returncode == 2
    assert "ended (status 0) before its first partitioned training call" in ran.stderr


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    mx = pytest.importorskip("mxnet")
    data = mx.sym.Variable("data")
    hidden = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=16, name="fc1"), "relu")
    output = mx.sym.FullyConnected(hidden, num_hidden=8, name="fc2")
    path = tmp_path_factory.mktemp("symbol") / "mlp-symbol.json"
    output.save(str(path))
    return path


def plan_symbol(exported, *options):
    ran = run_tofu("plan", exported, *options, cwd=exported.parent)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("optimizer", ["none", "sgd", "sgd_mom", "adam"])
def test_plan_of_a_symbol_file(exported, optimizer):
    text = plan_symbol(
        exported, "--shape=data=4,12", "--workers=4", "--optimizer", optimizer, "--format=json"
    )
    plan = json.loads(text)
    assert plan["workers"] == 4
    assert plan["total_bytes"] == sum(step["bytes"] for step in plan["steps"])
    names = {tensor["node"] for tensor in plan["tensors"]}
    assert {"data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"} <= names
    assert (plan["memory"], plan["fetch"]) == ("exact", "multifetch")
    assert plan["fetched_bytes"] + plan["shared_bytes"] == plan["total_bytes"]
    held = plan["bytes_per_worker"]
    states = {"none": 0, "sgd": 0, "sgd_mom": 1, "adam": 2}[optimizer]
    assert held["optimizer_state"] == states * held["gradients"]
    assert held["total"] == sum(held.values()) - held["total"]


def test_plan_estimates_memory_when_asked_to(exported):
    options = ("--shape=data=4,12", "--workers=2")
    assert " (an estimate): parameters" in plan_symbol(exported, *options, "--count=estimate")
    plain = plan_symbol(exported, *options, "--fetch=plain")
    assert "a worker holds " in plain and "an estimate" not in plain
    for kind in ("parameters", "gradients", "optimizer state", "activations", "fetch buffers"):
        assert f"{kind} " in plain


def test_predict_plans_fewer_operators_than_training(exported):
    options = ("--shape=data=4,12", "--workers=2", "--format=json")
    training = json.loads(plan_symbol(exported, *options))
    predicting = json.loads(plan_symbol(exported, *options, "--predict"))
    assert 0 < len(predicting["operators"]) < len(training["operators"])


def test_dtype_doubles_the_bytes(exported):
    options = ("--shape=data=4,12", "--workers=2", "--format=json")
    single = json.loads(plan_symbol(exported, *options))
    double = json.loads(plan_symbol(exported, *options, "--dtype=float64"))
    assert double["lower_bound_bytes"] == 2 * single["lower_bound_bytes"]
    assert {tensor["dtype"] for tensor in double["tensors"]} == {1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param((), "no shapes; give those of its inputs", id="none"),
        pytest.param(("--shape=image=4,12",), "no variable 'image'; it has data,", id="unknown"),
        pytest.param(
            ("--shape=fc1_weight=16,12",), "cannot infer the shape of data", id="insufficient"
        ),
        pytest.param(
            ("--shape=data=4,12", "--shape=fc1_weight=16,13"), "the shapes do not fit", id="unfit"
        ),
    ],
)
def test_shapes_that_do_not_fit_a_symbol(exported, options, expected):
    ran = run_tofu("plan", exported, *options, cwd=exported.parent)
    assert ran.returncode == 2
    assert expected in ran.stderr
    assert "Traceback" not in ran.stderr


def test_symbol_with_an_operator_mxnet_lacks(exported, tmp_path):
    path = tmp_path / "net-symbol.json"
    path.write_text(exported.read_text().replace("FullyConnected", "FullyDisconnected"))
    ran = run_tofu("plan", path, "--shape=data=4,12", cwd=tmp_path)
    assert ran.returncode == 2
    assert "MXNet cannot load it" in ran.stderr
    assert "FullyDisconnected" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_script_without_a_suffix_gets_its_own_options(tmp_path):
    script = tmp_path / "train"
    script.write_text(PROBE, encoding="utf-8")
    ran = run_tofu("run", "--workers", "3", script, "--log", "x", cwd=tmp_path)
    assert ran.returncode == 3
    assert "'--log', 'x'" in ran.stdout


def test_dump_directory_must_be_writable(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    script = tmp_path / "train.py"
    script.write_text("")
    message = fail(capsys, "run", f"--log=dump:{tmp_path / 'file'}", script)
    assert "cannot make the directory" in message


def test_plan_names_operators_without_a_description(tmp_path):
    path = tmp_path / "net-symbol.json"
    mx = pytest.importorskip("mxnet")
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc")
    mx.sym.cast_storage(data, stype="default").save(str(path))
    ran = run_tofu("plan", "--predict", "--shape", "data=4,6", path, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    expected = "no description of cast_storage; every worker computes them whole, which costs"
    assert expected in ran.stderr

"""Bad input of every kind: one line that says what to do, no traceback, no silence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tofu import installation, uncaught
from tofu.cli import isolated, main, options
from tofu.errors import ConfigError
from tofu.plans import file as plan_file

from ..support import forked
from .test_cli import environment, fail  # noqa: F401  (environment is a fixture)

TRAIN = """
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(gluon.nn.Dense(16, activation="relu"), gluon.nn.Dense(8))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
with autograd.record():
    loss = net(mx.nd.ones((4, 12))).sum()
loss.backward()
trainer.step(4)
print("trained")
"""
NO_MXNET = 'raise ModuleNotFoundError("No module named \'mxnet\'", name="mxnet")'
NEW_NUMPY = """
import warnings

warnings.warn("In the future `np.bool` will be defined as the NumPy scalar.", FutureWarning)
raise AttributeError("module 'numpy' has no attribute 'bool'")
"""


def run_python(*args, cwd, **variables):
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TOFU_") and name != "MXNET_GRAPH_PASS"
    }
    environ.update(variables)
    if "PYTHONPATH" in variables:  # Python reads it at its start
        return run_group([sys.executable, *map(str, args)], cwd=cwd, env=environ)
    return forked.run(args, cwd=cwd, env=environ)


def run_group(command, *, timeout=300, **options):
    """Run a command; at the time limit, end it with all processes that it has started.

    subprocess.run would end the command alone, and wait for other processes that hold its pipes.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, **options,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def test_a_time_limit_ends_a_command_and_what_it_started(tmp_path):
    child = "import subprocess; subprocess.run(['sleep', '600'])"
    with pytest.raises(subprocess.TimeoutExpired):
        run_group([sys.executable, "-c", child], cwd=tmp_path, timeout=2)


def one_line(ran, status=2):
    """The only line of standard error of a command that failed."""
    assert ran.returncode == status, ran.stderr
    (line,) = ran.stderr.splitlines()
    return line


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


# --- MXNet --------------------------------------------------------------------------------------


@pytest.fixture
def without_mxnet(folder):
    """A folder whose module mxnet fails as if it were missing, or had a newer NumPy."""

    def make(source):
        package = folder / "stand_in" / "mxnet"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(source)
        return {"PYTHONPATH": str(folder / "stand_in")}

    return make


COMMANDS = {
    "verify": ("verify", "relu"),
    "suggest": ("suggest", "relu", "--shape=4,6"),
    "run": ("run", "train.py"),
    "plan": ("plan", "train.py"),
    "check": ("check", "train.py"),
    "trace": ("trace", "train.py"),
    "compare": ("compare", "mlp"),
    "estimate": ("estimate", "mlp"),
    "frontier": ("frontier", "mlp"),
    "simulate": ("simulate", "mlp", "--machine=p2.8xlarge"),
    "calibrate": ("calibrate", "--output=machine.json"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("source", "cause"),
    [(NO_MXNET, "No module named 'mxnet'"), (NEW_NUMPY, "numpy' has no attribute 'bool'")],
    ids=["missing", "numpy"],
)
def test_commands_say_that_mxnet_is_missing(folder, without_mxnet, command, source, cause):
    ran = run_python("-m", "tofu", *COMMANDS[command], cwd=folder, **without_mxnet(source))
    line = one_line(ran)
    assert "needs MXNet 1.9.1, but mxnet cannot be imported (" in line
    assert cause in line and "install mxnet==1.9.1 and 'numpy<1.24'" in line


def test_the_list_of_operators_says_that_mxnet_is_missing(folder, without_mxnet):
    variables = without_mxnet(NEW_NUMPY)
    ran = run_python("-m", "tofu", "ops", cwd=folder, XDG_CACHE_HOME=str(folder), **variables)
    assert "tofu ops needs MXNet 1.9.1" in one_line(ran)


def test_enable_says_that_mxnet_is_missing(folder, without_mxnet):
    ran = run_python("-c", "import tofu; tofu.enable()", cwd=folder, **without_mxnet(NO_MXNET))
    assert one_line(ran).startswith("tofu: tofu.enable needs MXNet 1.9.1")


def test_a_script_without_mxnet_under_the_switch(monkeypatch, capsys):
    """The switch leaves a missing module to Python, since a script may look for it itself."""
    monkeypatch.setenv("MXNET_GRAPH_PASS", "tofu")
    hook = uncaught._MainHook(sys.__excepthook__)
    error = ModuleNotFoundError("No module named 'mxnet'", name="mxnet")
    with pytest.raises(SystemExit) as end:
        hook(type(error), error, None)
    assert end.value.code == 2
    assert "tofu needs MXNet 1.9.1, but there is no module mxnet" in capsys.readouterr().err
    monkeypatch.delenv("MXNET_GRAPH_PASS")
    hook(type(error), error, None)
    assert capsys.readouterr().err == "ModuleNotFoundError: No module named 'mxnet'\n"


def test_a_missing_mxnet_is_an_import_error_too():
    with pytest.raises(ImportError):
        raise installation.missing("tofu")


# --- tofu.enable --------------------------------------------------------------------------------

ENABLE = """
import tofu

for arguments, expected in {cases!r}:
    try:
        tofu.enable(workers=2, device="cpu", **arguments)
    except tofu.ConfigError as error:
        assert expected in str(error), (arguments, str(error))
    else:
        raise SystemExit(f"{{arguments}} was accepted")
tofu.enable(workers=2, device="cpu", pins=3)
"""
DICT = 'expected a dict such as {"fc1_weight": 0}'
WRONG = [
    ({"pins": "w=0"}, f"tofu.enable: pins='w=0': {DICT}"),
    ({"pins": {"w": "x"}}, f"tofu.enable: pins={{'w': 'x'}}: {DICT}"),
    ({"pins": {"w": 1.5}}, f"tofu.enable: pins={{'w': 1.5}}: {DICT}"),
    ({"pins": {"w": None}}, f"tofu.enable: pins={{'w': None}}: {DICT}"),
    ({"pins": {"w": True}}, f"tofu.enable: pins={{'w': True}}: {DICT}"),
    ({"pins": {"w": ()}}, f"tofu.enable: pins={{'w': ()}}: {DICT}"),
    ({"pins": {"w": -2}}, f"tofu.enable: pins={{'w': -2}}: {DICT}"),
    ({"pins": {3: 1}}, f"tofu.enable: pins={{3: 1}}: {DICT}"),
    ({"search": "spartn"}, "tofu.enable: search=spartn: no such search mode"),
    ({"search": 3}, "tofu.enable: search=3: expected a text"),
    ({"plan": 3}, "tofu.enable: plan=3: expected the path of a plan file"),
    ({"plan": b"a.plan"}, "tofu.enable: plan=b'a.plan': expected the path of a plan file"),
    ({"fetch": "copy"}, "tofu.enable: fetch='copy': expected 'multifetch' or 'plain'"),
    ({"log": "loud"}, "tofu.enable: log='loud': 'loud' is unknown"),
    ({"strict": "no"}, "tofu.enable: strict='no': expected True or False"),
    ({"allow_replication": 1}, "tofu.enable: allow_replication=1: expected True or False"),
    (
        {"plan": "a.plan", "search": "flat"},
        "tofu.enable: search=flat: tofu.enable: plan=a.plan is used instead of a search; leave",
    ),
]


def test_wrong_arguments_of_enable(folder):
    """The last error, which the script does not catch, is one line."""
    (folder / "enable.py").write_text(ENABLE.format(cases=WRONG))
    line = one_line(run_python("enable.py", cwd=folder))
    assert line.startswith(f"tofu: tofu.enable: pins=3: {DICT}")


def test_pins_of_every_kind_of_number():
    np = pytest.importorskip("numpy")
    from tofu.config import pins_of

    pins = {"w": 1, "v": np.int64(2), "u": [0, np.int32(-1)], "t": (1,)}
    assert pins_of(pins, "") == (("w", (1,)), ("v", (2,)), ("u", (0, -1)), ("t", (1,)))


def test_analyze_wants_a_description():
    import tofu

    with pytest.raises(
        TypeError, match=r"analyze\('Convolution'\): expected a description.*tofu op"
    ):
        tofu.analyze("Convolution")


def test_the_version():
    import tofu

    assert tofu.__version__ == installation.metadata.version("mxnet-tofu")
    assert "__version__" in dir(tofu)


# --- files --------------------------------------------------------------------------------------

STORED = {
    "model": "net", "format": "tofu-plan", "version": 1, "workers": 2, "graph_hash": "1" * 16,
    "parts": [2], "steps": [{"parts": 2, "groups": 1, "bytes": 0}], "total_bytes": 0,
    "lower_bound_bytes": 0, "status": "optimal", "search_seconds": 0.0, "alike": [[[[0]], None]],
    "nodes_alike": [0], "operator_bytes": [], "node_kinds": [["", [[[4, 2], 0]]]],
    "nodes_listed": [["w", 0]],
}  # fmt: skip


def write_plans(path, *plans, **changes):
    document = {"format": "tofu-plan-file", "version": 1, "plans": list(plans)}
    document["sha256"] = plan_file._digest(document["plans"])
    path.write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"graph_hash": None}, "graph_hash is None"),
        ({"graph_hash": [1]}, r"graph_hash is \[1\]"),
        ({"workers": "x"}, "workers is 'x', expected a whole number"),
        ({"workers": 4.0}, "workers is 4.0, expected a whole number"),
        ({"workers": 10**300}, "workers is 1000"),
    ],
)
def test_an_edited_plan_with_a_right_checksum(tmp_path, change, found):
    write_plans(tmp_path / "a.plan", {**STORED, **change})
    with pytest.raises(ConfigError, match=rf"a\.plan: damaged \({found}.*save it again"):
        plan_file.read(tmp_path / "a.plan")


def test_a_plan_that_is_no_object(tmp_path):
    write_plans(tmp_path / "a.plan", 3)
    with pytest.raises(ConfigError, match=r"damaged \(a plan is 3, expected an object\)"):
        plan_file.read(tmp_path / "a.plan")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"operator_bytes": [1]}, "1 operator_bytes, expected 0"),
        ({"nodes_alike": []}, "0 nodes, expected 1"),
        ({"nodes_alike": [-1]}, "w is cut in way -1"),
        ({"nodes_alike": [True]}, "w is cut in way True"),
        ({"alike": [[[], None]]}, "cuts of 0 outputs of w, which has 1"),
        ({"alike": [3]}, "TypeError"),
        ({"node_kinds": []}, "IndexError"),
        ({"parts": [3]}, r"2 workers in parts \(3,\)"),
        ({"total_bytes": -5}, "-5 bytes"),
        ({"alike": [[[[7]], None]]}, r"cuts \(7,\) of w"),
    ],
)
def test_an_edited_plan_that_is_shown(tmp_path, change, found):
    write_plans(tmp_path / "a.plan", {**STORED, **change})
    with pytest.raises(ConfigError, match=rf"a\.plan: .*{found}"):
        plan_file.read(tmp_path / "a.plan").read_plans()


def test_a_text_that_nests_too_deep(tmp_path, capsys):
    (tmp_path / "a.plan").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="not a plan file"):
        plan_file.read(tmp_path / "a.plan")
    (tmp_path / "a.json").write_text("[" * 100_000)
    assert "not JSON, or cut off" in fail(capsys, "plan", tmp_path / "a.json")


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_plan_file_is_not_run_as_a_script(capsys, tmp_path, command):
    path = tmp_path / "a.plan"
    write_plans(path, STORED)
    found = fail(capsys, command, path)
    assert f"a.plan: a saved plan, not a script; tofu show {path} prints it" in found


def test_a_binary_file_is_not_run_as_a_script(capsys, tmp_path):
    (tmp_path / "net.params").write_bytes(bytes(range(256)))
    assert "net.params: not a text file" in fail(capsys, "plan", tmp_path / "net.params")


def test_save_over_a_script_is_refused_before_the_search(capsys, folder):
    before = (folder / "train.py").read_text()
    found = fail(capsys, "plan", "--save", folder / "train.py", folder / "train.py")
    assert "train.py: exists and is not a plan file to add to, so it stays as it is" in found
    assert found.count("train.py") == 1 and "save it again" not in found
    assert (folder / "train.py").read_text() == before


def test_save_in_a_folder_that_does_not_exist(capsys, folder):
    found = fail(capsys, "plan", "--save", folder / "absent" / "a.plan", folder / "train.py")
    assert "a.plan: cannot be written (no such folder)" in found


def test_a_file_that_describes_with_a_syntax_error(folder):
    (folder / "mine.py").write_text("def f(:\n")
    ran = run_python("-m", "tofu", "run", "--describe", "mine.py", "train.py", cwd=folder)
    assert "mine.py: cannot be executed (SyntaxError: invalid syntax" in one_line(ran)


def test_a_pin_on_no_tensor_is_told_once(folder):
    ran = run_python("-m", "tofu", "plan", "--pin=nosuch_weight=0", "train.py", cwd=folder)
    assert one_line(ran).startswith("tofu: pin nosuch_weight: the graph has no tensor")


def test_a_symbol_that_mxnet_explains_with_a_traceback(folder):
    text = '{"nodes": [{"opme": "null", "name": "a", "inputs": []}], "arg_nodes": [], "heads": []}'
    (folder / "net.json").write_text(text)
    line = one_line(run_python("-m", "tofu", "plan", "--shape=a=4", "net.json", cwd=folder))
    assert "MXNet cannot load it (JSONReader: Unknown field opme" in line


# --- arguments ----------------------------------------------------------------------------------


def test_the_optimizer_of_a_script(capsys, folder):
    found = fail(capsys, "plan", "--optimizer", "adam", folder / "train.py")
    assert "train.py: --optimizer: only for a symbol file or a model" in found


def test_an_optimizer_for_a_prediction(capsys, tmp_path):
    (tmp_path / "a.json").write_text("{}")
    found = fail(capsys, "plan", "--predict", "--optimizer", "sgd", tmp_path / "a.json")
    assert "--predict plans no update; leave out --optimizer" in found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--shape=data=1,2", "--shape=data=1,3"), "--shape: given twice for data; keep one"),
        (("--dtype=int8", "--dtype=int32"), "--dtype: given twice for all inputs; keep one"),
    ],
)
def test_an_option_that_is_repeated(capsys, tmp_path, arguments, expected):
    (tmp_path / "a.json").write_text("{}")
    assert expected in fail(capsys, "plan", *arguments, tmp_path / "a.json")


@pytest.mark.parametrize("command", ["run", "plan"])
def test_options_after_the_script_are_told_of(command, capsys):
    context = main.cli.commands[command].make_context(
        f"tofu {command}", ["train.py", "--workers", "4", "--epochs=3", "--pin=w=0"]
    )
    options.tell_misplaced(context, "train.py", context.params["args"])
    assert capsys.readouterr().err == (
        "tofu: the script gets --workers and --pin=w=0, which train.py precedes; to give it "
        "to tofu, put it before train.py\n"
    )


def test_options_that_were_given_before_the_script_are_its_own_after_it(capsys):
    args = ["--workers", "2", "train.py", "--workers", "4"]
    context = main.cli.commands["run"].make_context("tofu run", args)
    options.tell_misplaced(context, "train.py", context.params["args"])
    assert capsys.readouterr().err == ""


def test_a_model_that_nothing_resembles(capsys):
    found = fail(capsys, "plan", "nosuch")
    assert found == "tofu: no model 'nosuch'; tofu models lists them\n"


def test_help_ends_no_line_in_dots(capsys):
    with pytest.raises(SystemExit):
        main.main(["--help"])
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


# --- the script's own errors --------------------------------------------------------------------


def test_an_error_of_the_script_shows_its_own_frames(folder):
    (folder / "own.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    ran = run_python("-m", "tofu", "plan", "--workers=2", "own.py", cwd=folder)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert ran.stderr.count('File "') == ran.stderr.count('File "own.py"') == 2
    assert ran.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_script_that_is_no_python(folder):
    (folder / "own.py").write_text("def f(:\n")
    ran = run_python("-m", "tofu", "plan", "--workers=2", "own.py", cwd=folder)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert ran.stderr.strip().endswith("SyntaxError: invalid syntax")


def called_by(name, function):
    """The error of a function when a module of this name calls it."""
    scope = {"__name__": name, "function": function}
    exec("def call():\n    function()", scope)
    return scope["call"]


def frames_of(function):
    try:
        function()
    except ZeroDivisionError as error:
        found, frames = uncaught.without_ours(error.__traceback__.tb_next), []
        while found is not None:
            frames.append(found.tb_frame.f_globals["__name__"])
            found = found.tb_next
        return frames
    raise AssertionError("no error")


def test_frames_of_tofu_are_left_out_unless_the_error_is_its_own():
    def divide():
        return 1 / 0

    through = called_by("user", called_by("tofu.gluon.blocks.block", called_by("mine", divide)))
    assert frames_of(through) == ["user", "mine", __name__]
    own = called_by("user", called_by("tofu.gluon.blocks.block", called_by("mxnet.base", None)))
    try:
        own()
    except TypeError as error:
        traceback = error.__traceback__
        assert uncaught.without_ours(traceback) is traceback
    assert uncaught.without_ours(None) is None


# --- processes that MXNet ends ------------------------------------------------------------------

CRASH = """
import os, signal, sys
from tofu.cli.isolated import isolated
from tofu.errors import ConfigError

def run():
    print("out", flush=True)
    print("noise", file=sys.stderr)
    {what}

try:
    isolated(run, "it crashed ({{}}); do this")
except ConfigError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize(
    ("what", "status", "stderr"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", 1, "it crashed (SIGSEGV); do this\n"),
        ("os._exit(255)", 1, "it crashed (exit status 255); do this\n"),
        ("pass", 0, "noise\n"),
        ("sys.exit(3)", 3, "noise\n"),
        ("raise ConfigError('wrong')", 2, "noise\ntofu: wrong\n"),
    ],
)
def test_a_process_that_may_crash(tmp_path, what, status, stderr):
    ran = run_python("-c", CRASH.format(what=what), cwd=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (status, "out\n", stderr)


def test_where_mxnet_is_loaded_nothing_is_forked(monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", object())
    found = []
    isolated.isolated(lambda: found.append(os.getpid()), "")
    assert found == [os.getpid()]

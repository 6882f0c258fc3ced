"""The switch: enable, disable, and the import of MXNet by a script."""

import inspect
import os
import pathlib
import subprocess
import sys
import textwrap

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.base import _LIB

import tofu
import tofu.gluon
from tofu.config import Config
from tofu.errors import ConfigError
from tofu.gluon.session.session import Session, active, describe_contexts

from ..support import forked

SEAMS = [
    (gluon.Block, "__call__"),
    (gluon.HybridBlock, "forward"),
    (gluon.nn.Sequential, "forward"),
    (gluon.Parameter, "grad"),
    (gluon.ParameterDict, "zero_grad"),
    (gluon.HybridBlock, "_build_cache"),
    (gluon.HybridBlock, "_call_cached_op"),
    (gluon.Trainer, "__init__"),
    (gluon.Trainer, "_init_kvstore"),
    (gluon.Trainer, "_init_params"),
    (gluon.Trainer, "_allreduce_grads"),
    (gluon.Trainer, "_update"),
    (gluon.Trainer, "save_states"),
    (gluon.Trainer, "load_states"),
    (gluon.ParameterDict, "save"),
    (gluon.Block, "save_parameters"),
    (gluon.HybridBlock, "export"),
    (autograd, "grad"),
    (_LIB, "MXAutogradBackwardEx"),
    (_LIB, "MXNDArraySyncCopyToCPU"),
    (_LIB, "MXNDArrayWaitToRead"),
    (_LIB, "MXNDArrayWaitAll"),
    (_LIB, "MXNDArraySave"),
    (_LIB, "MXSymbolSaveToFile"),
    (_LIB, "MXGetLastError"),
]


@pytest.fixture
def off():
    yield
    tofu.gluon.disable()


def test_disable_restores_every_seam(off):
    before = [getattr(owner, name) for owner, name in SEAMS]
    environment = dict(os.environ)
    tofu.gluon.enable(workers=2, device="cpu")
    assert all(
        getattr(owner, name) is not function for (owner, name), function in zip(SEAMS, before)
    )
    tofu.gluon.disable()
    assert [getattr(owner, name) for owner, name in SEAMS] == before
    assert dict(os.environ) == environment
    tofu.gluon.disable()


def test_errors_about_arguments_name_the_same_functions(off):
    functions = [(owner, name) for owner, name in SEAMS if inspect.isfunction(getattr(owner, name))]
    names = [getattr(owner, name).__qualname__ for owner, name in functions]
    tofu.gluon.enable(workers=2, device="cpu")
    assert [getattr(owner, name).__qualname__ for owner, name in functions] == names
    assert "Block.__call__" in names


def test_enable_again(off):
    tofu.enable(workers=2, device="cpu")
    function = gluon.Trainer._update
    tofu.enable(workers=2, device="cpu")
    assert gluon.Trainer._update is function
    tofu.enable(workers=3, device="cpu")
    assert active().workers == 3
    tofu.disable()
    assert active() is None


def test_arguments_override_the_environment(off, monkeypatch):
    monkeypatch.setenv("TOFU_WORKERS", "5")
    monkeypatch.setenv("TOFU_DEVICE", "cpu")
    tofu.enable()
    assert active().contexts == tuple(mx.cpu(i) for i in range(5))
    tofu.enable(workers=3, log="debug")
    assert (active().workers, active().log_level) == (3, "debug")


def test_defaults(monkeypatch):
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 0)
    assert Session.from_config(Config()).contexts == (mx.cpu(0), mx.cpu(1))
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 3)
    assert Session.from_config(Config()).contexts == tuple(mx.gpu(i) for i in range(3))
    assert Session.from_config(Config(workers=2)).contexts == (mx.gpu(0), mx.gpu(1))
    assert Session.from_config(Config(workers=4, device="cpu")).workers == 4


def test_contexts_in_short():
    assert describe_contexts(tuple(map(mx.cpu, range(4)))) == "cpu(0-3)"
    assert describe_contexts((mx.gpu(0),)) == "gpu(0)"
    assert describe_contexts((mx.gpu(0), mx.gpu(2))) == "gpu(0), gpu(2)"


@pytest.mark.parametrize(
    ("gpus", "config", "text"),
    [
        (2, Config(workers=4), "TOFU_WORKERS=4: one worker is one GPU, and there are only 2"),
        (2, Config(workers=3, device="gpu"), "there are only 2"),
        (0, Config(device="gpu"), "TOFU_DEVICE=gpu: MXNet sees 0 GPUs"),
        (0, Config(workers=2, device="gpu"), "0 GPUs"),
    ],
)
def test_more_gpus_than_there_are(gpus, config, text, monkeypatch):
    monkeypatch.setattr(mx.context, "num_gpus", lambda: gpus)
    with pytest.raises(ConfigError, match=text):
        Session.from_config(config)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "workers=0"),
        ({"workers": "two"}, "workers=two"),
        ({"device": "tpu"}, "'tpu'"),
        ({"log": "loud"}, "'loud'"),
    ],
)
def test_bad_arguments(options, text, off):
    with pytest.raises(ConfigError, match=text):
        tofu.enable(**options)
    assert active() is None


# Starts Python as an installed tofu would: first the line of the .pth file, then the script.
START = (pathlib.Path(__file__).parents[3] / "python/tofu-switch.pth").read_text(encoding="utf-8")

TRAINING = """
    from mxnet import autograd, gluon, nd
    net = gluon.nn.Dense(4, in_units=8, prefix="dense_")
    net.initialize()
    net.hybridize()
    with autograd.record():
        loss = net(nd.ones((4, 8))).sum()
    loss.backward()
    state = getattr(net.weight, "_tofu", None)
    print("tiles", 1 if state is None else len(state.tiles))
"""


def arguments(script, environment):
    """Python's arguments and environment for a script, after the line of the .pth file."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TOFU_", "MXNET_"))}
    text = START + textwrap.dedent(script)
    return ["-c", text], {**clean, "OMP_NUM_THREADS": "1", **environment}


def run(script, **environment):
    """Run a script in a process forked where MXNet is loaded; its import runs the switch."""
    words, environ = arguments(script, environment)
    return forked.run(words, env=environ, timeout=120)


def run_new(script, **environment):
    """Run a script in a new interpreter, which loads MXNet and frees everything at its end."""
    words, environ = arguments(script, environment)
    return subprocess.run(
        [sys.executable, *words], env=environ, capture_output=True, text=True, timeout=120
    )


IMPORTS = {
    "import": "import mxnet as mx",
    "from": "from mxnet import nd, gluon",
    "submodule": "import mxnet.gluon.nn",
    "importlib": "import importlib; importlib.import_module('mxnet.gluon')",
    "thread": """
        import threading
        def work():
            import mxnet
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """,
}


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("way", IMPORTS)
def test_importing_mxnet_turns_tofu_on(way):
    done = run_new(
        textwrap.dedent(IMPORTS[way]) + textwrap.dedent(TRAINING),
        MXNET_GRAPH_PASS="tofu",
        TOFU_WORKERS="4",
        TOFU_DEVICE="cpu",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tiles 4\n"
    lines = [line for line in done.stderr.splitlines() if line.startswith("tofu:")]
    assert len(lines) == 1
    assert "dense (" in lines[0]
    assert "over 4 workers cpu(0-3)" in lines[0]


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("way", IMPORTS)
def test_a_script_turns_tofu_on_before_its_import(way):
    switch = """
        import os
        os.environ["MXNET_GRAPH_PASS"] = "tofu"
        os.environ["TOFU_WORKERS"] = "4"
        os.environ["TOFU_LOG"] = "quiet"
    """
    done = run(
        textwrap.dedent(switch) + textwrap.dedent(IMPORTS[way]) + textwrap.dedent(TRAINING),
        TOFU_DEVICE="cpu",
    )
    assert (done.stdout, done.stderr) == ("tiles 4\n", "")


def test_a_script_turns_tofu_off_before_its_import():
    switch = "import os\ndel os.environ['MXNET_GRAPH_PASS']\n"
    done = run(switch + textwrap.dedent(TRAINING), MXNET_GRAPH_PASS="tofu")
    assert done.stdout == "tiles 1\n", done.stderr


def test_both_finders_turn_tofu_on_once():
    """Both the .pth file and ``tofu run`` install a finder."""
    script = "from tofu._import_hook import install\ninstall()\ninstall()\n"
    done = run(script + textwrap.dedent(TRAINING), MXNET_GRAPH_PASS="tofu", TOFU_DEVICE="cpu")
    assert done.stdout == "tiles 2\n", done.stderr
    assert done.stderr.count("over 2 workers") == 1


def test_unset_changes_nothing():
    done = run_new("import sys\n" + textwrap.dedent(TRAINING) + "print('tofu' in sys.modules)")
    assert done.stdout == "tiles 1\nFalse\n", done.stderr


def test_the_finder_loads_nothing_heavy():
    done = run_new(
        """
        import sys
        print(sorted({"mxnet", "numpy", "tofu.gluon", "tofu.plan"} & set(sys.modules)))
        """,
        MXNET_GRAPH_PASS="tofu",
    )
    assert done.stdout == "[]\n", done.stderr


def test_modules_keep_their_own_loaders():
    done = run_new(
        """
        import inspect, mxnet
        print(type(mxnet.__loader__).__name__, mxnet.__spec__.loader is mxnet.__loader__)
        print("MXNet" in inspect.getsource(mxnet))
        """,
        MXNET_GRAPH_PASS="tofu",
        TOFU_DEVICE="cpu",
    )
    assert done.stdout == "SourceFileLoader True\nTrue\n", done.stderr


@pytest.mark.whole(but=2)
@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"MXNET_GRAPH_PASS": "tufo"}, "MXNET_GRAPH_PASS='tufo': no such graph pass"),
        ({"TOFU_WORKERS": "0"}, "TOFU_WORKERS=0: expected a whole number of workers"),
        ({"TOFU_WORKERS": "-1"}, "TOFU_WORKERS=-1: expected a whole number"),
        ({"TOFU_WORKERS": "two"}, "TOFU_WORKERS=two: expected a whole number"),
        ({"TOFU_FETCH": "fast"}, "TOFU_FETCH='fast': expected 'multifetch' or 'plain'"),
        ({"TOFU_DEVICE": "tpu"}, "TOFU_DEVICE='tpu': expected 'gpu' or 'cpu'"),
        ({"TOFU_LOG": "loud"}, "TOFU_LOG='loud'"),
    ],
)
def test_bad_variables_are_told_at_the_import(environment, text):
    done = run(
        "print('before')\nimport mxnet\nprint('after')",
        **{"MXNET_GRAPH_PASS": "tofu", **environment},
    )
    assert done.returncode == 2
    assert done.stdout == "before\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tofu: {text}")


def test_missing_gpus_are_told_at_the_import():
    if mx.context.num_gpus():
        pytest.skip("there are GPUs here")
    done = run("import mxnet", MXNET_GRAPH_PASS="tofu", TOFU_DEVICE="gpu")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("tofu: TOFU_DEVICE=gpu: MXNet sees 0 GPUs here")


BAD_PIN = {
    "MXNET_GRAPH_PASS": "tofu",
    "TOFU_DEVICE": "cpu",
    "TOFU_PINS": "dense_weight=7",
    "TOFU_LOG": "quiet",
}
BAD_PIN_LINE = 'tofu: TOFU_PINS: pin of "dense_weight"'


def test_the_first_call_ends_the_run_with_its_exit_handlers():
    script = "import atexit\natexit.register(print, 'handler')\nprint('before')\n"
    done = run(script + textwrap.dedent(TRAINING), **BAD_PIN)
    assert (done.returncode, done.stdout) == (2, "before\nhandler\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(BAD_PIN_LINE)


def test_a_thread_ends_the_run_while_the_main_thread_waits():
    script = """
        import os, queue, threading
        def train():
            exec(os.environ["TRAINING"])
        print("before", end="")
        threading.Thread(target=train).start()
        queue.Queue().get(timeout=100)
        print("after")
    """
    done = run(script, TRAINING=textwrap.dedent(TRAINING), **BAD_PIN)
    assert (done.returncode, done.stdout) == (2, "before")
    (line,) = done.stderr.splitlines()
    assert line.startswith(BAD_PIN_LINE)


def test_a_script_that_sets_the_variables_ends_in_the_same_way():
    settings = f"import os\nos.environ.update({BAD_PIN!r})\n"
    done = run(settings + textwrap.dedent(TRAINING))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(BAD_PIN_LINE)


def test_a_script_may_catch_the_error():
    script = """
        from tofu import ConfigError
        try:
            import mxnet
        except ConfigError as error:
            print("caught", error)
        raise SystemExit(3)
    """
    done = run(script, MXNET_GRAPH_PASS="tofu", TOFU_WORKERS="0")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("caught TOFU_WORKERS=0")


@pytest.mark.parametrize(
    "script",
    [
        "raise ValueError('mine')",
        "import threading\nt = threading.Thread(target=int, args=('mine',))\nt.start(); t.join()",
    ],
)
def test_other_errors_keep_their_tracebacks(script):
    done = run(f"import mxnet\n{script}", MXNET_GRAPH_PASS="tofu", TOFU_DEVICE="cpu")
    assert "Traceback" in done.stderr and "ValueError" in done.stderr and "mine" in done.stderr
    assert done.returncode == (1 if "raise" in script else 0)


def test_hooks_of_the_script_see_other_errors():
    script = """
        import sys, mxnet
        chain = sys.excepthook
        def hook(kind, error, traceback):
            print("hook", error)
            chain(kind, error, traceback)
        sys.excepthook = hook
        raise ValueError("mine")
    """
    done = run(script, MXNET_GRAPH_PASS="tofu", TOFU_DEVICE="cpu")
    assert (done.returncode, done.stdout) == (1, "hook mine\n")


def test_an_interactive_interpreter_goes_on():
    done = subprocess.run(
        [sys.executable, "-i", "-c", START],
        input="import mxnet\nprint('still', 'here')\n",
        env={**os.environ, "MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "still here\n")
    assert "tofu.errors.ConfigError: TOFU_WORKERS=0" in done.stderr


def test_an_interpreter_ends_cleanly_with_graphs_alive():
    done = run_new(
        textwrap.dedent(TRAINING)
        + textwrap.dedent(
            """
            kept = []
            for _ in range(3):
                with autograd.record():
                    kept.append(net(nd.ones((4, 8))))
            value = net.weight.data()
            """
        ),
        MXNET_GRAPH_PASS="tofu",
        TOFU_DEVICE="cpu",
        TOFU_LOG="quiet",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_scripts_are_run_by_the_naive_engine():
    done = run_new(
        TRAINING,
        MXNET_GRAPH_PASS="tofu",
        TOFU_DEVICE="cpu",
        MXNET_ENGINE_TYPE="NaiveEngine",
    )
    assert done.stdout == "tiles 2\n", done.stderr


# mx.nd.array looks for SciPy's matrices, under a name that SciPy deprecates.
WARNING_AT_NOTHING = """
    import warnings
    import mxnet as mx
    import numpy as np
    from mxnet import autograd, gluon
    warnings.simplefilter("error")
    net = gluon.nn.Dense(4, in_units=8, prefix="dense_")
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    for _ in range(2):
        with autograd.record():
            loss = net(mx.nd.ones((4, 8))).sum()
        loss.backward()
        trainer.step(4)
    net.weight.set_data(np.ones((4, 8), "float32"))
    print("tiles", len(net.weight._tofu.tiles))
"""


def test_a_script_may_make_errors_of_warnings():
    result = run(WARNING_AT_NOTHING, MXNET_GRAPH_PASS="tofu", TOFU_WORKERS="2")
    assert result.stdout == "tiles 2\n", result.stderr

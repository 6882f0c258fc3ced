"""The user's own operators: describing, verifying, training and suggesting them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

from click.testing import CliRunner

from tofu.analysis import described
from tofu.cli.main import cli
from tofu.config import Config
from tofu.errors import ConfigError, TdlError

from ...support import forked

HERE = Path(__file__).parent
OPERATORS = str(HERE / "custom_operators.py")

TRAIN = """
import os
import sys
sys.path.insert(0, {here!r})
import mxnet as mx
from mxnet import autograd, gluon, nd
{load}

class Net(gluon.nn.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first, self.last = gluon.nn.Dense(32), gluon.nn.Dense(8)

    def hybrid_forward(self, F, x):
        return self.last(F.Custom(self.first(x), op_type="{operator}"))

mx.random.seed(1)
net = Net()
net.initialize(mx.init.Xavier())
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {{"learning_rate": 0.1}})
x, y = nd.random.normal(shape=(16, 64)), nd.arange(16) % 8
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
for _ in range(3):
    with autograd.record():
        loss = loss_of(net(x), y)
    loss.backward()
    trainer.step(16)
    print(f"loss {{loss.mean().asscalar():.5f}}", flush=True)
os._exit(0)  # MXNet may wait forever for its threads of custom operators
"""


def _trained(tmp_path: Path, operator: str, **environment: str) -> tuple[list[str], str]:
    script = tmp_path / "train.py"
    load = "import custom_operators" if "TOFU_DESCRIBE" not in environment else ""
    script.write_text(TRAIN.format(here=str(HERE), load=load, operator=operator))
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    ran = forked.run([script], env=env, timeout=200)
    assert ran.returncode == 0, ran.stderr
    return [line for line in ran.stdout.splitlines() if line.startswith("loss")], ran.stderr


def test_a_custom_operator_is_trained_partitioned(tmp_path: Path) -> None:
    serial, _ = _trained(tmp_path, "test_swish")
    own = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "2"}
    partitioned, told = _trained(tmp_path, "test_swish", **own)
    assert len(serial) == 3
    assert [float(line.split()[1]) for line in partitioned] == pytest.approx(
        [float(line.split()[1]) for line in serial], rel=1e-4
    )
    assert "over 2 workers" in told
    assert "no description" not in told


def test_an_operator_that_keeps_values_runs_serially(tmp_path: Path) -> None:
    own = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "2"}
    losses, told = _trained(tmp_path, "test_keeping", **own)
    assert len(losses) == 3
    assert "custom operator test_keeping" in told
    assert "forward stores kept in the operator" in told


def _tofu(*args: str) -> subprocess.CompletedProcess[str]:
    return forked.run(["-m", "tofu", *args], timeout=200)


def test_verify_finds_a_false_description_and_what_it_lacks() -> None:
    names = "Custom:test_swish", "Custom:test_dot"
    ran = _tofu("verify", *names, "--describe", OPERATORS, "--processes", "1")
    assert ran.returncode == 1, ran.stderr
    false = [line for line in ran.stdout.splitlines() if line.startswith("false:")]
    assert false
    assert all("test_dot" in line for line in false)
    assert "tofu verify Custom:test_dot --seed 1" in ran.stdout
    assert "missing: Custom-4x4_4x4-op_type=test_dot" in ran.stdout
    assert "dimension 1 of input 0, dimension 0 of input 1: sum" in ran.stdout


def test_verify_accepts_what_suggest_prints(tmp_path: Path) -> None:
    """The operator's backward neither reads the output nor runs in float16."""
    own = "--describe", OPERATORS
    ran = _tofu("suggest", "Custom:test_product", "--shape", "6,4", "--shape", "4,5", *own)
    assert ran.returncode == 0, ran.stderr
    described = tmp_path / "described.py"
    described.write_text(ran.stdout)
    names = "Custom:test_product", "_backward_Custom:test_product"
    ran = _tofu("verify", *names, *own, "--describe", str(described), "--processes", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 false, 0 missing" in ran.stdout


def test_an_error_of_the_operator_itself_is_shown() -> None:
    ran = _tofu("suggest", "Custom:test_raising", "--shape", "6,4", "--describe", OPERATORS)
    assert ran.returncode == 2
    assert "_backward_Custom:test_raising: it does not run on inputs of" in ran.stderr
    assert "(KeyError: 'of the script')" in ran.stderr


def test_suggest_describes_an_operator_and_its_gradient() -> None:
    ran = _tofu("suggest", "Custom:test_dot", "--shape", "6,4", "--shape", "4,5",
                "--describe", OPERATORS)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert '@tofu.op(name="Custom:test_dot")' in ran.stdout
    assert (
        'return lambda i0, i1: tofu.Sum(lambda r2: tofu.lang.apply("f", x0[i0, r2], x1[r2, i1]))'
        in ran.stdout
    )
    swish = _tofu("suggest", "Custom:test_swish", "--shape", "6,4", "--describe", OPERATORS)
    assert '@tofu.op(name="_backward_Custom:test_swish")' in swish.stdout
    compile(swish.stdout, "suggestion", "exec")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["suggest", "NoSuch", "--shape", "2"], "MXNet has no such operator"),
        (["suggest", "relu", "--shape", "2x3"], "--shape 2x3: expected sizes"),
        (["suggest", "dot", "--shape", "2,3", "--shape", "4,5"], "does not run on inputs of"),
        (["suggest", "Dropout", "--shape", "8,9"], "two runs differ"),
        (["suggest", "relu", "--shape", "2", "--attr", "x"], "expected NAME=VALUE"),
        (["verify", "NoSuch"], "MXNet has no such operator"),
        (["verify", "--describe", "nowhere.py"], "is not a file"),
    ],
)
def test_bad_input_is_told(args: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOFU_DESCRIBE", "")
    with pytest.raises(ConfigError, match=message):
        CliRunner().invoke(cli, args, catch_exceptions=False)


def test_a_file_that_cannot_be_executed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("import tofu\n1 / 0\n")
    monkeypatch.setenv("TOFU_DESCRIBE", str(bad))
    with pytest.raises(ConfigError, match=r"bad\.py: cannot be executed \(ZeroDivisionError"):
        described.load_described.__wrapped__()


def test_an_opaque_function_without_a_batch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "whole.py"
    file.write_text(
        "import tofu\n\n\n@tofu.op\ndef my_cholesky(x):\n    f = tofu.Opaque()\n"
        "    return lambda i, j: f(x[:, :])[i, j]\n"
    )
    monkeypatch.setenv("TOFU_DESCRIBE", str(file))
    try:
        with pytest.raises(TdlError, match="my_cholesky: an opaque function has no batch"):
            described.load_described.__wrapped__()
    finally:
        from tofu.lang import description

        description._REGISTRY.pop("my_cholesky", None)


def test_packages_describe_operators_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value = "mine", "no_such_module"

        def load(self) -> None:
            raise ImportError("no module named no_such_module")

    monkeypatch.setattr(described, "_entry_points", lambda: [Point()])
    with pytest.raises(ConfigError, match=r"entry point mine = no_such_module of tofu\.operators"):
        described.load_described.__wrapped__()


def test_files_are_separated_as_in_path(tmp_path: Path) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text("")
    config = Config.from_environment({"TOFU_DESCRIBE": os.pathsep.join(map(str, files))})
    assert config.describe == tuple(files)

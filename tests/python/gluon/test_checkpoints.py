"""Checkpoints between tofu, plain MXNet and numbers of workers: resumed, or cut off by a crash."""

import contextlib
import os
import pathlib
import pickle
import signal
import stat
import subprocess
import time

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.base import MXNetError
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.updates import checkpoints

from ..support import forked

BATCH = 12
OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.1, "momentum": 0.9}, "float32"),
    "adam": ("adam", {"learning_rate": 0.05}, "float32"),
    "double": ("adam", {"learning_rate": 0.05}, "float64"),
    "lamb": ("lamb", {"learning_rate": 0.05}, "float32"),
    "multi-precision": (
        "sgd",
        {"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True},
        "float16",
    ),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:tofu. LAMB does not update every element"),
    pytest.mark.filterwarnings("ignore:Cannot decide type"),  # MXNet's, of exported nets
]
ROUNDING = {"float64": (1e-10, 1e-12), "float32": (2e-4, 2e-5), "float16": (2e-2, 2e-2)}


@contextlib.contextmanager
def over(workers):
    """Turn tofu on over this many workers; 0: plain MXNet."""
    tofu.gluon.disable()
    if workers:
        tofu.gluon.enable(workers=workers, device="cpu", log="quiet")
    try:
        yield
    finally:
        tofu.gluon.disable()


class Product(gluon.HybridBlock):
    """A dense layer of operators that MXNet has for float16 on CPUs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(6, 10))

    def hybrid_forward(self, F, x, weight):
        return F.sum(F.broadcast_mul(F.expand_dims(x, 1), F.expand_dims(weight, 0)), axis=2)


class Run:
    """A net and its trainer; every step seeds MXNet's random numbers, which it cannot save."""

    def __init__(self, case, dropout=0.3):
        name, params, self.dtype = OPTIMIZERS[case]
        mx.random.seed(7)
        np.random.seed(7)
        self.net = nn.HybridSequential(prefix="net_")
        with self.net.name_scope():
            if self.dtype == "float16":
                self.net.add(Product())
            else:
                first, last = nn.Dense(12, use_bias=False, in_units=10), nn.Dense(6, in_units=12)
                # No gradient's true value is 0, because Adam and LAMB divide by its size.
                norm = nn.BatchNorm(in_channels=12), nn.Activation("relu"), nn.Dropout(dropout)
                self.net.add(first, *norm, last)
        self.net.initialize(mx.init.Xavier())
        self.net.cast(self.dtype)
        self.net.hybridize()
        schedule = mx.lr_scheduler.FactorScheduler(3, 0.5, base_lr=params["learning_rate"])
        self.trainer = gluon.Trainer(
            self.net.collect_params(), name, {**params, "lr_scheduler": schedule}
        )
        self.losses = []

    def train(self, steps):
        for step in steps:
            mx.random.seed(step)
            random = np.random.RandomState(step)
            inputs = mx.nd.array(random.uniform(-1, 1, (BATCH, 10)), dtype=self.dtype)
            with autograd.record():
                loss = (self.net(inputs) ** 2).sum(axis=1)
            loss.backward()
            self.trainer.step(BATCH)
            self.losses.append(loss.asnumpy())

    def save(self, folder):
        self.net.save_parameters(str(folder / "net"))
        self.trainer.save_states(str(folder / "states"))

    def load(self, folder):
        self.net.load_parameters(str(folder / "net"), ctx=mx.cpu(0))
        self.trainer.load_states(str(folder / "states"))

    def weights(self):
        return {name: p.data().asnumpy() for name, p in self.net.collect_params().items()}


def states(path):
    """The contents of a file of optimizer states, in a form that can be compared."""
    found, optimizer = pickle.loads(path.read_bytes())

    def plain(value):
        if isinstance(value, (tuple, list)):
            return [plain(each) for each in value]
        return value.asnumpy() if isinstance(value, mx.nd.NDArray) else value

    return (
        {index: plain(state) for index, state in found.items()},
        optimizer.num_update,
        optimizer._all_index_update_counts,
    )


def assert_equal_bits(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_equal_bits(one, other)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
    else:
        assert found == expected


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_resuming_goes_on_bit_for_bit(case, workers, tmp_path):
    with over(workers):
        whole = Run(case)
        whole.train(range(7))
        whole.save(tmp_path)
        expected = states(tmp_path / "states")
        first = Run(case)
        first.train(range(4))
        first.save(tmp_path)
        second = Run(case)
        second.load(tmp_path)
        second.train(range(4, 7))
        second.save(tmp_path)
        assert_equal_bits(first.losses + second.losses, whole.losses)
        assert_equal_bits(second.weights(), whole.weights())
        assert_equal_bits(states(tmp_path / "states"), expected)


@pytest.mark.parametrize("sequence", [(2, 3, 0), (0, 3, 2), (3, 0, 2, 4)])
@pytest.mark.parametrize("case", ["sgd", "double", "lamb", "multi-precision"])
def test_files_go_from_one_number_of_workers_to_another(case, sequence, tmp_path):
    with over(0):
        serial = Run(case, dropout=0)
        serial.train(range(2 * len(sequence)))
    losses = []
    for part, workers in enumerate(sequence):
        with over(workers):
            run = Run(case, dropout=0)  # masks depend on the number of workers
            if part:
                run.load(tmp_path)
            run.train(range(2 * part, 2 * part + 2))
            run.save(tmp_path)
            losses += run.losses
    relative, absolute = ROUNDING[serial.dtype]
    np.testing.assert_allclose(losses, serial.losses, relative, absolute)
    for name, value in serial.weights().items():
        np.testing.assert_allclose(run.weights()[name], value, relative, absolute, err_msg=name)


@pytest.mark.parametrize(("saved", "loaded"), [(2, 0), (0, 2), (2, 3)])
def test_exported_nets_and_saved_arrays(saved, loaded, tmp_path):
    with over(saved):
        run = Run("sgd")
        run.train(range(2))
        inputs = mx.nd.ones((BATCH, 10))
        expected = run.net(inputs).asnumpy()
        run.net.export(str(tmp_path / "net"), epoch=3)
        arrays = {name: p.data() for name, p in run.net.collect_params().items()}
        mx.nd.save(str(tmp_path / "arrays"), arrays)
    with over(loaded):
        net = gluon.SymbolBlock.imports(
            str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0003.params")
        )
        net.hybridize()
        np.testing.assert_allclose(net(inputs).asnumpy(), expected, 1e-5, 1e-6)
        for name, value in mx.nd.load(str(tmp_path / "arrays")).items():
            np.testing.assert_array_equal(value.asnumpy(), arrays[name].asnumpy())
    assert sorted(os.listdir(tmp_path)) == ["arrays", "net-0003.params", "net-symbol.json"]


# --- Files after a crash ----------------------------------------------------------------------

# MXNet ends a process whose file grows beyond its limit in the middle of the write, as a kill
# at that moment would; with the signal ignored, the write fails instead.
CUT_OFF = """
import os, resource, signal, sys
os.environ.update(MXNET_GRAPH_PASS="tofu", TOFU_DEVICE="cpu", TOFU_LOG="quiet")
import tofu._import_hook
tofu._import_hook.install()
import mxnet as mx
from mxnet import autograd, gluon

net = gluon.nn.HybridSequential(prefix="net_")
net.add(gluon.nn.Dense(400, in_units=100, prefix="net_first_"), gluon.nn.Dense(4, in_units=400))
net.initialize(mx.init.One())
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), sys.argv[1])
with autograd.record():
    loss = net(mx.nd.ones((4, 100))).sum()
loss.backward()
trainer.step(4)

def save():
    net.save_parameters("net")
    trainer.save_states("states")
    net.export("exported")

save()
print("saved", flush=True)
net[0].weight.set_data(net[0].weight.data() * 2)
"""
LIMIT = """
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
{what}
print("not reached")
"""
WHAT = {
    "net": 'net.save_parameters("net")',
    "states": 'trainer.save_states("states")',
    "exported-0000.params": 'net.export("exported")',
    "exported-symbol.json": 'net.export("exported")',
}


def start(script, folder, optimizer="adam"):
    return subprocess.Popen(
        [forked.python(), "-c", script, optimizer],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOFU_WORKERS": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def crash(folder, what, optimizer="adam"):
    """Save all files, then crash while one is written again."""
    rest = LIMIT.format(limit=200 if what.endswith("json") else 20_000, what=WHAT[what])
    process = start(CUT_OFF + rest, folder, optimizer)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, out) == (-signal.SIGXFSZ, "saved\n"), err


@pytest.mark.parametrize("what", WHAT)
def test_a_crash_while_saving_leaves_the_old_file_whole(what, tmp_path):
    crash(tmp_path, what)
    whole = mx.nd.load(str(tmp_path / "net"))
    assert whole["0.weight"].shape == (400, 100)
    assert len(set(whole["0.weight"].asnumpy().ravel())) == 1
    assert mx.nd.load(str(tmp_path / "exported-0000.params"))["arg:net_first_weight"].size == 40_000
    assert mx.sym.load(str(tmp_path / "exported-symbol.json")).list_arguments()
    assert states(tmp_path / "states")[1] == 1


def test_untiled_states_are_written_in_the_same_way(tmp_path):
    crash(tmp_path, "states", "lamb")
    assert states(tmp_path / "states")[1] == 1


def test_what_a_crash_left_goes_at_the_next_save(tmp_path):
    crash(tmp_path, "net")
    (left,) = tmp_path.glob(".*")
    other = tmp_path / left.name.replace(".net.", ".other.")
    other.touch()
    with over(2):
        run = Run("sgd")
        run.net.save_parameters(str(tmp_path / "net"))
    assert list(tmp_path.glob(".*")) == [other]


FULL_DISK = """
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for save in (lambda: net.save_parameters("net"), lambda: trainer.save_states("states")):
    try:
        save()
    except (mx.MXNetError, OSError) as error:
        print(type(error).__name__)
"""


def test_a_failed_write_is_an_error_and_leaves_nothing(tmp_path):
    process = start(CUT_OFF + FULL_DISK, tmp_path)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "saved\nMXNetError\nOSError\n"), err
    assert mx.nd.load(str(tmp_path / "net"))["0.weight"].size == 40_000
    assert states(tmp_path / "states")[1] == 1
    assert not list(tmp_path.glob(".*"))


SEED = 1  # of the crash's moment
KILLED = """
while True:
    net[0].weight.set_data(net[0].weight.data() + 1)
    net.save_parameters("net")
"""


def test_killed_at_a_random_moment(tmp_path):
    with start(CUT_OFF + KILLED, tmp_path) as process:
        assert process.stdout.readline() == "saved\n"
        time.sleep(np.random.RandomState(SEED).uniform(0.05, 0.3))
        process.kill()
    whole = mx.nd.load(str(tmp_path / "net"))
    assert len(set(whole["0.weight"].asnumpy().ravel())) == 1  # of one save


# --- Files that are replaced ------------------------------------------------------------------


def written(path):
    with checkpoints.replacing(str(path)) as partial:
        pathlib.Path(partial).write_text("new")
    return partial


def test_the_file_may_be_given_by_name(tmp_path):
    net = nn.Dense(3, in_units=2, prefix="dense_")
    net.initialize()
    with over(2):
        net.save_parameters(filename=str(tmp_path / "block"))
        net.collect_params().save(filename=str(tmp_path / "dict"))
        net.hybridize()
        net(mx.nd.ones((1, 2)))
        net.export(path=str(tmp_path / "exported"))
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'filename'"):
            net.save_parameters()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"block", "dict", "exported-symbol.json", "exported-0000.params"}


def test_links_and_modes_are_kept(tmp_path):
    real, link = tmp_path / "real", tmp_path / "folder" / "link"
    real.write_text("old")
    real.chmod(0o640)
    link.parent.mkdir()
    link.symlink_to(real)
    assert written(link) != str(link)
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_new_files_have_the_usual_mode(tmp_path):
    written(tmp_path / "new")
    (tmp_path / "usual").write_text("")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_no_file_is_written_in_place(tmp_path):
    for path in ("/dev/null", "s3://bucket/net", str(tmp_path / "absent" / "net")):
        with checkpoints.replacing(path) as partial:
            assert partial == path


def test_a_missing_folder_is_mxnets_own_error(tmp_path):
    with over(2), pytest.raises(MXNetError, match="absent"):
        mx.nd.save(str(tmp_path / "absent" / "net"), mx.nd.ones(2))


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "net"
    path.write_text("old")
    with contextlib.suppress(KeyboardInterrupt), checkpoints.replacing(path) as partial:
        pathlib.Path(partial).write_text("ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["net"]

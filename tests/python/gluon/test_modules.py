"""The Module API gives the results of plain MXNet, and trains tiles."""

import mxnet as mx
import pytest

import tofu.gluon
from tofu.errors import ConfigError, PlanError
from tofu.gluon.blocks import block
from tofu.gluon.modules import module
from tofu.gluon.modules.partitioned_executor import PartitionedExecutor
from tofu.gluon.session.messages import TofuWarning
from tofu.gluon.session.session import active

from . import module_scripts as scripts
from .models import assert_same

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*matrix.*scipy.sparse:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),  # MXNet's
    pytest.mark.filterwarnings("ignore:tofu.*no dimension of:UserWarning"),
]


@pytest.fixture(autouse=True)
def _no_cached_weights(monkeypatch):
    """Have no executor that predicts keep its weights as oneDNN first saw them."""
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")


def partitioned(function, *args, workers=2):
    """A script's result under tofu; every Module in it must have trained tiles."""
    tofu.gluon.enable(workers=workers, device="cpu", log="quiet")
    try:
        found = function(*args)
        assert active().state.partitioned
        return found
    finally:
        tofu.gluon.disable()


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.whole)])
@pytest.mark.parametrize("name", scripts.ALL)
def test_results_are_those_of_plain_mxnet(name, workers):
    """Warnings are errors: nothing runs serially."""
    script = getattr(scripts, name)
    assert_same(partitioned(script, workers=workers), script())


def test_checkpoints(tmp_path):
    """Either reads the files of the other, and files have the same states."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "tofu").mkdir()
    expected = scripts.saved(tmp_path / "plain")
    assert_same(partitioned(scripts.saved, tmp_path / "tofu"), expected)
    for one, other in ((tmp_path / "plain", "tofu"), (tmp_path / "tofu", "plain")):
        assert_same(scripts.loaded(one), partitioned(scripts.loaded, tmp_path / other))


def test_a_monitor_sees_every_operator():
    expected = scripts.watched()
    with pytest.warns(TofuWarning, match="is also computed whole on cpu"):
        found = partitioned(scripts.watched)
    assert_same(found[:2], expected[:2])
    assert found[2] == expected[2]


@pytest.mark.parametrize(
    "classes", [1003, pytest.param(1_000_003, marks=[pytest.mark.whole, pytest.mark.slow])]
)
def test_a_large_softmax(classes):
    found = partitioned(scripts.large_softmax, classes, workers=3)
    assert_same(found, scripts.large_softmax(classes))


def test_no_worker_holds_the_large_layer():
    tofu.gluon.enable(workers=3, device="cpu", log="quiet")
    try:
        trained = scripts.started(scripts.bound(scripts.mlp(norm=False)))
        scripts.steps(trained)
        tiles = trained._exec_group.execs[0].parameters["fc1_weight"]._tofu.variables
        assert [tile.size for tile in tiles] == [12 * 10 // 3] * 3
    finally:
        tofu.gluon.disable()


def two_contexts():
    return scripts.bound(scripts.mlp(), context=[mx.cpu(0), mx.cpu(1)])


def placed():
    return scripts.bound(scripts.mlp(), group2ctxs={"dev": mx.cpu(1)})


def sparse():
    weight = mx.sym.Variable("fc2_weight", stype="row_sparse")
    return scripts.bound(scripts.mlp(weight=weight))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (two_contexts, "bound to the contexts"),
        (placed, "group2ctxs places its operators"),
        (sparse, "fc2_weight has a storage type"),
    ],
)
def test_reasons_for_serial_running(make, reason):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    try:
        with pytest.warns(TofuWarning, match=f"module softmax runs serially: .*{reason}"):
            bound = make()
        assert not isinstance(bound._exec_group.execs[0], PartitionedExecutor)
        tofu.gluon.enable(workers=2, device="cpu", log="quiet", strict=True)
        with pytest.raises(ConfigError, match=reason):
            make()
    finally:
        tofu.gluon.disable()


def refuse(*_args, **_options):
    raise PlanError("no way to divide it")


def test_a_symbol_that_cannot_be_partitioned(monkeypatch):
    """It runs on MXNet's own executor, with a line, and the results are the same."""
    monkeypatch.setattr(block, "make_pool", refuse)
    expected = scripts.gradients()
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    try:
        with pytest.warns(TofuWarning, match="module softmax runs serially: no way") as seen:
            found = scripts.gradients()
    finally:
        tofu.gluon.disable()
    assert sum(issubclass(each.category, TofuWarning) for each in seen) == 1
    assert_same(found, expected)


def test_an_output_that_is_no_loss_needs_its_gradient():
    def backward():
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=12, name="fc1")
        bound = scripts.bound(net, label_names=None)
        bound.forward(mx.io.DataBatch([mx.nd.ones((8, 10))], None), is_train=True)
        with pytest.raises(mx.MXNetError, match=r"head.gradient is required"):
            bound.backward()

    backward()
    partitioned(backward)


def backward_twice():
    """Gradients after each of two backward calls per batch, and values, with outputs held."""
    trained, gradients, held = scripts.started(scripts.bound(scripts.mlp())), [], []
    for batch in scripts.batches(count=16):
        trained.forward(batch, is_train=True)
        held.append(trained.get_outputs())
        for _ in range(2):
            trained.backward()
            held[-1][0].wait_to_read()
            gradients.append([each.asnumpy() for (each,) in trained._exec_group.grad_arrays])
        trained.update()
    executor = trained._exec_group.execs[0]
    if isinstance(executor, PartitionedExecutor):  # one program runs all batches
        assert [pool.bound for pool in executor._block._pools.values()] == [1]
    return gradients, scripts.values(trained)


def test_backward_twice_after_one_forward_pass(monkeypatch):
    """Plain MXNet's second call is right only if its first one uses no activation's memory."""
    found = partitioned(backward_twice)
    for name in ("NNVM_EXEC_ENABLE_INPLACE", "MXNET_EXEC_ENABLE_INPLACE", "NNVM_EXEC_MATCH_RANGE"):
        monkeypatch.setenv(name, "0")
    assert_same(found, backward_twice())


def test_other_shapes_of_parameters_are_refused():
    def reshape():
        bound = scripts.bound(scripts.mlp(norm=False))
        with pytest.raises(mx.MXNetError, match="fc1_weight"):
            bound.reshape([("data", (8, 11))], [("softmax_label", (8,))])
        scripts.steps(scripts.started(bound))

    reshape()
    partitioned(reshape)


def test_predictions_alone_stay_with_mxnet():
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", strict=True)
    try:
        bound = mx.mod.Module(scripts.mlp())
        bound.bind([("data", (4, 10))], [("softmax_label", (4,))], for_training=False)
        assert not isinstance(bound._exec_group.execs[0], PartitionedExecutor)
    finally:
        tofu.gluon.disable()


def test_after_disable_a_module_goes_on_whole():
    def half_way(turn_off):
        bound = scripts.started(scripts.bound(scripts.mlp(norm=False)))
        scripts.steps(bound)
        turn_off()
        return scripts.steps(bound), scripts.values(bound)

    expected = half_way(lambda: None)
    assert_same(partitioned_until(half_way), expected)


def partitioned_until(function):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    return function(tofu.gluon.disable)


def test_a_distributed_kvstore_runs_whole(monkeypatch):
    monkeypatch.setattr(module, "_is_distributed", lambda kvstore: kvstore == "local")
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    try:
        trained = scripts.bound(scripts.mlp(norm=False))
        trained.forward(next(iter(scripts.batches())))
        assert active().state.tiled
        scripts.started(trained)
        assert not active().state.tiled
        with pytest.warns(TofuWarning, match="runs serially: its kvstore reduces whole"):
            found = scripts.steps(trained), scripts.values(trained)
    finally:
        tofu.gluon.disable()
    trained = scripts.started(scripts.bound(scripts.mlp(norm=False)))
    assert_same(found, (scripts.steps(trained), scripts.values(trained)))

"""Messages about blocks, and blocks that run serially instead."""

import warnings

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.errors import ConfigError, PlanError
from tofu.gluon.blocks import block
from tofu.gluon.session import messages
from tofu.gluon.session.autograd_hooks import record_function
from tofu.gluon.training.parameter import is_tiled

from . import fakes
from .models import (
    assert_same,
    data,
    make_net,
    plainly,
    started,
    told_lines,
    train,
    wait_until,
    weights,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def on(fake):
    """Turn tofu on, with two workers, a fake backend and the usual log."""
    tofu.gluon.enable(workers=2, device="cpu", log="info")
    yield
    tofu.gluon.disable()


def warnings_of(seen):
    return [str(w.message) for w in seen if issubclass(w.category, messages.TofuWarning)]


class Refused(gluon.HybridBlock):
    """Uses an operator that the fake backend refuses."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = nn.Dense(8, in_units=10)
            self.norm = nn.BatchNorm(in_channels=8)

    def hybrid_forward(self, F, x):
        return self.norm(self.dense(x)) + F.sign(self.dense(x)) * 0.1


def test_one_line_tells_what_is_partitioned(on, capsys):
    net = make_net()
    train(net=net)
    lines = told_lines(capsys)
    assert lines == [
        "tofu: net (1 operators, 258 parameters) over 2 workers cpu(0-1): "
        "1.0 KiB communicated per step, about 512 bytes on a worker (1.0 KiB serially), "
        "search 0.01 s, set up in 0.00 s"
    ]


def test_a_thousand_parameters_are_said_in_short(on, capsys):
    net = started(nn.Dense(10, in_units=99))
    with autograd.record():
        net(mx.nd.ones((4, 99)))
    assert "1.0 k parameters" in capsys.readouterr().err


def test_programs_of_the_signatures_unused_for_longest_are_dropped(two, monkeypatch):
    monkeypatch.setattr(block, "_MAX_POOLS", 2)
    net = make_net()
    for batch in (4, 8, 4, 12, 4, 12):
        with autograd.record():
            net(data(batch))
    assert len(two.graphs) == 3
    with autograd.record():
        net(data(8))
    assert len(two.graphs) == 4, "the second one's was dropped for the third's"


def test_quiet_is_quiet(fake, capsys):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    train(net=make_net())
    tofu.gluon.disable()
    assert "tofu:" not in capsys.readouterr().err


def test_debug_tells_of_every_graph(fake, capsys):
    tofu.gluon.enable(workers=2, device="cpu", log="debug")
    train(net=make_net())
    tofu.gluon.disable()
    assert capsys.readouterr().err.count("tofu: net (") == 3


def serially():
    net = started(Refused(prefix="refused_"))
    losses = train(net=net)
    return losses[:2], net


def test_what_cannot_be_planned_runs_serially(on):
    with pytest.warns(messages.TofuWarning) as seen:
        found, net = serially()
    assert warnings_of(seen) == ["tofu: refused runs serially: operator sign: the fake refuses it"]
    assert not any(map(is_tiled, net.collect_params().values()))
    (found_at,) = {w.filename for w in seen if w.category is messages.TofuWarning}
    assert found_at.endswith("models.py")  # the caller, neither tofu nor MXNet
    assert_same(found, plainly(serially)[0])


def test_serial_blocks_use_tiled_parameters(on):
    def run():
        net = started(Refused(prefix="refused_"))
        tiling = nn.HybridSequential(prefix="tiling_")
        tiling.add(net.dense, net.norm)
        tiling.hybridize()
        tiling(data())
        return train(net=net)[:2], is_tiled(net.norm.running_mean)

    with pytest.warns(messages.TofuWarning):
        found = run()
    expected = plainly(run)
    assert found[1] and not expected[1]
    assert_same(found[0], expected[0])


def test_what_cannot_be_bound_runs_serially(on):
    def program(*_args):
        raise PlanError("no memory for a tile")

    with (
        fakes.using(fakes.backend(), program=program),
        pytest.warns(messages.TofuWarning, match="net runs serially: no memory for a tile"),
    ):
        found = train()[:2]
    assert_same(found, plainly(train)[:2])


def test_configuration_errors_are_raised(on):
    def compile_plan(*_args, **_options):
        raise ConfigError("TOFU_LOG: cannot write there")

    others = fakes.using(fakes.backend(), compile_plan=compile_plan)
    with others, pytest.raises(ConfigError, match="cannot write there"):
        make_net()(data())


def test_data_parallel_scripts_run_as_they_are(on):
    def run():
        net = nn.Dense(4, in_units=10, prefix="parallel_")
        contexts = [mx.cpu(0), mx.cpu(1)]
        net.initialize(mx.init.One(), ctx=contexts)
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
        parts = gluon.utils.split_and_load(data(), contexts)
        with autograd.record():
            losses = [(net(part) ** 2).sum() for part in parts]
        for loss in losses:
            loss.backward()
        trainer.step(12)
        return net.weight.data(mx.cpu(0))

    with pytest.warns(messages.TofuWarning, match=r"runs serially.*expected one context"):
        found = run()
    assert_same(found, plainly(run))


def test_sparse_gradients_run_serially(on):
    net = nn.Embedding(8, 4, sparse_grad=True, prefix="sparse_")
    started(net)
    with pytest.warns(messages.TofuWarning, match=r"sparse_weight.*row_sparse.*sparse_grad"):
        net(mx.nd.array([1, 2]))


@pytest.mark.filterwarnings("ignore:register_op_hook is experimental")
def test_watched_blocks_run_serially(on):
    net, names = make_net(), []
    net(data())
    net.register_op_hook(lambda name, opr, array: names.append(name))
    with pytest.warns(messages.TofuWarning, match="register_op_hook"):
        net(data())
    assert names


def test_undescribed_operators_are_named_with_their_cost(on):
    class Unknown(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.dense = nn.Dense(8, in_units=10)

        def hybrid_forward(self, F, x):
            y = self.dense(x)
            return F.broadcast_hypot(y, y + 1)

    net = started(Unknown(prefix="unknown_"))
    with pytest.warns(messages.TofuWarning) as seen:
        train(net=net)
    (text,) = warnings_of(seen)
    assert f"no description of {fakes.UNDESCRIBED}" in text
    assert "2.0 KiB of communication per step" in text


def test_replicated_tensors_are_named(on):
    tofu.gluon.enable(workers=37, device="cpu", log="info")
    net = started(nn.Dense(17, in_units=31, use_bias=False, prefix="odd_"))
    with pytest.warns(messages.TofuWarning) as seen:
        net(mx.nd.ones((3, 31)))
    (text,) = warnings_of(seen)
    assert "no dimension of odd_weight (2.1 KiB) has an element for each worker" in text
    assert net.weight._tofu.variables[1].shape == (17, 31)


def test_a_few_hundred_replicated_bytes_are_not_worth_a_warning(on):
    tofu.gluon.enable(workers=17, device="cpu", log="info")
    net = started(nn.Dense(7, in_units=13, prefix="odd_"))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        net(mx.nd.ones((3, 13)))
    assert not seen
    assert net.weight._tofu.variables[1].shape == (7, 13)  # replicated, all the same


@pytest.fixture
def off(fake, monkeypatch):
    """Turn tofu on as with TOFU_HYBRIDIZE=0."""
    monkeypatch.setenv("TOFU_HYBRIDIZE", "0")
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    yield
    tofu.gluon.disable()


def test_an_eager_block_is_named(off):
    net = make_net(hybrid=False)
    with pytest.warns(messages.TofuWarning) as seen:
        found = train(net=net)[:2]
    assert warnings_of(seen) == [
        "tofu: net is not hybridized and runs eagerly, not partitioned; "
        "call its hybridize() before training, or unset TOFU_HYBRIDIZE"
    ]
    assert_same(found, plainly(lambda: train(net=make_net(hybrid=False))[:2]))


class Plain(gluon.Block):
    """A block that cannot be hybridized, around one that can."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


def test_a_plain_block_around_an_eager_one_is_named(off):
    net = Plain(nn.Dense(4, in_units=10), prefix="plain_")
    net.initialize()
    with (
        autograd.record(),
        pytest.warns(messages.TofuWarning, match="plain is not hybridized.*make it.*HybridBlock"),
    ):
        net(data())


def test_a_plain_block_around_a_hybridized_one_is_fine(on):
    def run():
        net = Plain(nn.Dense(6, in_units=10, prefix="inner_"), prefix="plain_")
        started(net)
        return train(net=net)[:2], is_tiled(net.inner.weight)

    found, expected = run(), plainly(run)
    assert_same(found[0], expected[0])
    assert (found[1], expected[1]) == (True, False)


class Weighted(Plain):
    """A plain block with a parameter of its own, which trains eagerly."""

    def __init__(self, inner, **kwargs):
        super().__init__(inner, **kwargs)
        self.scale = self.params.get("scale", shape=(6,), init="ones")

    def forward(self, x):
        return super().forward(x) * self.scale.data()


def test_a_block_that_trains_in_part_tells_its_share_in_one_line(on, capsys):
    tofu.gluon.enable(workers=2, device="cpu", log="info")
    net = started(
        Weighted(nn.Dense(6, in_units=10, flatten=False, prefix="inner_"), prefix="weighted_")
    )
    earlier = mx.nd.ones((12, 10))
    earlier.attach_grad()
    with autograd.record(), pytest.warns(messages.TofuWarning) as seen:
        net(earlier * 2)  # an operator of the script, not of the net
    (text,) = warnings_of(seen)
    assert text.startswith(
        "tofu: weighted (inner inside it, 1 of its 3 operators, 91.7% of its 72 parameters) over 2"
    )
    assert text.endswith("; to have the rest partitioned, make it, or the part of it that trains, "
                         "a HybridBlock")  # fmt: skip
    assert not told_lines(capsys)


def test_eager_prediction_is_not_worth_a_word(on):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_net(hybrid=False)(data())
    assert not [w for w in caught if issubclass(w.category, messages.TofuWarning)]


def test_hybridizing_again_plans_again(two):
    net = make_net()
    net(data())
    count = len(two.graphs)
    net.hybridize(static_alloc=True)
    net(data())
    assert len(two.graphs) > count
    assert set(two.pins[-1]) == set(net.collect_params())


def test_faults_of_a_backward_pass_reach_the_script(on):
    def program(phases, contexts, arrays):
        made = fakes.Program(phases, contexts, arrays)
        made.backward = lambda *args, **options: {}["lost"]
        return made

    with fakes.using(fakes.backend(), program=program):
        net = make_net()
        with autograd.record():
            loss = net(data()).sum()
        with pytest.raises(KeyError, match="lost"):
            loss.backward()


def test_recorded_functions_honour_every_request():
    """mx.autograd.Function stops at the first null request and never adds."""
    arrays = [mx.nd.ones((2,)) for _ in range(3)]
    for array, request in zip(arrays, ("null", "write", "add")):
        array.attach_grad(grad_req=request)
    arrays[2].grad[:] = 10

    def backward(heads, gradients, requests):
        for gradient, request in zip(gradients, requests):
            tofu.gluon.session.autograd_hooks.write_gradient(gradient, heads[0] * 3, request)

    with autograd.record():
        output = mx.nd.zeros((2,))
        function = record_function(arrays, [output], backward)
        loss = output * 2
    loss.backward()
    assert_same(arrays[1].grad, mx.nd.array([6, 6]))
    assert_same(arrays[2].grad, mx.nd.array([16, 16]))
    assert not function.dropped()
    del output, loss
    wait_until(function.dropped)


def test_running_statistics_do_not_depend_on_threads(on):
    def run():
        net = make_net()
        for _ in range(3):
            with autograd.record():
                loss = sum(((net(data() * i)) ** 2).sum() for i in range(1, 5))
            loss.backward()
        return weights(net)["net_batchnorm0_running_mean"].tobytes()

    assert len({run() for _ in range(5)}) == 1


@pytest.mark.parametrize("hybrid", [True, False])
def test_data_on_another_context_is_an_error(on, hybrid):
    net = make_net(hybrid)
    with autograd.record():
        net(data())
        with pytest.raises(RuntimeError, match=r"not initialized on context cpu\(1\)"):
            net(data().as_in_context(mx.cpu(1)))


def test_an_error_of_mxnet_comes_without_a_line_of_tofu(two):
    """A warning that the block runs serially would end this test."""
    net = nn.Dense(4, in_units=3, prefix="narrow_")
    started(net)
    with pytest.raises(mx.MXNetError, match="Shape inconsistent"):
        net(data())


@pytest.mark.parametrize("hybrid", [True, False])
def test_a_wrong_type_prints_nothing(hybrid, two, capsys):
    """MXNet's Symbol.infer_type prints its arguments; calls of blocks do not."""
    net = make_net(hybrid)
    with autograd.record():
        net(data())
    for mode in (autograd.record, autograd.predict_mode):
        with mode(), pytest.raises(mx.MXNetError, match="Incompatible attr"):
            net(data().astype("float64")).wait_to_read()
    assert capsys.readouterr().out == ""

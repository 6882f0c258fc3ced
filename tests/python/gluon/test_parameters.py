"""To a script, tiled parameters behave like plain ones."""

import copy
import gc
import pickle
import sys
import threading
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu._core import Changed
from tofu.gluon.session.session import active
from tofu.gluon.training import views
from tofu.gluon.training.parameter import is_tiled

from .models import assert_same, data, fit, make_net, plainly, train, weights


@pytest.fixture
def net(two):
    """A net with tiled parameters after a little training."""
    net = make_net()
    train(net=net, steps=2)
    assert is_tiled(weight(net))
    return net


def weight(net):
    return net[0].weight


def trained(change=None, steps=3):
    """Weights after `change(net, trainer)` between two trainings."""
    net = make_net()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    losses = fit(net, trainer)
    result = change(net, trainer) if change is not None else None
    return losses, fit(net, trainer, steps), weights(net), result


def assert_changes_agree(change):
    assert_same(trained(change)[:3], plainly(trained, change)[:3])


def test_no_worker_keeps_a_whole_copy(net):
    parameter = weight(net)
    tiles = parameter._tofu.variables
    assert [tile.context for tile in tiles] == [mx.cpu(0), mx.cpu(1)]
    assert sum(tile.size for tile in tiles) == parameter.data().size
    assert [gradient.shape for gradient in parameter._tofu.gradients.keep()] == [
        t.shape for t in tiles
    ]


def test_an_interrupt_while_a_parameter_is_divided_leaves_it_whole(two, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    net = make_net()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    with monkeypatch.context() as patch:
        patch.setattr("tofu.gluon.training.parameter._mark_zeros", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fit(net, trainer, 1)
    assert not is_tiled(weight(net)) and weight(net).data().shape == (12, 10)
    losses = fit(net, trainer)
    assert is_tiled(weight(net))
    assert_same((losses, weights(net)), plainly(train)[:2])


def test_contexts_are_the_scripts(net):
    parameter = weight(net)
    assert parameter.list_ctx() == [mx.cpu(0)]
    assert parameter.data().context == parameter.data(mx.cpu(0)).context == mx.cpu(0)
    with pytest.raises(RuntimeError, match="not initialized on context cpu"):
        parameter.data(mx.cpu(1))
    assert set(net.collect_params().list_ctx()) == {mx.cpu(0)}


def test_the_class_says_what_it_is(net):
    parameter = weight(net)
    assert isinstance(parameter, gluon.Parameter)
    assert repr(parameter) == "Parameter net_dense0_weight (shape=(12, 10), dtype=float32)"


def test_arrays_are_of_the_class_that_mxnet_gives(net):
    parameter = weight(net)
    with autograd.record():
        recorded = parameter.data()
    arrays = [recorded, parameter.data(), parameter.grad(), parameter.data().grad]
    arrays += parameter.list_data() + parameter.list_grad()
    assert {type(array) for array in arrays} == {mx.nd.NDArray}


def test_a_value_is_the_same_array_while_the_script_holds_it(net):
    held, other = weight(net).data(), weight(net).grad()
    net(data())
    assert weight(net).data() is held
    assert weight(net).grad() is other


def test_a_value_knows_its_gradient_while_its_parameter_lives(net):
    net(data())
    layer = gluon.nn.Dense(4, in_units=10, prefix="other_")
    layer.initialize()
    layer.hybridize()
    layer(data())
    value = layer.weight.data()
    assert value.grad.shape == (4, 10)
    reference = weakref.ref(layer.weight)
    del layer
    gc.collect()
    assert reference() is None  # the value does not keep it alive
    assert value.grad is None
    assert value.shape == (4, 10)


def overwrite(net, _trainer):
    for parameter in net.collect_params().values():
        parameter.data()[:] = parameter.data() * 0.5


def test_writes_into_values(two):
    assert_changes_agree(overwrite)


def test_writes_are_seen_by_every_reader(net, tmp_path):
    parameter = weight(net)
    parameter.data()[:] = 3
    assert all((value.asnumpy() == 3).all() for value in parameter.list_data())
    parameter.data()[0] = 5
    assert (parameter.data()[0].asnumpy() == 5).all()
    assert (parameter.data()[1].asnumpy() == 3).all()
    net.save_parameters(str(tmp_path / "net"))
    assert (mx.nd.load(str(tmp_path / "net"))["0.weight"][0].asnumpy() == 5).all()


def hold(net, trainer):
    held = weight(net).data()
    fit(net, trainer, 2)
    after = held.asnumpy()
    held[:] = 1
    return after, weight(net).data()


def test_held_values_follow_and_write(two):
    found, expected = trained(hold), plainly(trained, hold)
    assert_same(found, expected)


SHARING = {
    "reshape": lambda array: array.reshape((-1,)),
    "row": lambda array: array[3],
    "slice": lambda array: array[2:5],
    "slice of a reshape": lambda array: array.reshape((-1,))[7:],
    "detach": lambda array: array.detach(),
    "numpy": lambda array: array.as_np_ndarray(),
    "another row": lambda array: array[0].reshape((2, -1))[1],
}


@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING)
def test_arrays_that_share_memory_follow_and_write(two, share):
    def hold_parts(net, trainer):
        value, gradient = share(weight(net).data()), share(weight(net).grad())
        fit(net, trainer, 2)
        after = [value.asnumpy(), gradient.asnumpy()]
        value[:] = 1
        fit(net, trainer, 1)
        return [*after, value.asnumpy(), weight(net).data()]

    assert_same(trained(hold_parts), plainly(trained, hold_parts))


def test_memory_that_nothing_shares_is_freed(net):
    part = weight(net).data()[1]
    net(data())
    assert active().state.views
    part.wait_to_read()
    del part
    mx.nd.waitall()
    net(data())
    assert not active().state.views


def norm_over_contexts(net):
    """Clip as GluonNLP does: of each parameter, take the array of one context."""
    params = [p for p in net.collect_params().values() if p.grad_req != "null"]
    contexts = len(params[0].list_grad())
    chosen = [p.list_grad()[i % contexts] for i, p in enumerate(params)]
    norm = sum(float((g**2).sum().asscalar()) for g in chosen) ** 0.5
    for parameter in params:
        assert len(parameter.list_data()) == len(parameter.list_grad()) == contexts
        for value, gradient in zip(parameter.list_data(), parameter.list_grad()):
            assert value.shape == gradient.shape == parameter.shape
            assert value._fresh_grad
            gradient *= min(1.0, 1.0 / norm)


def test_lists_are_of_the_scripts_contexts(two):
    found = train(after_backward=norm_over_contexts)[:2]
    assert_same(found, plainly(train, after_backward=norm_over_contexts)[:2])


def means_of_lists(net, trainer):
    values = [np.mean([w.mean().asscalar() for w in weight(net).list_data()])]
    held = weight(net).list_data()
    fit(net, trainer, 1)
    held[0][:] *= 0.5
    return [*values, held[0].asnumpy(), sum(g.norm().asscalar() for g in weight(net).list_grad())]


def test_means_over_lists(two):
    assert_same(trained(means_of_lists), plainly(trained, means_of_lists))


def watched(use):
    """Train while another thread uses a weight."""
    net, stop, found = make_net(), threading.Event(), set()
    train(net=net, steps=1)

    def watch():
        while not stop.is_set():
            found.add(use(weight(net)))

    thread, interval = threading.Thread(target=watch), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        train(net=net, steps=20)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    return weights(net), found


READING = {
    "data": lambda parameter: parameter.data().shape,
    "list": lambda parameter: parameter.list_data()[0].shape,
    "value": lambda parameter: len(parameter.data().asnumpy()),
    "saved": lambda parameter: parameter._reduce().shape,
    "row": lambda parameter: parameter.data()[1].asnumpy().shape,
}


@pytest.mark.parametrize("use", READING.values(), ids=READING)
def test_a_thread_that_reads_changes_nothing(two, use):
    assert_same(watched(use)[0], plainly(watched, use)[0])


def test_only_the_thread_that_traces_peeks(net):
    shapes = []
    with Changed(active().state.depth, peeking=True):
        thread = threading.Thread(target=lambda: shapes.append(weight(net).data().shape))
        thread.start()
        thread.join()
    assert shapes == [(12, 10)]


def test_an_update_keeps_no_copy_that_was_read_before_it(net, monkeypatch):
    """A thread reads a weight while a Trainer updates it; a later call writes no old copy back."""
    trainer, read = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    with autograd.record():
        (net(data()) ** 2).sum().backward()
    thread = threading.Thread(target=lambda: read.append(weight(net).data()))
    original = views.refresh

    def refresh(all_views):
        thread.start()
        thread.join(0.2)
        assert not read  # it waits for the update
        original(all_views)

    monkeypatch.setattr(views, "refresh", refresh)
    before = weight(net).data().asnumpy()
    trainer.step(1)
    thread.join()
    assert (read[0].asnumpy() != before).any()


def test_copies_that_the_script_drops_are_freed(net):
    weight(net).data()
    mx.nd.waitall()  # operators that are under way share the memory
    net(data())
    assert not active().state.views


def clip(net):
    gradients = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]
    gluon.utils.clip_global_norm(gradients, 0.1)


def test_clipping_gradients(two):
    found = train(after_backward=clip)[:2]
    assert_same(found, plainly(train, after_backward=clip)[:2])


def held_gradients():
    net = make_net()
    net(data())
    held = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]

    def clip_held(_net):
        gluon.utils.clip_global_norm(held, 0.1)

    return train(net=net, after_backward=clip_held)[:2]


def test_gradients_held_over_steps(two):
    assert_same(held_gradients(), plainly(held_gradients))


def scale(net):
    for parameter in net.collect_params().values():
        if parameter.grad_req != "null":
            parameter.grad()[:] *= 0.5


def test_scaling_gradients(two):
    assert_same(train(after_backward=scale)[:2], plainly(train, after_backward=scale)[:2])


def test_gradient_of_a_value_is_the_parameters(net):
    assert_same(weight(net).data().grad, weight(net).grad())


def test_zero_grad(net):
    with autograd.record():
        net(data()).sum().backward()
    weight(net).grad()[:] = 1
    net.collect_params().zero_grad()
    assert not weight(net).grad().asnumpy().any()
    weight(net).grad()[:] = 1
    weight(net).zero_grad()
    assert not weight(net).grad().asnumpy().any()


def test_set_data(two):
    values = mx.nd.array(np.random.RandomState(0).uniform(size=(12, 10)))
    assert_changes_agree(lambda net, _: weight(net).set_data(values))
    assert_changes_agree(lambda net, _: weight(net).set_data(values.astype("float64")))


def test_set_data_while_recording_is_refused_as_in_mxnet(net):
    """An array of Python's values is no operator's result, so MXNet takes that."""

    def set_to(factor, values):
        with autograd.record():
            factor.set_data(values)
        return factor.data().asnumpy()

    values, before = mx.nd.full((12, 10), 3), weight(net).data().asnumpy()
    with pytest.raises(mx.MXNetError, match="Assigning to NDArrays that are already in a comp"):
        set_to(weight(net), values)
    assert weight(net).data().asnumpy().tobytes() == before.tobytes()
    assert (set_to(weight(net), values.asnumpy()) == 3).all()
    assert (set_to(net[1].running_mean, mx.nd.full(12, 3)) == 3).all()


def test_wrong_arguments_are_errors_of_mxnets_functions(net):
    """Python names the function since 3.10."""
    for call in (
        lambda: net(data(), mask=None),
        lambda: net[0].weight.set_data(),
        lambda: net[0].weight.grad(1, 2),
    ):
        with pytest.raises(TypeError) as found:
            call()
        with pytest.raises(TypeError) as expected:
            plainly(call)
        assert str(found.value) == str(expected.value)


def test_set_data_of_another_shape_is_refused(net):
    with pytest.raises(AssertionError, match="incompatible"):
        weight(net).set_data(mx.nd.zeros((3, 3)))


def test_forced_initialization(two):
    def again(net, _trainer):
        mx.random.seed(3)
        np.random.seed(3)
        net.initialize(mx.init.Uniform(0.1), force_reinit=True)

    assert_changes_agree(again)


def test_initialization_without_force_is_ignored(net):
    before = weights(net)
    with pytest.warns(UserWarning, match="already initialized"):
        weight(net).initialize()
    assert_same(weights(net), before)


def test_reset_context(two):
    def move(net, _trainer):
        net.collect_params().reset_ctx(mx.cpu(0))

    assert_changes_agree(move)


def test_setting_attributes(two):
    def scale_rates(net, _trainer):
        net.collect_params().setattr("lr_mult", 0.5)

    assert_changes_agree(scale_rates)


def test_parameter_files_are_those_of_plain_mxnet(two, tmp_path):
    def save(name):
        net = make_net()
        net(data())
        net.save_parameters(str(tmp_path / name))
        net.collect_params().save(str(tmp_path / f"{name}.dict"))
        return [(tmp_path / each).read_bytes() for each in (name, f"{name}.dict")]

    assert save("found") == plainly(save, "expected")


def test_files_of_plain_mxnet_are_loaded(two, tmp_path):
    path = str(tmp_path / "net")

    def save():
        net = make_net()
        train(net=net)
        net.save_parameters(path)
        return net(data())

    expected = plainly(save)
    net = make_net()
    train("adam", {"learning_rate": 0.1}, net=net)
    net.load_parameters(path)
    assert is_tiled(weight(net))
    assert_same(net(data()), expected)
    other = make_net()
    other.load_parameters(path, ctx=mx.cpu(0))
    assert_same(other(data()), expected)


def test_loading_another_type(two, tmp_path):
    path = str(tmp_path / "net")

    def run():
        net = make_net()
        net(data())
        net.save_parameters(path)
        net.cast("float64")
        net(data().astype("float64"))
        net.load_parameters(path, cast_dtype=True)
        return net(data().astype("float64")), weight(net).data()

    found, expected = run(), plainly(run)
    assert found[1].dtype == np.float64
    assert_same(found, expected)


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("whole_net", [False, True])
def test_cast_there_and_back(two, between, whole_net):
    """Programs that were bound before the first cast must not be used after the second.

    If the net itself is cast, MXNet traces it again; if only its parameters are, it does not.
    """

    def run():
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        losses = fit(net, trainer)
        for dtype in ("float64", "float32"):
            if whole_net:
                net.cast(dtype)
            else:
                for parameter in net.collect_params().values():
                    parameter.cast(dtype)
            if between:
                net(data().astype(dtype))
        return losses, fit(net, trainer), weights(net)

    assert_same(run(), plainly(run))


def test_parameter_dictionaries_load(net, tmp_path):
    path = str(tmp_path / "dict")
    before = weights(net)
    net.collect_params().save(path)
    train(net=net, steps=2)
    net.collect_params().load(path)
    assert_same(weights(net), before)


def test_export_and_import(net, tmp_path):
    net.export(str(tmp_path / "net"))
    saved = mx.nd.load(str(tmp_path / "net-0000.params"))
    assert_same(saved["arg:net_dense0_weight"], weight(net).data())
    assert_same(saved["aux:net_batchnorm0_running_mean"], net[1].running_mean.data())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_are_plain_parameters(net, duplicate):
    parameter = net[1].running_mean
    parameter._trainer = None
    twin = duplicate(parameter)
    assert type(twin) is gluon.Parameter
    assert_same(twin.data(), parameter.data())
    twin.set_data(mx.nd.ones(12))
    assert not (parameter.data().asnumpy() == 1).all()


class Scaled(gluon.HybridBlock):
    """A constant that operators read, and set_data changes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.factor = self.params.get_constant("factor", np.full((4, 8), 3.0, "float32"))
            self.dense = nn.Dense(8, in_units=8)

    def hybrid_forward(self, F, x, factor):
        return self.dense(x) * factor


def constants():
    net = Scaled(prefix="scaled_")
    net.initialize(mx.init.One())
    net.hybridize()
    found = []
    for value in (3, 5):
        net.factor.set_data(mx.nd.full((4, 8), value))
        with autograd.record():
            loss = (net(mx.nd.ones((4, 8))) ** 2).sum()
        loss.backward()
        found.append((loss, net.dense.weight.grad()))
    return found, net.factor.grad_req


# MXNet names the initializer of a constant after its address, which may be used again.
@pytest.mark.filterwarnings("ignore:.*overriding existing initializer")
def test_constants(two):
    found, expected = constants(), plainly(constants)
    assert_same(found[0], expected[0])
    assert found[1] == "null"


def eager():
    net = make_net()
    losses = train(net=net, steps=2)[0]
    parameter = weight(net)
    with autograd.record():
        loss = (parameter.data() ** 2).sum() + (net(data()) ** 2).sum()
    loss.backward()
    return losses, loss, parameter.grad()


def test_eager_use_of_tiled_parameters(two):
    assert_same(eager(), plainly(eager))


def test_eager_gradients_reach_replicas(fake):
    """If the dimension does not divide, every worker's copy gets the gradient."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    net = nn.Dense(3, in_units=5, prefix="odd_")
    net.initialize(mx.init.One())
    net.hybridize()
    net(mx.nd.ones((2, 5)))
    with autograd.record():
        (net.weight.data() * 2).sum().backward()
    assert [(g.asnumpy() == 2).all() for g in net.weight._tofu.gradients.keep()] == [True, True]
    tofu.gluon.disable()


def test_disabling_keeps_what_was_written(net):
    """Keeps the last writes to values and gradients, which no call has read since."""
    with autograd.record():
        loss = (net(data()) ** 2).sum()
    loss.backward()
    value, gradient = net[0].weight.data(), net[3].weight.grad()
    value[:] = 3
    net[0].bias.data()[:] = 4  # and the copy is dropped
    gradient[:] = 5
    tofu.gluon.disable()
    assert (net[0].weight.data().asnumpy() == 3).all()
    assert (net[0].bias.data().asnumpy() == 4).all()
    assert (net[3].weight.grad().asnumpy() == 5).all()


def test_disabling_restores_plain_parameters(net):
    before, losses = weights(net), train(net=net, steps=2)[0]
    after = weights(net)
    tofu.gluon.disable()
    assert type(weight(net)) is gluon.Parameter
    assert weight(net).list_data()[0].shape == (12, 10)
    assert_same(weights(net), after)
    assert len(losses) == 3
    assert before.keys() == after.keys()
    train(net=net, steps=2)

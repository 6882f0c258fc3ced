"""Runs of plans that divide a weight's states or gradient in other ways than the weight.

ZeRO's stages 1 and 2 do so with whole weights (docs/plans.md). The fakes also divide in ways that
no plan would, and with them all results are bit for bit those of plain MXNet.
"""

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import pickle

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.errors import MemoryLimitError
from tofu.gluon.session import backend
from tofu.gluon.session.session import active, looking
from tofu.gluon.training.grouped_updates import calls_for
from tofu.gluon.training.parameter import is_tiled
from tofu.mx.run import transfer
from tofu.planner.search import plan_graph
from tofu.plans import SearchOptions
from tofu.plans import file as plan_file

from . import fakes
from .models import assert_same, data, fit, make_net, plainly, started, train, weights
from .test_gradients import Steps, after_each_stage, lent, two_trainers, unused

# pytest.warns lets all other warnings pass, from anywhere.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

STAGES = ["stage 1", "stage 2"]
OTHERS = [kind for kind in fakes.KINDS if kind not in ("alike", *STAGES)]


MODES = ["zero-1", "zero-2"]


@contextlib.contextmanager
def dividing(kind, workers):
    """Turn tofu on with a search mode, or a fake that divides gradients and states."""
    is_mode = kind in MODES
    with fakes.using(backend.own() if is_mode else fakes.backend(kind)):
        options = {"search": kind} if is_mode else {"allow_replication": True}
        tofu.gluon.enable(workers=workers, device="cpu", log="quiet", **options)
        yield
        tofu.gluon.disable()


@pytest.fixture(
    params=[
        *itertools.product(STAGES, (2, 4)),
        *itertools.product(OTHERS, (4,)),
        *zip(MODES, (2, 4)),
    ],
    ids=lambda each: f"{each[0]} over {each[1]}",
)
def on(request):
    """Turn tofu on with one of these fakes."""
    with dividing(*request.param):
        yield


OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.1}),
    "momentum": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
    "adam": ("adam", {"learning_rate": 0.05}),
    "nag": ("nag", {"learning_rate": 0.05, "momentum": 0.9}),
    "clipping": ("adam", {"learning_rate": 0.05, "clip_gradient": 0.01}),
}
NORMS = ["lamb", "lars", "lbsgd"]


def dense(dtype):
    """Dense layers with some dimensions that four workers divide, and some that they do not."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(12, activation="relu"), nn.Dense(8), nn.Dense(6))
    started(net)
    net.cast(dtype)
    return net


def steps(net, trainer, dtype="float32", count=3, batch=12):
    losses = []
    for number in range(count):
        with autograd.record():
            loss = (net(data(batch).astype(dtype) * (1 + number)) ** 2).mean()
        loss.backward()
        trainer.step(1)
        losses.append(loss.asnumpy())
    return losses


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps(name, dtype, on):
    def run():
        net = dense(dtype)
        optimizer, options = OPTIMIZERS[name]
        trainer = gluon.Trainer(net.collect_params(), optimizer, dict(options))
        return steps(net, trainer, dtype), weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_whole_tensors(name, on):
    """Tiles add up squares in another order."""

    def run():
        net = dense("float64")
        trainer = gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.05})
        return steps(net, trainer, "float64"), weights(net)

    assert_same(run(), plainly(run), rounded=True)


def test_an_optimizer_of_whole_tensors(on):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), "nadam", {"learning_rate": 0.05})
        return steps(net, trainer), weights(net)

    expected = plainly(run)
    with pytest.warns(UserWarning, match="does not update every element"):
        found = run()
    assert_same(found, expected)


def test_schedules(on):
    def run():
        schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.2)
        found = train("sgd", {"lr_scheduler": schedule, "momentum": 0.9})
        return found[:2]

    assert_same(run(), plainly(run))


class Product(gluon.HybridBlock):
    """A product in half precision that MXNet's CPU operators can differentiate."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.weight = self.params.get("weight", shape=(4, 8), dtype="float16")

    def hybrid_forward(self, F, x, weight):
        return x * weight


@pytest.mark.parametrize("momentum", [0, 0.9])
def test_half_precision_with_masters(momentum, on):
    def run():
        net = started(Product(prefix="half_"))
        options = {"learning_rate": 1e-4, "momentum": momentum, "multi_precision": True}
        trainer = gluon.Trainer(net.collect_params(), "sgd", options)
        for _ in range(5):
            with autograd.record():
                loss = (net(mx.nd.ones((4, 8), dtype="float16")) ** 2).sum()
            loss.backward()
            trainer.step(4)
        return weights(net)

    assert_same(run(), plainly(run))


def convolutions():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(48, 3, padding=1, activation="relu"), nn.BatchNorm(), nn.Dense(4))
    return started(net)


def test_weights_in_the_blocked_layout(on):
    def run():
        net = convolutions()
        images = mx.nd.random.normal(shape=(4, 3, 8, 8))
        net(images).wait_to_read()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.05})
        for _ in range(3):
            with autograd.record():
                loss = (net(images) ** 2).mean()
            loss.backward()
            trainer.step(1)
            net(images).wait_to_read()  # oneDNN keeps the weights in blocks from here on
        return weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("scenario", [after_each_stage, unused, two_trainers])
def test_gradients_read_as_without_tofu(scenario, on):
    assert_same(scenario(), plainly(scenario))


def test_gradients_stay_lent(on):
    made = Steps()
    for _ in range(3):
        made.forward().backward()
        made.read()
        assert all(lent(made.parameters))
        made.trainer.step(1)


def listed():
    """The script keeps one gradient's tiles, and reads other gradients as wholes."""
    made, found = Steps(), []
    for step in range(3):
        made.forward().backward()
        if step == 1:
            made.parameters[0].list_grad()
        found.append(made.read())
        made.trainer.step(1)
    return found, weights(made.net)


def test_listed_gradients(on):
    assert_same(listed(), plainly(listed))


def test_writes_to_listed_gradients_count(on):
    def run():
        made = Steps()
        for _ in range(3):
            made.forward().backward()
            for gradient in made.parameters[0].list_grad():
                gradient *= 0.5
            made.trainer.step(1)
        return made.read(), weights(made.net)

    assert_same(run(), plainly(run))


def test_clipping_whole_gradients(on):
    def run():
        def clip(net):
            found = [p.grad() for p in net.collect_params().values() if p.grad_req != "null"]
            gluon.utils.clip_global_norm(found, 0.01)

        return train(after_backward=clip)[:2]

    assert_same(run(), plainly(run))


def test_clipping_keeps_gradients_lent(on):
    made = Steps()
    made.forward().backward()
    gluon.utils.clip_global_norm([p.grad() for p in made.parameters], 0.01)
    made.trainer.step(1)
    assert all(lent(made.parameters))


def accumulated():
    made, found = Steps("add"), []
    for step in range(2):
        for factor in (1, 2):
            made.forward(factor + step).backward()
        found.append(made.read())
        made.trainer.step(1)
        made.net.collect_params().zero_grad()
    return found, weights(made.net)


def test_gradients_that_are_added_up(on):
    assert_same(accumulated(), plainly(accumulated))


def two_calls():
    """Train with gradients of two parts."""
    made, found = Steps(), []
    for _ in range(2):
        with autograd.record():
            loss = (made.net(data()) ** 2).mean() + (made.net(data() * 2) ** 2).mean()
        loss.backward()
        found.append(made.read())
        made.trainer.step(1)
    return found, weights(made.net)


def test_gradients_of_several_parts(on):
    assert_same(two_calls(), plainly(two_calls))


def of_autograd():
    made = Steps()
    made.step()
    with autograd.record():
        loss = (made.net(data()) ** 2).mean()
    return autograd.grad(loss, [p.data() for p in made.parameters])


def test_autograd_grad(on):
    assert_same(of_autograd(), plainly(of_autograd))


def penalized():
    """Autograd writes one part of a gradient to tiles, and the program delivers the other."""
    made = Steps()
    for _ in range(2):
        with autograd.record():
            loss = (made.net(data()) ** 2).mean()
            for parameter in made.parameters:
                loss = loss + (parameter.data() ** 2).sum().as_in_context(loss.context)
        loss.backward()
        made.trainer.step(1)
    return made.read(), weights(made.net)


def test_penalties_on_weights(on):
    assert_same(penalized(), plainly(penalized))


def test_tiles_of_the_value_in_a_graph(on):
    """A script differentiates with respect to tiles that it read itself."""
    made = Steps()
    tiles = made.parameters[0]._data
    made.parameters[0]._tofu.gradients.keep()
    before = made.forward()
    before.backward()
    expected = [tile.grad.asnumpy() for tile in tiles]
    with autograd.record():
        losses = [(made.net(data()) ** 2).mean(), (tiles[0] * 3).sum()]
    autograd.backward(losses)
    boxes = made.parameters[0]._tofu.layout.boxes
    for number, (tile, gradient) in enumerate(zip(tiles, expected)):
        added = 3 if number == 0 else 0
        np.testing.assert_array_equal(tile.grad.asnumpy(), gradient + added)
        assert tile.shape == boxes[number].shape


def test_overflow_skips_the_step(on):
    class Scaler:
        def has_overflow(self, params):
            values = [p._grad[0].asnumpy() for p in params if p._grad is not None]
            return not all(np.isfinite(value).all() for value in values)

    made = Steps()
    made.step()
    made.trainer._amp_loss_scaler = Scaler()
    before = weights(made.net)
    made.forward(math.inf).backward()
    made.trainer.step(1)
    after = weights(made.net)
    names = [parameter.name for parameter in made.parameters]
    assert_same({n: after[n] for n in names}, {n: before[n] for n in names})
    assert all(lent(made.parameters))


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_state_files_are_those_of_plain_mxnet(name, on, tmp_path):
    def save(file):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS[name])
        steps(net, trainer)
        trainer.save_states(str(tmp_path / file))
        return pickle.loads((tmp_path / file).read_bytes())

    found, expected = save("found"), plainly(save, "expected")
    assert_same(found[0], expected[0])
    assert found[1]._all_index_update_counts == expected[1]._all_index_update_counts


def test_loading_states_in_the_middle(on, tmp_path):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer)
        trainer.save_states(str(tmp_path / "states"))
        steps(net, trainer, count=2)
        trainer.load_states(str(tmp_path / "states"))
        return steps(net, trainer), weights(net)

    assert_same(run(), plainly(run))


def test_a_smaller_last_batch_and_a_prediction(on):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        found = [steps(net, trainer), net(data(4)).asnumpy(), steps(net, trainer, batch=8)]
        return found, weights(net)

    assert_same(run(), plainly(run))


def test_a_prediction_before_training(on):
    """The first graph has no update, so the second one says how states are divided."""

    def run():
        net = dense("float32")
        net(data())
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        return steps(net, trainer), weights(net)

    assert_same(run(), plainly(run))


@pytest.mark.parametrize("kind", [*STAGES, *OTHERS, *MODES])
def test_disabling_in_the_middle(kind):
    def run(between):
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        found = fit(net, trainer, 2)
        between()
        return found + fit(net, trainer, 2), weights(net)

    with dividing(kind, 2):
        found = run(tofu.gluon.disable)
        assert_same(found, run(lambda: None))


@pytest.mark.parametrize("kind", [*STAGES, *OTHERS, *MODES])
def test_a_gradient_survives_disabling_and_copies(kind):
    with dividing(kind, 2):
        made = Steps()
        made.forward().backward()
        expected = made.read()
        copied = [copy.deepcopy(parameter).grad() for parameter in made.parameters]
        assert all(lent(made.parameters))
        tofu.gluon.disable()
        assert_same(copied, expected)
        assert_same(made.read(), expected)


def test_new_values_and_types(on):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        found = [steps(net, trainer)]
        net[0].weight.set_data(net[0].weight.data() * 0.5)
        found.append(steps(net, trainer))
        net.cast("float64")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        return [*found, steps(net, trainer, "float64")], weights(net)

    assert_same(run(), plainly(run))


def state_arrays(state):
    if isinstance(state, (tuple, list)):
        return [array for each in state for array in state_arrays(each)]
    return [] if state is None else [state]


def state_bytes(trainer):
    """The bytes of optimizer states on each worker."""
    return [
        sum(
            array.size * np.dtype(array.dtype).itemsize
            for state in updater.states.values()
            for array in state_arrays(state)
        )
        for updater in trainer._tofu.updaters
    ]


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("kind", [*STAGES, *MODES])
def test_workers_hold_parts_of_the_states(kind, workers):
    with dividing(kind, workers):
        net = started(nn.Dense(12, in_units=10, prefix="net_"))
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer)
        assert all(map(is_tiled, net.collect_params().values()))
        assert state_bytes(trainer) == [2 * 4 * (120 + 12) // workers] * workers


@pytest.mark.parametrize("kind", [*STAGES, *MODES])
def test_parts_of_matrices_are_views(kind, monkeypatch):
    """Updates of rows, and their gradients, take no memory of their own."""
    with dividing(kind, 2):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer)
        with autograd.record():
            loss = (net(data()) ** 2).mean()
        loss.backward()
        monkeypatch.setattr(mx.nd, "empty", None)
        monkeypatch.setattr(mx.nd, "slice", None)
        trainer.step(1)
        monkeypatch.undo()


def test_later_graphs_cut_states_alike():
    log = fakes.Log()
    with dividing("stage 2", 2), fakes.using(fakes.logged(fakes.backend("stage 2"), log)):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        steps(net, trainer, count=1)
        steps(net, trainer, count=1, batch=8)
        net(data())  # a prediction has no states
    first, second, third = log.pins
    assert not first
    assert second["net_dense0_weight"] == (-1,)
    assert second["net_dense0_weight:mean"] == second["net_dense0_weight:var"] == (0,)
    assert not any(":" in name for name in third)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_equal_in_double_precision(name, mode, workers):
    def run():
        net = dense("float64")
        optimizer, options = OPTIMIZERS[name]
        trainer = gluon.Trainer(net.collect_params(), optimizer, dict(options))
        return steps(net, trainer, "float64"), weights(net)

    expected, expected_weights = run()
    with dividing(mode, workers):
        found, found_weights = run()
    np.testing.assert_allclose(found, expected, 1e-12)
    for key, value in expected_weights.items():
        np.testing.assert_allclose(found_weights[key], value, 1e-12, 1e-14, err_msg=key)


@pytest.mark.parametrize("workers", [2, 4])
def test_the_second_stage_holds_parts_of_gradients(workers):
    with dividing("zero-2", workers):
        net = started(nn.Dense(12, in_units=10, prefix="net_"))
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        steps(net, trainer)
        tiles, _ = net.weight._tofu.gradients.in_place()
        assert [tile.shape for tile in tiles] == [(12 // workers, 10)] * workers
        assert [tile.shape for tile in net.weight._tofu.tiles] == [(12, 10)] * workers


@pytest.mark.parametrize("kind", ["stage 2", "zero-2"])
def test_without_states_workers_update_their_parts_of_the_gradient(kind):
    with dividing(kind, 2):
        net = dense("float32")
        steps(net, gluon.Trainer(net.collect_params(), *OPTIMIZERS["sgd"]), count=1)
        state = net[0].weight._tofu
        assert state.layout.boxes[0] == state.layout.boxes[1]  # whole on both
        rows, columns = state.layout.boxes[0].shape
        assert [box.shape for box in state.update_layout.boxes] == [(rows // 2, columns)] * 2


def first_problem(batch=12):
    """The training graph of a run with Adam."""
    found = []

    def stop(problem):
        found.append(dataclasses.replace(problem, name="net"))
        raise KeyboardInterrupt

    with dividing("zero-2", 2), looking(problem=stop):
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        with pytest.raises(KeyboardInterrupt):
            steps(net, trainer, batch=batch)
    return found[0]


def test_saved_plans(tmp_path):
    """A smaller batch has no saved plan, and its search would cut states like their weights."""

    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        return [steps(net, trainer), steps(net, trainer, batch=8)], weights(net), trainer

    expected = run()
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem(), SearchOptions("zero-2")))
    tofu.gluon.enable(plan=path, device="cpu", log="quiet", strict=True)
    found = run()
    assert_same(found[:2], expected[:2])
    sizes = [math.prod(array.shape) for array in found[1].values()]
    assert state_bytes(found[2]) == [2 * 4 * sum(sizes) // 2] * 2
    tofu.gluon.disable()


def test_a_later_saved_plan_may_cut_states_otherwise(tmp_path):
    def run():
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["adam"])
        return [steps(net, trainer, batch=batch) for batch in (12, 8, 12)], weights(net)

    expected = run()
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem(), SearchOptions("zero-2")))
    other = (("net_dense0_weight:mean", (1,)), ("net_dense0_weight:var", (1,)))
    plan_file.save(path, plan_graph(first_problem(8), SearchOptions("zero-2", pins=other)))
    tofu.gluon.enable(plan=path, device="cpu", log="quiet", strict=True)
    found = run()
    missing = active().state.plan_missing
    tofu.gluon.disable()
    assert not missing
    assert_same(found, expected)


def footprint_of_gradients(grad_req):
    """The memory of gradients, as predicted under a limit, and that of their parameters."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", search="zero-2", memory="1TiB")
    net = started(nn.Dense(512, in_units=512, use_bias=False, prefix="net_"))
    net.weight.grad_req = grad_req
    steps_on(net, mx.nd.ones((4, 512)))
    (found,) = active().state.footprints.values()
    tofu.gluon.disable()
    return found.plan.bytes_per_worker["gradients"], found.plan.bytes_per_worker["parameters"]


def steps_on(net, inputs):
    trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
    with autograd.record():
        loss = (net(inputs) ** 2).mean()
    loss.backward()
    trainer.step(1)
    loss.wait_to_read()


def test_gradients_that_are_added_up_count_whole():
    part, whole = footprint_of_gradients("write")
    assert part == whole // 2
    # The computed gradient, the same cut like the weight, and the array that it is added to.
    assert footprint_of_gradients("add") == (part + 2 * whole, whole)


def test_an_interrupted_update_leaves_the_same_weight_on_all_workers(monkeypatch):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", search="zero-2")
    net = started(nn.Dense(8, in_units=4, prefix="net_"))
    steps_on(net, mx.nd.ones((4, 4)))

    def interrupted(update):
        def of_worker(*args):
            update(*args)
            raise KeyboardInterrupt

        return of_worker

    def calls(*args):
        return [call._replace(update=interrupted(call.update)) for call in calls_for(*args)]

    monkeypatch.setattr("tofu.gluon.training.trainer.calls_for", calls)
    before = net.weight.data().asnumpy().copy()
    with pytest.raises(KeyboardInterrupt):
        steps_on(net, mx.nd.ones((4, 4)))
    first, second = (tile.asnumpy() for tile in net.weight._data)
    np.testing.assert_array_equal(first, second)
    assert (first != before).any()
    tofu.gluon.disable()


class WithSum(gluon.HybridBlock):
    """A product with the sum of some weights, each named by a letter."""

    def __init__(self, of, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            for name in of:
                setattr(self, name, self.params.get(name, shape=(8, 8)))

    def hybrid_forward(self, F, x, **weights):
        return F.dot(x, functools.reduce(operator.add, weights.values()))


def pinning(name, cuts):
    """tofu's own backend; graphs that have this tensor, and no other state, cut it so."""
    own = backend.own()

    def search(problem, *args, **options):
        states = [tensor for tensor in problem.graph.tensor_names if ":" in tensor]
        if states == [name]:
            problem = dataclasses.replace(problem, fixed={**problem.fixed, name: cuts})
        return own.search(problem, *args, **options)

    return dataclasses.replace(own, search=search)


def test_states_that_earlier_graphs_have_cut_in_contradictory_ways():
    """Two weights that are added up have the same gradient, so one plan cuts their states alike."""

    def run():
        net = started(WithSum("ab", prefix="net_"))
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS["momentum"])
        losses = []
        for of in ["a", "b", "ab", "ab", "a"]:
            block = WithSum(of, prefix="net_", params=net.collect_params())
            block.hybridize()
            with autograd.record():
                loss = (block(data(4)[:, :8]) ** 2).mean()
            loss.backward()
            trainer.step(1, ignore_stale_grad=True)
            losses.append(loss.asnumpy())
        return losses, weights(net), net

    expected = run()
    with fakes.using(pinning("net_b:mom", (1,))):
        tofu.gluon.enable(workers=2, device="cpu", log="quiet", search="zero-2", strict=True)
        found = run()
        states = found[2].a._tofu, found[2].b._tofu
        tofu.gluon.disable()
    assert [state.update.cuts for state in states] == [(0,), (1,)]
    assert_same(found[:2], expected[:2])


class Copies(list):
    """Counts the living lists of this kind, and the most at once."""

    now = most = 0

    def __init__(self, arrays):
        super().__init__(arrays)
        Copies.now += 1
        Copies.most = max(Copies.most, Copies.now)

    def __del__(self):
        Copies.now -= 1


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_copies_of_parts_last_for_one_call(name, monkeypatch):
    def counted(*args):
        return Copies(transfer.parts_of(*args))

    monkeypatch.setattr(Copies, "most", 0)
    monkeypatch.setattr("tofu.gluon.training.grouped_updates._ELEMENTS", 1)
    monkeypatch.setenv("MXNET_OPTIMIZER_AGGREGATION_SIZE", "1")
    with fakes.using(fakes.backend("crossed"), parts_of=counted):
        tofu.gluon.enable(workers=2, device="cpu", log="quiet", allow_replication=True)
        net = dense("float32")
        trainer = gluon.Trainer(net.collect_params(), *OPTIMIZERS[name])
        steps(net, trainer)
        tofu.gluon.disable()
    assert 1 <= Copies.most <= 2  # a weight's, and its gradient's


def test_a_second_graph_that_does_not_fit_says_so():
    """Its search without whole tensors would cut states like their weights."""
    tofu.gluon.enable(workers=4, device="cpu", log="quiet", memory="3MiB")
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(128, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(8))
    started(net)
    steps_on(net, mx.nd.ones((1024, 64)))
    state = net[0].weight._tofu
    assert state.update_layout.boxes != state.layout.boxes
    with pytest.raises(MemoryLimitError, match=r"no plan over 4 workers was found that fits"):
        steps_on(net, mx.nd.ones((16384, 64)))
    tofu.gluon.disable()

"""Blocks that were never hybridized: partitioned, or eager with the reason, never otherwise."""

import collections
import gc
import logging
import random
import types
import warnings
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import tofu.gluon
from tofu.errors import ConfigError
from tofu.gluon import messages, session, unhybridized
from tofu.gluon.parameter import TileState, is_tiled

from . import fakes
from .models import assert_same, batches, data, fit, make_net, plainly, started, train, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("error::tofu.gluon.messages.TofuWarning"),
]


@pytest.fixture
def on(fake):
    """Tofu on over two workers and a fake backend."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    yield
    tofu.gluon.disable()


class Net(gluon.HybridBlock):
    """Two layers, and what a test does in between."""

    def __init__(self, between=None, layers=6, **kwargs):
        super().__init__(**kwargs)
        self.between = between
        with self.name_scope():
            self.first = nn.Dense(12, activation="relu")
            self.norm = nn.BatchNorm()
            self.last = nn.Dense(layers)

    def hybrid_forward(self, F, x):
        hidden = self.norm(self.first(x))
        if self.between is not None:
            hidden = self.between(self, F, hidden)
        return self.last(hidden)


def net_with(between=None, prefix="net_", **attributes):
    net = Net(between, prefix=prefix)
    for name, value in attributes.items():
        setattr(net, name, value)
    return started(net, hybrid=False)


def trainer_of(net, **options):
    options = options or {"learning_rate": 0.1, "momentum": 0.9}
    return gluon.Trainer(net.collect_params(), "sgd", options)


def steps(net, count=2, before=None):
    """Losses of steps, with something done before each."""
    trainer, losses = trainer_of(net), []
    for number in range(count):
        if before is not None:
            before(net, number)
        losses += fit(net, trainer, 1)
    return losses


def tiled(net):
    return {name for name, p in net.collect_params().items() if is_tiled(p)}


def reasons(seen):
    return [str(w.message) for w in seen if issubclass(w.category, messages.TofuWarning)]


def graphs_for_training(log):
    # A loss, which has no parameters, is partitioned where its input is.
    return sum(bool(graph["gradients"] and graph["parameters"]) for graph in log.graphs)


# --- What is partitioned ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_net_that_was_never_hybridized_is_partitioned(workers, dtype):
    def run():
        net = make_net(hybrid=False)
        net.cast(dtype)
        trainer, losses = trainer_of(net), []
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        for inputs, label in batches():
            with autograd.record():
                loss = loss_of(net(inputs.astype(dtype)), label)
            loss.backward()
            trainer.step(len(inputs))
            losses += [loss, net(inputs.astype(dtype))]
        assert not net._active and net._cached_graph == () and net._cached_op is None
        return losses, weights(net), tiled(net)

    found, expected = run(), plainly(run)
    assert_same(found[:2], expected[:2])
    assert (found[2], expected[2]) == (set(found[1]), set())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("request_", ["write", "add"])
def test_training_equals_the_serial_run(two, optimizer, request_):
    def run():
        net = net_with()
        net.collect_params().setattr("grad_req", request_)
        net.norm.running_mean.grad_req = net.norm.running_var.grad_req = "null"

        def clear(net):
            if request_ == "add":
                net.collect_params().zero_grad()

        trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.01})
        losses = fit(net, trainer)
        clear(net)
        return losses, fit(net, trainer, 2), weights(net)

    assert_same(run(), plainly(run))


def chain():
    net = nn.Sequential(prefix="chain_")
    with net.name_scope():
        net.add(nn.Dense(12, activation="relu"), nn.BatchNorm())
        inner = nn.Sequential()
        with inner.name_scope():
            inner.add(nn.Dense(8), nn.Dropout(0.0))
        net.add(inner, nn.Dense(6))
    return started(net, hybrid=False)


def test_a_sequential_is_one_graph(two):
    def run():
        return train(net=chain())[:2]

    found = run()
    assert_same(found, plainly(run))
    assert graphs_for_training(two) == 2  # one for each size of batches, none for children


def test_a_sequential_with_other_blocks_runs_block_by_block(two):
    class Other(gluon.Block):
        def forward(self, x):
            return x * float(x.shape[1])

    def run():
        net = nn.Sequential(prefix="chain_")
        net.add(nn.Dense(12, prefix="a_"), Other(), nn.Dense(6, prefix="b_"))
        started(net, hybrid=False)
        return train(net=net)[:2], tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert len(found[1]) == 4


def test_blocks_inside_a_plain_block_are_partitioned(two):
    class Plain(gluon.Block):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.one = nn.Dense(12, activation="relu")
                self.two = Net()

        def forward(self, x):
            hidden = self.one(x)
            return self.two(hidden * (1 if hidden.asnumpy().max() > 0 else 2))

    def run():
        net = started(Plain(prefix="plain_"), hybrid=False)
        return train(net=net)[:2], tiled(net), set(net.collect_params())

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert found[1] == found[2]


def test_several_calls_in_a_step(two):
    def run():
        net, trainer, losses = net_with(), None, []
        for inputs, _ in batches():
            with autograd.record():
                loss = (net(inputs) ** 2).sum() + (net(inputs * 2) ** 2).sum()
            loss.backward()
            trainer = trainer or trainer_of(net, learning_rate=0.01)
            trainer.step(len(inputs))
            losses.append(loss)
        return losses, weights(net)

    assert_same(run(), plainly(run), rounded=True)


def test_two_nets_that_train_against_each_other(two):
    def run():
        maker = started(nn.Sequential(prefix="maker_"), hybrid=False)
        judge = nn.HybridSequential(prefix="judge_")
        with maker.name_scope():
            maker.add(nn.Dense(8, activation="relu"), nn.BatchNorm(), nn.Dense(10))
        with judge.name_scope():
            judge.add(nn.Dense(8), nn.LeakyReLU(0.2), nn.Dense(2))
        started(maker, hybrid=False)
        judge.initialize(mx.init.Xavier())
        trainers = [trainer_of(net, learning_rate=0.01) for net in (maker, judge)]
        loss_of, losses = gluon.loss.SoftmaxCrossEntropyLoss(), []
        real, fake = nd.ones((12,)), nd.zeros((12,))
        for _ in range(3):
            noise = nd.random.normal(shape=(12, 5))
            with autograd.record():
                of_real = loss_of(judge(data()), real)
                made = maker(noise)
                of_both = of_real + loss_of(judge(made.detach()), fake)
            of_both.backward()
            trainers[1].step(12)
            with autograd.record():
                of_made = loss_of(judge(made), real)
            of_made.backward()
            trainers[0].step(12)
            losses += [of_both, of_made]
        return losses, weights(maker), weights(judge), tiled(maker) | tiled(judge)

    found = run()
    assert_same(found[:3], plainly(run)[:3], rounded=True)
    assert len(found[3]) == len(found[1]) + len(found[2])


def test_parameters_are_initialized_in_the_order_of_the_code(two):
    class Crossed(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.one, self.two = nn.Dense(6), nn.Dense(6)

        def hybrid_forward(self, F, x):
            second = self.two(x)
            return self.one(x) + second

    def run():
        net = started(Crossed(prefix="crossed_"), hybrid=False)
        losses = fit(net, trainer_of(net), 1)
        return losses, weights(net)

    assert_same(run(), plainly(run))


def test_nested_arguments_and_results(two):
    Pair = collections.namedtuple("Pair", "left right")

    class Nested(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            with self.name_scope():
                self.dense = nn.Dense(6, in_units=10)

        def hybrid_forward(self, F, x, states=None, scale=1.0):
            y = self.dense(x) * scale
            if states is not None:
                y = y + states[0] * states[1]
            halves = F.split(y, num_outputs=2, axis=1)
            return {"all": y, "pair": Pair(y * 2, None)}, (halves, [y + 1]), "told"

    def run():
        net = started(Nested(prefix="nested_"), hybrid=False)
        results = []
        for args in ((), (None, 2.0), ([nd.ones((12, 6)), nd.ones((12, 6)) * 3],), (None, 2)):
            with autograd.record():
                first, second, third = net(data(), *args)
                loss = first["all"].sum() + second[0][1].sum()
            loss.backward()
            assert type(first["pair"]) is Pair and first["pair"].right is None
            assert type(second) is tuple and type(second[0]) is list and third == "told"
            arrays = [first["all"], first["pair"].left, *second[0], *second[1]]
            results.append([*arrays, net.dense.weight.grad()])
        return results, tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert found[1]


# --- A change of what the code reads ----------------------------------------------------------


def scaled(net, F, hidden):
    return hidden * net.scale


class Told:
    """A configuration."""

    def __init__(self, scale):
        self.scale = scale


SCALE = 1.0
SCALES = types.SimpleNamespace(scale=1.0)


def by_global(net, F, hidden):
    return hidden * SCALE * SCALES.scale


def in_closure():
    scale = 1.0

    def by_closure(net, F, hidden):
        return hidden * scale

    def change(value):
        nonlocal scale
        scale = value

    return by_closure, change


def set_global(_net, value):
    global SCALE
    SCALE = value


def set_field(_net, value):
    SCALES.scale = value


class Classy(Net):
    """Reads an attribute of its class through a method and a property."""

    scale = 1.0

    def hybrid_forward(self, F, x):
        return super().hybrid_forward(F, x) * self.of_method() * self.of_property

    def of_method(self):
        return self.scale

    @property
    def of_property(self):
        return type(self).scale


def with_attribute(value, change, read):
    net = net_with(lambda net, F, hidden: hidden * read(net), settings=value)
    return net, lambda new: change(net, new)


def changing(kind):
    """A net, and what sets the scale that its code reads."""
    if kind == "attribute":
        net = net_with(scaled, scale=1.0)
        return net, lambda value: setattr(net, "scale", value)
    if kind == "flag":
        net = net_with(lambda net, F, h: h * 2 if net.flag else h, flag=False)
        return net, lambda value: setattr(net, "flag", value == 2)
    if kind == "flag of a child":
        net = net_with(lambda net, F, h: h * 2 if net.last.flag else h)
        net.last.flag = False
        return net, lambda value: setattr(net.last, "flag", value == 2)
    if kind == "string":
        net = net_with(lambda net, F, h: h * len(net.text), text="a")
        return net, lambda value: setattr(net, "text", "a" * int(value))
    if kind == "none":
        net = net_with(lambda net, F, h: h if net.factor is None else h * net.factor, factor=None)
        return net, lambda value: setattr(net, "factor", None if value == 1 else value)
    if kind == "tuple":
        return with_attribute(
            (1, (1.0,)),
            lambda net, value: setattr(net, "settings", (1, (value,))),
            lambda net: net.settings[1][0],
        )
    if kind == "list in place":
        return with_attribute(
            [1.0],
            lambda net, value: net.settings.__setitem__(0, value),
            lambda net: net.settings[0],
        )
    if kind == "dict in place":
        return with_attribute(
            {"scale": 1.0},
            lambda net, value: net.settings.update(scale=value),
            lambda net: net.settings["scale"],
        )
    if kind == "set in place":
        return with_attribute(
            {1.0},
            lambda net, value: (net.settings.clear(), net.settings.add(value)),
            lambda net: max(net.settings),
        )
    if kind == "object":
        return with_attribute(
            Told(1.0),
            lambda net, value: setattr(net.settings, "scale", value),
            lambda net: net.settings.scale,
        )
    if kind == "numpy":
        return with_attribute(
            np.ones(1),
            lambda net, value: net.settings.fill(value),
            lambda net: float(net.settings[0]),
        )
    if kind == "function":
        return with_attribute(
            lambda: 1.0,
            lambda net, value: setattr(net, "settings", lambda: value),
            lambda net: net.settings(),
        )
    if kind == "global":
        set_global(None, 1.0)
        return net_with(by_global), lambda value: set_global(None, value)
    if kind == "field of a global":
        set_field(None, 1.0)
        return net_with(by_global), lambda value: set_field(None, value)
    if kind == "closure":
        between, change = in_closure()
        return net_with(between), change
    if kind == "class":
        net = started(Classy(prefix="net_"), hybrid=False)
        return net, lambda value: setattr(Classy, "scale", value)
    raise AssertionError(kind)


KINDS = (
    "attribute",
    "flag",
    "flag of a child",
    "string",
    "none",
    "tuple",
    "list in place",
    "dict in place",
    "set in place",
    "object",
    "numpy",
    "function",
    "global",
    "field of a global",
    "closure",
    "class",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_of_what_the_code_reads_is_followed(on, kind):
    def run():
        net, change = changing(kind)
        trainer, losses = trainer_of(net), []
        for value in (1.0, 1.0, 2.0, 2.0, 1.0):
            change(value)
            losses += fit(net, trainer, 1)
        change(1.0)
        return losses, weights(net), tiled(net)

    found = run()
    assert_same(found[:2], plainly(run)[:2])
    assert found[2]


def test_a_value_that_comes_back_finds_its_trace(two):
    net = net_with(scaled, scale=1.0)
    trainer = trainer_of(net)
    for value in (1.0, 2.0, 1.0, 2.0, 1.0):
        net.scale = value
        fit(net, trainer, 1)
    assert graphs_for_training(two) == 2


def test_values_that_are_equal_and_of_other_types(on):
    def run():
        net = net_with(lambda net, F, h: h * 2 if net.scale is True else h, scale=1)
        return steps(net, 3, lambda net, number: setattr(net, "scale", (1, True, 1.0)[number]))

    assert_same(run(), plainly(run))


def test_other_children_are_traced_again(on):
    def run():
        net = net_with()
        trainer = trainer_of(net)
        losses = fit(net, trainer, 2)
        mx.random.seed(3)
        with net.name_scope():
            net.last = nn.Dense(6, in_units=12, prefix="other_")
        net.last.initialize(mx.init.Xavier())
        losses += fit(net, trainer_of(net), 2)
        sequential = chain()
        losses += fit(sequential, trainer_of(sequential), 2)
        sequential.add(nn.Dense(6, in_units=6, prefix="more_"))
        sequential[-1].initialize(mx.init.Xavier())
        return losses + fit(sequential, trainer_of(sequential), 2), weights(sequential)

    assert_same(run(), plainly(run))


def test_branches_by_mode(on):
    def only_in_training(_net, F, hidden):
        return hidden * 3 if autograd.is_training() else hidden

    def only_recorded(_net, F, hidden):
        return hidden * 3 if autograd.is_recording() else hidden

    for between in (only_in_training, only_recorded):

        def run(between=between):
            net = net_with(between)
            losses = train(net=net)[:2]
            with autograd.train_mode():
                losses += (net(data()),)
            with autograd.record(train_mode=False):
                losses += (net(data()),)
            return losses, tiled(net)

        found = run()
        assert_same(found[0], plainly(run)[0])
        assert found[1]


def test_an_attribute_that_changes_all_the_time(on):
    def run():
        net = net_with(scaled, scale=1.0)
        return steps(net, 40, lambda net, number: setattr(net, "scale", 1 + number / 64))

    with pytest.warns(messages.TofuWarning) as seen:
        found = run()
    (text,) = reasons(seen)
    assert "more than 32 values; pass what changes in every call as an array" in text
    assert_same(found, plainly(run))


# --- Code that no graph can replace -----------------------------------------------------------


class Kept:
    """What code does besides computing."""

    def __init__(self):
        self.seen = []


def reads_values(net, F, hidden):
    return hidden * (2 if hidden.asnumpy().sum() > 0 else 1)


def reads_shape(net, F, hidden):
    return hidden.reshape((hidden.shape[0], -1))


def branches_on_values(net, F, hidden):
    return hidden * 2 if (hidden.sum() > 0).asscalar() else hidden


def indexes(net, F, hidden):
    return hidden * float(hidden[0, 0].asscalar() > 0)


def prints(net, F, hidden):
    print("called")
    return hidden


def logs(net, F, hidden):
    logging.getLogger("mine").warning("called")
    return hidden


def keeps_in_attribute(net, F, hidden):
    net.hidden = hidden
    return hidden


def keeps_in_list(net, F, hidden):
    net.kept.append(hidden)
    return hidden


def counts(net, F, hidden):
    net.calls += 1
    return hidden * net.calls


def counts_in_list(net, F, hidden):
    net.kept.append(1)
    return hidden * len(net.kept)


def draws(net, F, hidden):
    return hidden * (2 if random.random() < 0.5 else 1)


def draws_by_numpy(net, F, hidden):
    return hidden * float(np.random.rand())


def pauses(net, F, hidden):
    with autograd.pause():
        target = hidden * 2
    return hidden + target


def predicts(net, F, hidden):
    with autograd.predict_mode():
        return hidden * 2


def makes_an_array(net, F, hidden):
    total = mx.nd.array([1.0, 2.0]).sum()
    return hidden * 2 if total.shape == (1,) else hidden


def writes_a_parameter(net, F, hidden):
    net.steps[0].set_data(net.steps[0].data() + 1)
    return hidden


def keeps_a_block(net, F, hidden):
    if not hasattr(net, "late"):
        net.late = nn.Dense(12, prefix="late_")
        net.late.initialize(mx.init.One())
    return net.late(hidden)


def catches_everything(net, F, hidden):
    try:
        return hidden * float(hidden.asnumpy().max())
    except Exception:
        return hidden


def hidden_block(net, F, hidden):
    return net.kept[0](hidden)


CODE = (
    (reads_values, "asnumpy"),
    (reads_shape, "no attribute 'shape'"),
    (branches_on_values, "asscalar"),
    (indexes, "asscalar|integer|index"),
    (prints, r"it prints \(test_unhybridized.py:\d+\)"),
    (logs, r"it logs \(test_unhybridized.py:\d+\)"),
    (keeps_in_attribute, "it keeps something in attribute hidden of net"),
    (keeps_in_list, "it keeps something in attribute kept of net"),
    (counts, "every call changes attribute calls of net"),
    (counts_in_list, "it keeps something in attribute kept of net"),
    (draws, "it draws Python's random numbers"),
    (draws_by_numpy, "it draws Python's random numbers"),
    (pauses, "it changes autograd's mode"),
    (predicts, "it changes autograd's mode"),
    (makes_an_array, "it makes an array of Python's values"),
    (writes_a_parameter, "it computes with arrays"),
    (catches_everything, "its trace computes something else than its code: output 0 differs"),
    (hidden_block, "it reads hidden_weight, which collect_params.. does not return"),
)


@pytest.mark.filterwarnings("ignore:.*unregistered|.*hidden_dense.*")
@pytest.mark.parametrize(("code", "reason"), CODE, ids=lambda case: getattr(case, "__name__", ""))
def test_code_that_no_graph_can_replace(on, capfd, code, reason):
    def run():
        random.seed(5)
        kept = []
        if code is hidden_block:
            kept.append(nn.Dense(12, in_units=12, prefix="hidden_"))
            kept[0].initialize(mx.init.One())
        count = gluon.Parameter("count", shape=(1,), init="zeros", grad_req="null")
        count.initialize()
        net = net_with(code, calls=0, kept=kept, steps=(count,))
        losses = train(net=net, steps=3)[:2]
        after = [random.random(), np.random.rand(), net.calls, len(net.kept)]
        after.append(float(count.data().asscalar()))
        said = capfd.readouterr()
        after += [said.out.count("called"), hasattr(net, "hidden") and type(net.hidden)]
        return losses, after, tiled(net)

    with pytest.warns(messages.TofuWarning, match=reason) as seen:
        found = run()
    assert len(reasons(seen)) == 1
    assert reasons(seen)[0].startswith("tofu: net runs eagerly, only the blocks inside it can")
    expected = plainly(run)
    assert_same(found[0], expected[0])
    assert found[1] == expected[1]
    assert len(found[2]) == 8  # the layers, one by one


def test_a_block_that_code_adds_is_traced_from_then_on(on):
    def run():
        net = net_with(keeps_a_block)
        net(data())
        losses = train(net=net)[:2]
        return losses, tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert "late_weight" in found[1]


def test_an_attribute_that_code_sets_to_the_same_value(on):
    def marks(net, F, hidden):
        net.was_called, net.name_of_f = True, F.__name__.rpartition(".")[2][:1]
        return hidden

    def run():
        net = net_with(marks)
        losses = train(net=net)[:2]
        net.was_called = False
        with autograd.record():
            net(data())
        return losses, net.was_called, tiled(net)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", messages.TofuWarning)
        found = run()
    expected = plainly(run)
    assert_same(found[0], expected[0])
    assert found[1] is expected[1] is True


def test_a_mark_that_code_sets_is_set_in_every_call(on):
    def marks(net, F, hidden):
        net.was_called = True
        return hidden

    def run():
        net, marked = net_with(marks), []
        trainer = trainer_of(net)
        for _ in range(3):
            net.was_called = False
            losses = fit(net, trainer, 1)
            marked.append(net.was_called)
        return losses, marked, tiled(net)

    found, expected = run(), plainly(run)
    assert_same(found[0], expected[0])
    assert found[1] == expected[1] == [True] * 3
    assert found[2]


def differs_from_symbols(net, F, hidden):
    return hidden * 2 if F is mx.nd else hidden


def differs_for_small_batches(net, F, hidden):
    return hidden * 2 if F is mx.nd and hidden.shape[0] < 12 else hidden


def differs_in_shape(net, F, hidden):
    return F.concat(hidden, hidden, dim=1) if F is mx.nd else hidden


@pytest.mark.parametrize(
    "code", [differs_from_symbols, differs_for_small_batches], ids=lambda code: code.__name__
)
def test_a_trace_that_computes_something_else(two, code):
    def run():
        net = net_with(code)
        losses = train(net=net)[:2]
        return losses, train(net=net)[:2], tiled(net)

    with pytest.warns(messages.TofuWarning, match=r"output 0 differs by \S+, expected") as seen:
        found = run()
    assert len(reasons(seen)) == 1
    assert_same(found[:2], plainly(run)[:2])


def test_what_is_tiled_for_a_wrong_trace_is_whole_again(fake):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", strict=True)  # children do not follow
    net = net_with(differs_from_symbols)
    for _ in range(2):
        with autograd.record(), pytest.raises(ConfigError, match="something else"):
            net(data())
        assert tiled(net) == set()
    tofu.gluon.disable()


def test_results_of_other_nesting_or_type(on):
    class Result(gluon.HybridBlock):
        def __init__(self, result, **kwargs):
            super().__init__(**kwargs)
            self.result = result
            with self.name_scope():
                self.dense = nn.Dense(6, in_units=10)

        def hybrid_forward(self, F, x):
            return self.result(F, self.dense(x))

    cases = (
        (lambda F, y: (y, y) if F is mx.nd else [y, y], "nested otherwise"),
        (lambda F, y: y.astype("float64") if F is mx.nd else y, "float32 where the eager one is"),
        (lambda F, y: F.concat(y, y) if F is mx.nd else y, r"\(12, 6\) float32 where the eager"),
        (lambda F, y: (y > 0).astype("int32") + int(F is mx.nd), "whole numbers"),
        (lambda F, y: F.log(y - 100) if F is mx.nd else y, "not a number"),
        (lambda F, y: y if F is mx.nd else [{1, 2}, y], "it returns set, expected arrays"),
        (lambda F, y: y if F is mx.nd else 5, "it returns arrays that it does not compute"),
    )
    for result, reason in cases:
        net = started(Result(result, prefix="result_"), hybrid=False)
        with autograd.record(), pytest.warns(messages.TofuWarning, match=reason):
            found = net(data())
        with autograd.record():  # and from then on
            again = net(data())
        flat = found if isinstance(found, tuple) else (found,)
        flat_again = again if isinstance(again, tuple) else (again,)
        assert [a.asnumpy().tobytes() for a in flat] == [a.asnumpy().tobytes() for a in flat_again]


def test_an_argument_that_is_no_array(on):
    class Odd(Net):
        def hybrid_forward(self, F, x, other=None):
            return super().hybrid_forward(F, x) * (1 if other is None else other.scale)

    def run():
        net = started(Odd(prefix="odd_"), hybrid=False)
        with autograd.record():
            loss = net(data(), Told(2.0)).sum()
        loss.backward()
        return loss, net.last.weight.grad()

    with pytest.warns(messages.TofuWarning, match="an argument is Told, expected arrays"):
        found = run()
    assert_same(found, plainly(run))


def test_errors_are_the_scripts_own(on):
    net = net_with()
    with autograd.record(), pytest.raises(mx.MXNetError):
        net(nd.ones((4, 10))) + net(nd.ones((4, 11)))
    assert_same(train(net=net_with())[:2], plainly(lambda: train(net=net_with())[:2]))


def test_strictly_an_untraceable_net_is_an_error(fake):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", strict=True)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"net cannot be partitioned.*asnumpy"):
            train(net=net_with(reads_values))
    tofu.gluon.disable()


# --- Hooks ------------------------------------------------------------------------------------


def test_hooks_on_children_run_in_every_call(on):
    def run(register):
        net, seen = net_with(), []
        trainer = trainer_of(net)
        losses = fit(net, trainer, 1)
        before = tiled(net)
        watch = getattr(net.last, register)
        handle = watch(lambda *args: seen.append(isinstance(args[1][0], nd.NDArray)))
        losses += fit(net, trainer, 2)
        handle.detach()
        losses += fit(net, trainer, 2)
        return losses, seen, before

    for register in ("register_forward_hook", "register_forward_pre_hook"):
        with pytest.warns(messages.TofuWarning, match="a hook watches net_dense1") as seen:
            found = run(register)
        assert len(reasons(seen)) == 1
        expected = plainly(run, register)
        assert_same(found[0], expected[0])
        assert found[1] == expected[1]
        assert len(found[2]) == 8


def test_hooks_on_the_outermost_block_see_arrays(two):
    def run():
        net, seen = net_with(), []
        net.register_forward_hook(lambda _block, args, out: seen.extend([args[0], out]))
        net.register_forward_pre_hook(lambda _block, args: seen.append(args[0]))
        return train(net=net)[:2], seen, tiled(net)

    found, expected = run(), plainly(run)
    assert_same(found[:2], expected[:2])
    assert found[2]


# --- Random numbers and running statistics ----------------------------------------------------


class Dropping(Net):
    """Drops units."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.drop = nn.Dropout(0.5)

    def hybrid_forward(self, F, x):
        return super().hybrid_forward(F, self.drop(x))


@pytest.mark.parametrize("log", ["real"], indirect=True)
def test_comparing_draws_no_random_numbers(two):
    def run(hybridize):
        net = Dropping(prefix="drop_")
        started(net, hybrid=False)
        net(data())  # parameters are initialized
        if hybridize:
            net.hybridize()
        mx.random.seed(11)
        losses = fit(net, trainer_of(net))
        return losses, weights(net), nd.random.uniform(shape=(4,)), tiled(net)

    found = run(False)
    assert_same(found[:3], run(True)[:3])
    assert found[3]


def test_predictions_are_compared_where_training_drops_units(on):
    class Wrong(Dropping):
        def hybrid_forward(self, F, x):
            return super().hybrid_forward(F, x) * (2 if F is mx.nd else 1)

    net = started(Wrong(prefix="wrong_"), hybrid=False)
    with autograd.record(), pytest.warns(messages.TofuWarning, match="output 0 differs"):
        net(data())


class Noisy(Net):
    """Adds noise, in predictions too."""

    wrong = False

    def hybrid_forward(self, F, x):
        noise = F.random.uniform(0, 1, shape=(1, 10))
        outputs = super().hybrid_forward(F, F.broadcast_add(x, noise))
        return F.concat(outputs, outputs) if self.wrong and F is mx.nd else outputs


def test_a_net_that_always_draws_runs_its_code_once(two):
    def run():
        net = started(Noisy(prefix="noisy_"), hybrid=False)
        mx.random.seed(3)
        trainer = trainer_of(net)
        with autograd.record():
            first = net(data())
        first.backward()
        trainer.step(12)
        drawn = nd.random.uniform(shape=(4,))
        after = tiled(net)
        with autograd.record():
            net(data())
        return [first, drawn], after, tiled(net)

    found, expected = run(), plainly(run)
    assert_same(found[0], expected[0])
    assert not found[1] and found[2]  # partitioned from the second call on


def test_shapes_are_compared_where_code_always_draws(on):
    net = started(Noisy(prefix="noisy_"), hybrid=False)
    net.wrong = True
    with autograd.record(), pytest.warns(messages.TofuWarning, match=r"is \(12, 6\) float32 where"):
        found = net(data())
    assert found.shape == (12, 12)
    with autograd.record():
        assert net(data()).shape == (12, 12)


class Doubling(mx.operator.CustomOp):
    """Counts its calls."""

    calls = 0

    def forward(self, is_train, req, in_data, out_data, aux):
        Doubling.calls += 1
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("counted_doubling")
class DoublingProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=True)

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Doubling()


def test_operators_in_python_are_not_called_for_comparing(on):
    net = net_with(lambda net, F, hidden: F.Custom(hidden, op_type="counted_doubling"))
    net(data())
    nd.waitall()
    Doubling.calls = 0
    with autograd.record():
        net(data())
    nd.waitall()
    assert Doubling.calls == 1


def test_running_statistics_are_updated_once(on, monkeypatch):
    """On GPUs the forward pass updates them; here the operator is made to."""
    real = nd.BatchNorm

    def batch_norm(x, gamma, beta, mean, variance, **options):
        if autograd.is_training() and not autograd.is_recording():
            mean[:] = mean * 0.5 + 1
        return real(x, gamma, beta, mean, variance, **options)

    def run():
        net = net_with()
        return train(net=net, steps=3)[:2]

    expected = plainly(run)
    monkeypatch.setattr(nd, "BatchNorm", batch_norm)
    assert_same(run(), expected)


def test_what_only_fits_in_parts_is_not_compared(on, monkeypatch):
    asked = []

    def run_code(self, *, is_training):
        asked.append(is_training)
        raise mx.MXNetError("cudaMalloc failed: out of memory")

    net = net_with(differs_from_symbols)
    net(data())
    monkeypatch.setattr(unhybridized._First, "_run_code", run_code)
    with autograd.record():
        net(data())
    assert asked == [True]
    assert len(tiled(net)) == 8


# --- What the script sees ---------------------------------------------------------------------


def test_predictions_before_training_tile_nothing(two):
    def run():
        net = net_with()
        return net(data()), tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert not found[1] and not two.graphs


def test_predictions_after_training_use_the_tiles(two, monkeypatch):
    net = net_with()
    fit(net, trainer_of(net), 1)
    expected = net(data()).asnumpy()
    monkeypatch.setattr(TileState, "gather", None)
    assert_same(net(data()), expected)
    assert not two.graphs[-1]["train"]


def test_children_can_be_called_by_themselves(two):
    def run():
        net = net_with()
        losses = fit(net, trainer_of(net), 2)
        losses += [net.first(data()), net.norm(net.first(data()))]
        with autograd.record():
            loss = (net.first(data()) ** 2).sum()
        loss.backward()
        return [*losses, net.first.weight.grad(), net(data())]

    assert_same(run(), plainly(run))


def test_hybridizing_later_and_taking_it_back(on):
    def run(path="model"):
        net = net_with()
        trainer = trainer_of(net)
        losses = fit(net, trainer, 2)
        net.hybridize()
        losses += fit(net, trainer, 2)
        active = net._active, bool(net._cached_graph)
        net.hybridize(active=False)
        return losses + fit(net, trainer, 2), active

    with pytest.warns(messages.TofuWarning, match="net is not hybridized.*call its hybridize"):
        found = run()
    expected = plainly(run)
    assert_same(found[0], expected[0])
    assert found[1] == expected[1] == (True, True)


def test_hybridizing_drops_the_trace(on):
    net = net_with()
    fit(net, trainer_of(net), 1)
    traces = session.active().state.traces
    assert net in traces
    net.hybridize()
    net(data())
    assert net not in traces


def test_a_net_that_hybridizes_a_part_of_itself(on, tmp_path):
    def run():
        net = net_with()
        net.first.hybridize()
        losses = train(net=net)[:2]
        net.first.export(str(tmp_path / "first"))
        return losses, tiled(net)

    found = run()
    assert_same(found[0], plainly(run)[0])
    assert len(found[1]) == 8


@pytest.mark.filterwarnings("ignore:Cannot decide type")
def test_export_wants_a_hybridized_net(two, tmp_path):
    net = net_with()
    fit(net, trainer_of(net), 1)
    with pytest.raises(RuntimeError, match=r"first call block\.hybridize"):
        net.export(str(tmp_path / "net"))
    net.hybridize()
    expected = net(data())
    net.export(str(tmp_path / "net"))
    path = str(tmp_path / "net")
    block = gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
    assert_same(block(data()), expected)


def test_summary_parameters_and_files(two, capsys, tmp_path):
    def run():
        net = net_with()
        net.summary(data())
        before = capsys.readouterr().out
        losses = train(net=net)[:2]
        net.summary(data())
        path = str(tmp_path / "net.params")
        net.save_parameters(path)
        other = Net(prefix="net_")
        other.load_parameters(path)
        after = capsys.readouterr().out
        return [losses, other(data()), net(data())], before, after, list(net.collect_params())

    found, expected = run(), plainly(run)
    assert_same(found[0], expected[0])
    assert found[1:] == expected[1:]


def test_casting(two):
    def run():
        net = net_with()
        first = fit(net, trainer_of(net), 2)
        net.cast("float64")
        with autograd.record():
            loss = (net(data().astype("float64")) ** 2).sum()
        loss.backward()
        double = [loss, net.last.weight.grad()]
        assert loss.dtype == np.float64
        net.cast("float32")
        return first, double, fit(net, trainer_of(net), 2)

    assert_same(run(), plainly(run))


def test_names_of_later_blocks(two):
    class Unnamed(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="")
            self.dense = nn.Dense(6, prefix="unnamed_")

        def hybrid_forward(self, F, x):
            return F.Activation(self.dense(x), act_type="relu")

    def run():
        with mx.name.NameManager():
            net = started(Unnamed(), hybrid=False)
            train(net=net)
            made = nn.Activation("relu"), net.dense.weight.var().attr("__shape__")
            return made[0].prefix, made[1], mx.sym.Activation(mx.sym.var("x"), "relu").name

    assert run() == plainly(run)


def test_several_contexts_run_as_they_are(on):
    def run():
        contexts = [mx.cpu(0), mx.cpu(1)]
        net = Net(prefix="parallel_")
        mx.random.seed(1)
        net.initialize(mx.init.Xavier(), ctx=contexts)
        trainer = trainer_of(net)
        results = []
        for _ in range(2):
            parts = gluon.utils.split_and_load(data(), contexts)
            with autograd.record():
                losses = [(net(part) ** 2).sum() for part in parts]
            autograd.backward(losses)
            trainer.step(12)
            results += losses
        return results, net.last.weight.data(mx.cpu(0))

    with pytest.warns(messages.TofuWarning, match=r"runs serially.*expected one context") as seen:
        found = run()
    assert len(reasons(seen)) == 1, reasons(seen)
    assert_same(found, plainly(run))


def test_sparse_gradients_are_told_once(on):
    def run():
        net = nn.Embedding(8, 4, sparse_grad=True, prefix="sparse_")
        started(net, hybrid=False)
        trainer = trainer_of(net, learning_rate=0.1)
        for _ in range(3):
            with autograd.record():
                loss = (net(nd.array([1, 2])) ** 2).sum()
            loss.backward()
            trainer.step(2)
        return loss

    with pytest.warns(messages.TofuWarning, match=r"sparse_weight.*row_sparse") as seen:
        found = run()
    assert len(reasons(seen)) == 1
    assert_same(found, plainly(run))


def test_what_cannot_be_planned_runs_serially(on):
    def run():
        return train(net=net_with(lambda net, F, hidden: F.sign(hidden) * hidden))[:2]

    with pytest.warns(messages.TofuWarning, match="net runs serially: operator sign") as seen:
        found = run()
    assert len(reasons(seen)) == 1
    assert_same(found, plainly(run))


def test_blocks_without_anything_to_train_are_left_alone(two):
    def run():
        net = net_with()
        net.collect_params().setattr("grad_req", "null")
        with autograd.record():
            return net(data())

    assert_same(run(), plainly(run))
    assert not two.graphs


def test_recurrent_cells_and_layers(two):
    def run():
        layer = started(gluon.rnn.LSTM(8, input_size=10, prefix="lstm_"), hybrid=False)
        cell = gluon.rnn.GRUCell(8, input_size=8, prefix="cell_")
        cell.initialize(mx.init.Xavier())
        trainer = trainer_of(layer, learning_rate=0.1)
        losses = []
        for _ in range(3):
            with autograd.record():
                hidden = layer(nd.ones((4, 6, 10)))
                state = cell.begin_state(6)
                for step in range(4):
                    _, state = cell(hidden[step], state)
                loss = (state[0] ** 2).sum()
            loss.backward()
            trainer.step(6)
            losses += [loss, cell.i2h_weight.grad(), layer(nd.ones((4, 6, 10)))]
        return losses, tiled(layer), tiled(cell)

    found = run()
    assert_same(found[0], plainly(run)[0], rounded=True)
    assert found[1] and found[2]


def test_dropped_nets_are_freed(two):
    net = net_with()
    train(net=net)
    reference = weakref.ref(net)
    gc.collect()
    gc.disable()
    try:
        del net
        assert reference() is None
    finally:
        gc.enable()


def test_turning_tofu_off_between_steps(two):
    def run(switch):
        net = net_with()
        trainer = trainer_of(net)
        losses = fit(net, trainer, 2)
        switch()
        return losses + fit(net, trainer, 2), weights(net)

    found = run(tofu.gluon.disable)
    assert_same(found, run(lambda: None))


def test_an_argument_of_enable_switches_it_off(fake):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", hybridize=False)
    net = make_net(hybrid=False)
    with pytest.warns(messages.TofuWarning, match="net is not hybridized"):
        train(net=net)
    assert not tiled(net)
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    train(net=net)
    assert tiled(net)
    tofu.gluon.disable()


def test_fakes_are_used(on):
    assert fakes.are_used()

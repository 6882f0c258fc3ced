"""A block whose code no graph can replace runs unchanged, and tofu gives the reason."""

import contextlib
import logging
import random
import re
import warnings

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import tofu.gluon
from tofu.errors import ConfigError
from tofu.gluon.session import messages

from .models import assert_same, data, fit, plainly, started, train
from .unhybridized import (
    MARKS,
    Net,
    Told,
    differs_from_symbols,
    net_with,
    reasons,
    tiled,
    trainer_of,
)

pytestmark = MARKS


# --- Code that no graph can replace ------------------------------------------------------------


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


def prints_and_hides_errors(net, F, hidden):
    with contextlib.suppress(Exception):
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
    (prints, r"it prints \(test_unhybridized_code.py:\d+\)"),
    (prints_and_hides_errors, "it prints"),
    (logs, r"it logs \(test_unhybridized_code.py:\d+\)"),
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
    assert re.match(
        r"tofu: net \([34] blocks inside it, (\d of its \d+|all of its) operators, "
        r"all of its 258 parameters\) over 2 workers .*; net itself runs eagerly: ",
        reasons(seen)[0],
    )
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


def differs_for_small_batches(net, F, hidden):
    return hidden * 2 if F is mx.nd and hidden.shape[0] < 12 else hidden


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
        (lambda F, y: F.log(y - 100) if F is mx.nd else y, "not finite"),
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


# --- Hooks -------------------------------------------------------------------------------------


def test_hooks_on_children_run_in_every_call(on):
    def run(register):
        net, seen = net_with(), []
        trainer = trainer_of(net)
        losses = fit(net, trainer, 1)
        before = tiled(net)
        watch = getattr(net.last, register)
        handle = watch(lambda *args: seen.append(isinstance(args[1][0], mx.nd.NDArray)))
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

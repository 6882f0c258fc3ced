"""Faults of operators: the script gets one error that names the operator, and can continue."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.session.backward_calls import BackwardCalls
from tofu.gluon.session.session import active
from tofu.gluon.training.recording import Recording
from tofu.mx.run import error_list, program

from ..support import forked
from . import fakes
from .models import assert_same, data, make_net, plain, plainly, weights

# Operators without a description are replicated, with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:.*no description of Custom")

BATCH, UNITS = 8, 16
switched_on = set()  # the calls in which the operator throws: "forward", "backward"


class Throwing(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        if "forward" in switched_on:
            raise ValueError("thrown on purpose")
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        if "backward" in switched_on:
            raise ValueError("thrown on purpose")
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("tofu_test_throwing")
class _ThrowingProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Throwing()


class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="thrower_")
        with self.name_scope():
            self.before = nn.Dense(UNITS, in_units=UNITS)
            self.after = nn.Dense(UNITS, in_units=UNITS)

    def hybrid_forward(self, F, x):
        return self.after(F.Custom(self.before(x), op_type="tofu_test_throwing", name="throwing"))


@pytest.fixture(autouse=True)
def switched_off():
    yield
    switched_on.clear()


@pytest.fixture(params=(2, 4))
def real(request):
    """Turn tofu on with its own program, because the fake one runs on the script's context."""
    tofu.gluon.enable(workers=request.param, device="cpu", log="quiet")
    yield
    tofu.gluon.disable()


class Steps:
    """Training steps. The operator throws in some of them; all errors are kept."""

    def __init__(self, dtype, grad_req="write", ask_input=False):
        mx.random.seed(0)
        self.net = Net()
        self.net.initialize(mx.init.Xavier())
        self.net.cast(dtype)
        self.net.hybridize()
        self.net.collect_params().setattr("grad_req", grad_req)
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.01})
        self.inputs = mx.nd.ones((BATCH, UNITS), dtype=dtype)
        if ask_input:
            self.inputs.attach_grad()
        self.losses, self.errors = [], []

    def step(self):
        self.net.collect_params().zero_grad()
        with autograd.record():
            loss = (self.net(self.inputs) ** 2).mean()
        loss.backward()
        self.trainer.step(1)
        self.losses.append(loss.asscalar())
        mx.nd.waitall()

    def run(self, where, bad=(2,), steps=5):
        for number in range(steps):
            if number in bad:
                if where is None:  # as if this step had not run
                    continue
                switched_on.add(where)
            try:
                self.step()
            except mx.MXNetError as error:
                self.errors.append((number, str(error)))
            switched_on.clear()
        return self

    def values(self):
        return {name: p.data().asnumpy() for name, p in self.net.collect_params().items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("ask_input", [False, True])
def test_one_error_for_one_fault(real, where, dtype, grad_req, ask_input):
    found = Steps(dtype, grad_req, ask_input).run(where)
    assert [number for number, _ in found.errors] == [2]
    assert "tofu: thrown by operator Custom (thrower_throwing" in found.errors[0][1]
    assert "on worker " in found.errors[0][1]
    with plain():
        expected = Steps(dtype, grad_req, ask_input).run(None)
    assert_same(found.losses[-2:], expected.losses[-2:])
    assert_same(found.values(), expected.values())


def test_an_error_of_a_callback_is_named_though_another_reader_met_it(real, monkeypatch):
    wait = Recording.wait

    def wait_and_read(self):
        try:
            wait(self)
        finally:
            with contextlib.suppress(mx.MXNetError):
                mx.nd.waitall()

    monkeypatch.setattr(Recording, "wait", wait_and_read)
    found = Steps("float32", "add").run("backward")
    assert [number for number, _ in found.errors] == [2]
    assert "tofu: thrown by operator Custom (thrower_throwing" in found.errors[0][1]


def test_one_error_for_each_fault(real):
    found = Steps("float32").run("backward", bad=(1, 2, 4), steps=7)
    assert [number for number, _ in found.errors] == [1, 2, 4]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fetch_that_throws(real, dtype, monkeypatch):
    """The fetch brings the outputs from the workers to the script's device."""
    state = active().state
    gather = state.backend.gather

    def sometimes(*args, **options):
        if "fetch" in switched_on:
            raise mx.MXNetError("fetched on purpose")
        return gather(*args, **options)

    monkeypatch.setattr(state, "backend", dataclasses.replace(state.backend, gather=sometimes))
    found = Steps(dtype).run("fetch")
    assert [number for number, _ in found.errors] == [2]
    assert "fetched on purpose" in found.errors[0][1]
    with plain():
        expected = Steps(dtype).run(None)
    assert_same(found.losses[-2:], expected.losses[-2:])
    assert_same(found.values(), expected.values())


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_the_list_of_errors_is_filled_again(real, where, monkeypatch):
    """Otherwise racing errors could name an operator of an earlier list."""
    filled = []
    monkeypatch.setattr(error_list, "refill", lambda: filled.append(where))
    assert len(Steps("float32").run(where, bad=(1, 3)).errors) == 2
    assert len(filled) >= 2


def test_an_error_while_looking_for_the_operator(real, monkeypatch):
    """Warnings are errors, and so are exceptions that end a thread."""

    def fails(*_):
        raise mx.MXNetError("out of memory again")

    monkeypatch.setattr(program.Program, "failing_operator", fails)
    found = Steps("float32").run("forward")
    assert [number for number, _ in found.errors] == [2]
    assert "out of memory again" not in found.errors[0][1]


def test_faults_that_nobody_reads_end(real):
    """The script reads nothing in the steps; the error comes at its first read.

    If the operator has thrown before the backward call returns, the call raises the error.
    """
    steps = Steps("float32")
    steps.step()
    switched_on.add("backward")
    with autograd.record():
        loss = (steps.net(steps.inputs) ** 2).mean()

    def finish():
        loss.backward()
        steps.net.before.weight.grad().asnumpy()

    with pytest.raises(mx.MXNetError, match="thrown by operator Custom"):
        finish()
    switched_on.clear()
    steps.step()


def test_faults_met_by_autograd_grad(real):
    steps = Steps("float32")
    steps.step()
    switched_on.add("backward")
    with autograd.record():
        loss = (steps.net(steps.inputs) ** 2).mean()
    with pytest.raises(mx.MXNetError, match="thrown by operator Custom"):
        [each.asnumpy() for each in autograd.grad(loss, [steps.net.before.weight.data()])]
    switched_on.clear()
    steps.step()


def test_other_errors_are_left_alone(real):
    """The faults are in the script's own operators, with no partitioned graph between them."""

    def throwing():
        return mx.nd.linalg.potrf(-mx.nd.ones((2, 2)))

    Steps("float32").step()
    with pytest.raises(mx.MXNetError):
        throwing().asnumpy()  # might come from a partitioned graph, so all are cleared
    for each in [throwing() for _ in range(3)]:
        with pytest.raises(mx.MXNetError, match="positive definite") as caught:
            each.asnumpy()
        assert "tofu:" not in str(caught.value)


class Value:
    """An array that records when it is waited for and copied."""

    def __init__(self, events):
        self.events = events

    def wait_to_read(self):
        self.events.append("wait")

    def copyto(self, target):
        self.events.append("copy")
        target[:] = 1


@pytest.mark.parametrize("of_tile", [False, True])
def test_values_are_computed_before_they_are_handed_over(of_tile):
    """MXNet would lose a callback whose results contain an error of oneDNN's."""
    events, given, output = [], mx.nd.ones(1), mx.nd.zeros(1)
    given.attach_grad()

    def differentiate(_heads):
        values = [Value(events)]
        return ([], values, lambda _: None) if of_tile else (values, [], lambda _: None)

    inputs, tiles = ([], [given]) if of_tile else ([given], [])
    with autograd.record():
        kept = Recording(BackwardCalls(), inputs, tiles, [output], differentiate)
        loss = output * 1
    loss.backward()
    assert given.grad.asscalar() == 1
    assert events == ["wait", "copy"]
    assert kept.finished()


def test_a_callback_that_fails_fails_once(fake):
    def program(phases, contexts, arrays):
        made = fakes.Program(phases, contexts, arrays)
        backward = made.backward

        def sometimes(*args, **options):
            if switched_on:
                raise KeyError("lost")
            return backward(*args, **options)

        made.backward = sometimes
        return made

    def run():
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for number in range(4):
            with autograd.record():
                loss = (net(data()) ** 2).mean()
            if number == 1 and tofu.gluon.session.session.active() is not None:
                switched_on.add("callback")
                with pytest.raises(KeyError, match="lost"):
                    loss.backward()
                switched_on.clear()
            elif number != 1:
                loss.backward()
                trainer.step(1)
        return {n: v for n, v in weights(net).items() if "running" not in n}

    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    with fakes.using(fakes.backend(), program=program):
        found = run()
    expected = plainly(run)
    tofu.gluon.disable()
    assert_same(found, expected)


def test_backward_after_disabling_says_so(fake, capfd):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    net, inputs = make_net(), data()
    inputs.attach_grad()
    with autograd.record():
        loss = (net(inputs) ** 2).sum()
    tofu.gluon.disable()
    loss.backward()
    with pytest.raises(mx.MXNetError):
        inputs.grad.asnumpy()
    assert "recorded before tofu.disable()" in capfd.readouterr().err


def run_script(text):
    """Run an indented script in a process of its own."""
    quiet = "import warnings; warnings.simplefilter('ignore')"
    return forked.run(["-c", quiet + textwrap.dedent(text)], timeout=60)


DECONVOLUTION = """
    import mxnet as mx, tofu
    from mxnet import autograd, gluon, nd

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="n_")
            with self.name_scope():
                self.w = self.params.get("w", shape=(6, 4, 4, 2))
                self.b = self.params.get("b", shape=(4,))

        def hybrid_forward(self, F, x, w, b):
            return F.Deconvolution(
                x, w, b, kernel=(4, 2), num_filter=4, stride=(3, 1), pad=(1, 0), no_bias=False
            )

    tofu.enable(workers=2, device="cpu", log="quiet")
    net = Net()
    net.initialize(mx.init.Uniform())
    net.hybridize()
    x = nd.random.normal(shape=(1, 6, 5, 7))
    x.attach_grad()
    with autograd.record():
        loss = nd.sum(net(x))
    try:
        loss.backward()
        mx.nd.waitall()
        print("ended")
    except mx.MXNetError as error:
        assert "thrown by operator" in str(error), str(error)
        print("ended")
"""


def test_errors_of_onednn_end_too():
    """Such errors are not of MXNet's own class; a transposed convolution may throw one."""
    done = run_script(DECONVOLUTION)
    assert done.stdout == "ended\n", done.stderr


NESTED = """
    import mxnet as mx
    from mxnet import autograd, gluon
    import tofu

    class Nested(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0].tanh())

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            x = in_data[0].detach()
            x.attach_grad()
            with autograd.record():
                y = x.tanh()
            y.backward(out_grad[0])
            self.assign(in_grad[0], req[0], x.grad)

    @mx.operator.register("nested")
    class Property(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Nested()

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.layer = gluon.nn.Dense(8, in_units=4)

        def hybrid_forward(self, F, x):
            return F.Custom(self.layer(x), op_type="nested")

    def gradients():
        mx.random.seed(1)
        net = Net()
        net.initialize()
        net.hybridize()
        x = mx.nd.ones((4, 4))
        x.attach_grad()
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        return net.layer.weight.grad().sum().asscalar(), x.grad.sum().asscalar()

    expected = gradients()
    tofu.enable(workers=2, device="cpu", log="quiet")
    assert max(abs(a - b) for a, b in zip(gradients(), expected)) < 1e-6
    print("ended")
"""


def test_operators_may_differentiate_for_themselves():
    """Such an operator's backward call must not wait for the script's, which waits for it."""
    done = run_script(NESTED)
    assert done.stdout == "ended\n", done.stderr


CRASHING = """
    import ctypes
    import mxnet as mx
    import tofu

    class Crashing(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            ctypes.string_at(0)

    @mx.operator.register("crashing")
    class Property(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Crashing()

    tofu.enable(workers=2, device="cpu", log="quiet")
    mx.nd.Custom(mx.nd.ones(3), op_type="crashing").wait_to_read()
"""


def test_a_crash_ends_the_process_and_names_the_line():
    """MXNet's own handler prints no line, and was seen to wait for ever for a lock of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASHING)],  # MXNet sets its handler when it loads
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert 'File "<string>", line 8 in forward' in done.stderr

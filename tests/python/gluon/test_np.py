"""Nets on arrays of mx.np: partitioned, and every array is what MXNet gives."""

import copy

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, npx
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.session.messages import TofuWarning
from tofu.gluon.training.parameter import is_tiled

from . import numpy_nets
from .models import plainly
from .numpy_nets import NETS

# A layer of odd size is replicated.
pytestmark = pytest.mark.filterwarnings("ignore:.*no dimension of")


@pytest.fixture(autouse=True)
def numpy():
    """Turn on NumPy arrays and shapes, as the book's scripts do."""
    npx.set_np()
    yield
    npx.reset_np()
    tofu.gluon.disable()


def started(make, batch, dtype):
    """A net and batches that do not depend on earlier runs."""
    mx.random.seed(7)
    np.random.seed(7)
    net = make()
    net.initialize()
    net(*batch("float32")[0])  # MXNet cannot initialize NumPy arrays in double precision
    net.cast(dtype)
    net.hybridize()
    return net, [batch(dtype) for _ in range(3)]


def train(name, dtype):
    """Losses, gradients, a prediction and weights of a net; whether all of it is tiled."""
    make, batch, loss_of = NETS[name]
    net, batches = started(make, batch, dtype)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    parameters, found = net.collect_params().values(), []
    for inputs, label in batches:
        with autograd.record():
            loss = loss_of(net(*inputs), label)
        loss.backward()
        found += [loss, *(p.grad().copy() for p in parameters if p.grad_req != "null")]
        trainer.step(1 if loss.shape == () else len(label))
    prediction = net(*batches[0][0])
    found += prediction if isinstance(prediction, (tuple, list)) else [prediction]
    found += [p.data() for p in parameters]
    npx.waitall()
    return found, all(map(is_tiled, parameters))


def assert_equal(found, expected, tolerance=1e-5, what=""):
    """Check that nested lists, dicts and arrays have equal classes, shapes, types and values."""
    assert type(found) is type(expected), what
    if isinstance(expected, dict):
        expected, found = list(expected.values()), list(found.values())
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), what
        for i, (one, other) in enumerate(zip(found, expected)):
            assert_equal(one, other, tolerance, f"{what}[{i}]")
    elif isinstance(expected, mx.nd.NDArray):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), what
        np.testing.assert_allclose(
            found.asnumpy(), expected.asnumpy(), rtol=tolerance, atol=tolerance, err_msg=what
        )
    else:
        assert found == expected, what


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NETS)
def test_nets(name, dtype, workers):
    check(name, dtype, workers)


@pytest.mark.parametrize(
    "workers", [7, *(pytest.param(each, marks=pytest.mark.whole) for each in (2, 3, 5, 6))]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NETS)
def test_nets_of_odd_sizes(name, dtype, workers, monkeypatch):
    for size, value in {"BATCH": 15, "CLASSES": 7, "WORDS": 13, "STEPS": 5, "HIDDEN": 10}.items():
        monkeypatch.setattr(numpy_nets, size, value)
    check(name, dtype, workers)


def check(name, dtype, workers):
    """Train partitioned and plainly, and compare."""
    tofu.gluon.enable(workers=workers, device="cpu", log="quiet")
    found, tiled = train(name, dtype)
    assert tiled
    tofu.gluon.disable()
    expected, _ = train(name, dtype)
    assert_equal(found, expected, {"float32": 2e-4, "float64": 1e-9}[dtype])


# --- Uses of parameters in scripts ---------------------------------------------------------


def small(prefix="small_"):
    mx.random.seed(7)
    np.random.seed(7)
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(8, activation="tanh", in_units=6), nn.Dense(4, in_units=8))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def inputs():
    return mx.np.array(np.random.RandomState(1).uniform(-1, 1, (12, 6)), dtype="float32")


def backward(net, x=None):
    with autograd.record():
        loss = (net(inputs() if x is None else x) ** 2).sum()
    loss.backward()
    return loss


def classes():
    net = small()
    loss = backward(net)
    weight = net[0].weight
    with autograd.record():
        recorded = weight.data()
        square, total = (recorded * recorded).sum(), net(inputs()).sum()
    by_recorded = autograd.grad(square, [recorded])
    with autograd.record():
        output = net(inputs())
    return [
        *(loss, output, weight.data(), weight.grad(), weight.data().grad, recorded, recorded.grad),
        *(weight.data().copy(), weight.data().detach(), weight.data()[1:3], weight.data().T),
        *(by_recorded, autograd.grad(total, [weight.data(), net[1].weight.data()])),
        *(copy.deepcopy(weight).data(), copy.copy(weight.data()), weight._reduce()),
    ]


def test_arrays_are_what_mxnet_gives(two):
    found = classes()
    assert_equal(found, plainly(classes))
    assert {type(each) for each in found} == {mx.np.ndarray, list}


def test_arrays_of_each_context_are_of_numpy_too(two):
    net = small()
    backward(net)
    (*_,) = values = net[0].weight.list_data()
    for array in (*values, *net[0].weight.list_grad()):
        assert type(array) is mx.np.ndarray and array.shape == (8, 6)
    with autograd.record():
        loss = net(inputs()).sum()
    (listed,) = autograd.grad(loss, values)
    with autograd.record():
        loss = net(inputs()).sum()
    (whole,) = autograd.grad(loss, [net[0].weight.data()])
    assert_equal(listed, whole)


def writes():
    net, found = small(), []
    backward(net)
    weight = net[0].weight
    held = weight.data()
    held[:] = held * 0.5
    found.append(net(inputs()))
    weight.data()[0, :] = 1
    found += [net(inputs()), held.copy()]
    weight.set_data(mx.np.ones((8, 6)))
    found += [net(inputs()), held.copy()]
    weight.initialize(mx.init.Constant(0.3), force_reinit=True)
    found += [net(inputs()), held.copy(), weight.data(), weight.grad()]
    weight.reset_ctx(mx.cpu())
    found += [net(inputs()), weight.data()]
    net.cast("float64")
    found += [net(inputs().astype("float64")), weight.data(), weight.grad()]
    return found


def test_writing_values(two):
    assert_equal(writes(), plainly(writes))


def clipped():
    """Clip gradients as the book does, by the values' attribute."""
    net = small()
    trainer, found = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for _ in range(3):
        found.append(backward(net))
        parameters = [p.data() for p in net.collect_params().values()]
        norm = sum((p.grad**2).sum() for p in parameters) ** 0.5
        for parameter in parameters:
            parameter.grad[:] *= 0.5 / norm
        found += [norm, *(p.grad.copy() for p in parameters)]
        trainer.step(1)
    return [*found, *(p.data() for p in net.collect_params().values())]


def test_clipping_gradients_of_values(two):
    assert_equal(clipped(), plainly(clipped))


def requests():
    net, found = small(), []
    weight = net[0].weight
    backward(net)
    for request in ("add", "write", "null", "add"):
        weight.grad_req = request
        for _ in range(2):
            backward(net)
            found.append(weight.grad().copy() if request != "null" else net(inputs()))
        net.collect_params().zero_grad()
        found.append(weight.grad() if request != "null" else None)
    return found


def test_gradient_requests(two):
    assert_equal(requests(), plainly(requests))


def test_zeros_reach_parameters_that_are_not_tiled(two):
    net = small()
    backward(net)
    other = gluon.Parameter("other", shape=(2,))
    other.initialize()
    with autograd.record():
        loss = other.data().sum()
    loss.backward()
    both = gluon.ParameterDict()
    both.update(net.collect_params())
    both._params["other"] = other
    both.zero_grad()
    assert not any(p.grad().asnumpy().any() for p in both.values())


def of_inputs():
    net, x = small(), inputs()
    x.attach_grad()
    with autograd.record():
        output = net(x)
    output.backward(mx.np.ones_like(output) * 3)
    weight = net[0].weight.grad()
    loss = backward(net, x)
    return [x.grad, weight, loss]


def test_gradients_of_inputs(two):
    assert_equal(of_inputs(), plainly(of_inputs))


def filed(folder):
    net, path = small(), str(folder / "net")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    backward(net)
    trainer.step(1)
    net.save_parameters(f"{path}.params")
    trainer.save_states(f"{path}.states")
    net.export(path)
    imported = gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
    found = [npx.load(f"{path}.params"), imported(inputs()), backward(imported)]
    backward(net)
    trainer.step(1)
    net.load_parameters(f"{path}.params")
    trainer.load_states(f"{path}.states")
    backward(net)
    trainer.step(1)
    return [*found, net(inputs()), [p.data() for p in net.collect_params().values()]]


@pytest.mark.filterwarnings("ignore:Cannot decide type")
def test_files(two, tmp_path):
    assert_equal(filed(tmp_path), plainly(filed, tmp_path))


def test_files_of_plain_mxnet(two, tmp_path):
    path = str(tmp_path / "net.params")
    net = small()
    backward(net)
    net[0].weight.set_data(mx.np.ones((8, 6)))
    net.save_parameters(path)
    expected = net(inputs())

    def load():
        other = small()
        backward(other)
        other.load_parameters(path)
        return other(inputs())

    assert_equal(load(), expected)
    assert_equal(plainly(load), expected)


def test_disabling_leaves_arrays_of_numpy(two):
    net = small()
    backward(net)
    held = net[0].weight.data()
    held[:] = 2
    tofu.gluon.disable()
    weight = net[0].weight
    assert not is_tiled(weight)
    arrays = [weight.data(), weight.grad(), *weight.list_data(), weight.data().grad]
    assert {type(array) for array in arrays} == {mx.np.ndarray}
    assert (weight.data() == 2).all()
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")


class One(mx.init.Initializer):
    """Also sets a number without dimensions, unlike MXNet's initializers."""

    def _init_weight(self, _name, array):
        array[()] = 1


class Scaled(gluon.HybridBlock):
    """A dense layer times a number that is trained."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = nn.Dense(4, in_units=6)
            self.scale = self.params.get("scale", shape=(), init=One())

    def hybrid_forward(self, F, x, scale):
        return self.dense(x) * scale


def numbers():
    mx.random.seed(7)
    np.random.seed(7)
    net = Scaled(prefix="scaled_")
    net.initialize()
    net.hybridize()
    trainer, found = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), []
    for request in ("write", "add", "add", "write"):
        net.scale.grad_req = request
        found += [backward(net), net.scale.data().copy(), net.scale.grad().copy()]
        trainer.step(12)
    return found


def test_numbers_without_dimensions(two):
    assert_equal(numbers(), plainly(numbers))


# --- Losses --------------------------------------------------------------------------------


LOSSES = {  # the others of MXNet 1.9.1 take no arrays of NumPy
    "L1Loss": lambda: mx.np.ones((12, 4)),
    "L2Loss": lambda: mx.np.ones((12, 4)),
    "SoftmaxCrossEntropyLoss": lambda: mx.np.arange(12) % 4,
    "SigmoidBinaryCrossEntropyLoss": lambda: mx.np.ones((12, 4)),
}


class WithLoss(gluon.HybridBlock):
    """A layer and a loss in one block."""

    def __init__(self, loss, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense, self.loss = nn.Dense(4, in_units=6), loss

    def hybrid_forward(self, F, x, label):
        return self.loss(self.dense(x), label)


def of_loss(name, inside):
    mx.random.seed(7)
    np.random.seed(7)
    loss = getattr(gluon.loss, name)()
    net = WithLoss(loss, prefix="with_loss_")
    net.initialize(mx.init.Xavier())
    for block in (net, net.dense, loss):
        block.hybridize()
    trainer, label, found = gluon.Trainer(net.collect_params(), "sgd"), LOSSES[name](), []
    for _ in range(3):
        with autograd.record():
            value = net(inputs(), label) if inside else loss(net.dense(inputs()), label)
        value.backward()
        trainer.step(12)
        found += [value, net.dense.weight.data().copy()]
    return found


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, inside, two):
    assert_equal(of_loss(name, inside), plainly(of_loss, name, inside))


# --- Operators that stay whole -------------------------------------------------------------


class Regions(gluon.HybridBlock):
    """A classifier of parts of images; the gradient of its pooling runs the pooling again."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.image = nn.Conv2D(4, kernel_size=3, padding=1, in_channels=2)
            self.classes = nn.Dense(6, in_units=36)

    def hybrid_forward(self, F, x, boxes):
        return self.classes(F.npx.roi_pooling(self.image(x), boxes, (3, 3), 1.0))


def regions():
    mx.random.seed(7)
    np.random.seed(7)
    net = Regions(prefix="regions_")
    net.initialize(mx.init.Xavier())
    net.hybridize()
    images = mx.np.array(np.random.uniform(-1, 1, (4, 2, 6, 6)), dtype="float32")
    boxes = mx.np.array([[0, 0, 0, 3, 3], [1, 1, 0, 4, 5], [2, 1, 1, 5, 5], [3, 0, 2, 4, 4]])
    trainer, found = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}), []
    for _ in range(3):
        with autograd.record():
            loss = (net(images, boxes.astype("float32")) ** 2).sum()
        loss.backward()
        trainer.step(4)
        found += [loss, *(p.data().copy() for p in net.collect_params().values())]
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("workers", [2, 3])
def test_gradients_that_run_an_operator_again(workers):
    tofu.gluon.enable(workers=workers, device="cpu", log="quiet")
    with pytest.warns(TofuWarning, match=r"_backward_ROIPooling: its gradient needs"):
        found = regions()
    tofu.gluon.disable()
    assert_equal(found, regions())


# --- Other ways to switch on NumPy's semantics ---------------------------------------------


@mx.util.use_np
class Decorated(gluon.HybridBlock):
    """A block whose methods switch on NumPy's semantics by themselves."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = nn.Dense(4, in_units=6)

    def hybrid_forward(self, F, x):
        y = self.dense(x)
        return F.np.mean(F.np.square(y - F.np.mean(y)), axis=1)  # with a number in between


@mx.util.use_np  # else its optimizer refuses arrays of NumPy
def trainer_of(net):
    return gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})


def decorated():
    mx.random.seed(7)
    np.random.seed(7)
    net = Decorated(prefix="decorated_")
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = trainer_of(net)
    found = []
    for _ in range(3):
        with autograd.record():
            loss = net(inputs())
        with mx.util.np_shape(True):  # for the number in between
            loss.backward()
        found += [loss, net.dense.weight.data().copy(), net.dense.weight.grad().copy()]
        trainer.step(12)
    return found


def test_decorated_blocks(two):
    """Includes blocks that were decorated before tofu was switched on."""
    npx.reset_np()
    found = decorated()
    assert two.graphs
    expected = plainly(decorated)
    assert_equal(found, expected)


def test_disabling_restores_decorated_blocks(two):
    names = ("__call__", "_call_cached_op", "_build_cache")
    tofu.gluon.disable()
    before = [vars(Decorated)[name] for name in names]
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    assert not set(before) & {vars(Decorated)[name] for name in names}
    tofu.gluon.disable()
    assert [vars(Decorated)[name] for name in names] == before


def test_classic_nets_before_and_after(two):
    """A session may have both kinds of nets."""
    npx.reset_np()
    classic = small()
    classic(mx.nd.ones((12, 6)))
    npx.set_np()
    backward(small("numpy_"))
    npx.reset_np()
    with autograd.record():
        loss = (classic(mx.nd.ones((12, 6))) ** 2).sum()
    loss.backward()
    weight = classic[0].weight
    arrays = [loss, weight.data(), weight.grad(), *weight.list_data()]
    assert not any(isinstance(array, mx.np.ndarray) for array in arrays)


def test_a_parameter_that_becomes_classic(two):
    net = small()
    backward(net)
    weight = net[0].weight
    assert type(weight.data()) is mx.np.ndarray
    npx.reset_np()
    weight.initialize(force_reinit=True)
    assert not isinstance(weight.data(), mx.np.ndarray)
    assert not isinstance(weight.grad(), mx.np.ndarray)


class Stacked(gluon.HybridBlock):
    """Two layers whose outputs NumPy stacks."""

    def __init__(self, stack, shape, **kwargs):
        super().__init__(**kwargs)
        self.stack, self.shape = stack, shape
        with self.name_scope():
            self.one = nn.Dense(12, in_units=12, flatten=False)
            self.two = nn.Dense(12, in_units=12, flatten=False)

    def hybrid_forward(self, F, x):
        parts = [layer(x).reshape(self.shape) for layer in (self.one, self.two)]
        joined = getattr(F.np, self.stack)([*parts, parts[0] * 2])
        return getattr(F.np, self.stack)([joined, F.np.tanh(joined)])


def stacks(stack, shape):
    mx.random.seed(7)
    np.random.seed(7)
    net = Stacked(stack, shape, prefix="stacked_")
    net.initialize()
    net.hybridize()
    x = mx.np.random.uniform(size=(12, 12))
    with autograd.record():
        out = net(x)
        loss = (out**2).sum()
    loss.backward()
    return [out, *(p.grad() for p in net.collect_params().values())]


@pytest.mark.parametrize("shape", [(144,), (12, 12), (12, 4, 3), (6, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("log", ["real"], indirect=True)
@pytest.mark.parametrize("stack", ["hstack", "dstack"])
def test_stacks(two, stack, shape):
    """MXNet cannot infer the shapes of stacks from those of computed tensors."""
    found = stacks(stack, shape)
    assert two.graphs
    assert_equal(found, plainly(stacks, stack, shape))

"""The Trainer with a kvstore that stands for several processes, in one process."""

import atexit
import copy
import sys
import threading
import types
import warnings

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.parameter import DeferredInitializationError
from mxnet.kvstore import KVStoreBase

import tofu.gluon
from tofu.boxes import Box, piece
from tofu.errors import ConfigError
from tofu.gluon.processes import cluster
from tofu.gluon.processes.cluster import Cluster
from tofu.gluon.session import messages
from tofu.gluon.training.parameter import is_tiled
from tofu.gluon.updates import distributed
from tofu.gluon.updates.exchanged_boxes import packed, unpacked

from . import fakes
from .models import assert_same, data, plainly

# pytest.warns passes on warnings that it does not expect, from anywhere.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZE = 3  # processes, all with the same gradients


class Store(KVStoreBase):
    """Stands for MXNet's distributed kvstore in one of several processes with equal gradients."""

    type = "dist_sync"
    rank = 0
    num_workers = SIZE

    def __init__(self):
        self.values = {}
        self.updater = None
        self.pushed = []
        self.handle = None

    @staticmethod
    def is_capable(capability):
        return True

    def set_optimizer(self, optimizer):
        optimizer = copy.copy(optimizer)
        optimizer.param_dict = {}
        self.updater = mx.optimizer.get_updater(optimizer)

    def broadcast(self, keys, values, outs, priority=0):
        for key, value, out in zip(keys, values, outs):
            assert key not in self.values
            self.values[key] = value.copy()
            for each in out:
                self.values[key].copyto(each)

    def push(self, key, value):
        """Push a message; the other processes push the same."""
        first = key - self.rank
        self.values.update({first + rank: self.told(rank, value) for rank in range(SIZE)})

    def told(self, rank, value):
        return value.copy()

    def _barrier(self):
        pass

    def pull(self, keys, outs):
        for key, (out,) in zip(keys, outs):
            self.values.pop(key).copyto(out)

    def pushpull(self, key, value, out, priority=0):
        self.pushed.append(key)
        if self.updater is None:
            self.values[key] = value * SIZE
        else:
            self.updater(key, value * SIZE, self.values[key])
        value[:] = np.nan  # MXNet writes the result there, on CPUs
        for each in out:
            self.values[key].copyto(each)


@pytest.fixture
def store(monkeypatch):
    """A connection to other processes that ends with the test."""
    monkeypatch.setattr(cluster, "_connection", None)
    monkeypatch.setattr(atexit, "register", lambda *args: None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield Store()
    if cluster.connected() is not None:
        cluster.connected().watchdog.stop()


def make_net(prefix="net_"):
    mx.random.seed(7)
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(12, activation="relu", in_units=10), nn.Dense(6, in_units=12))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def values(net):
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def fit(net, trainer, steps=3, of_all=SIZE, **options):
    """Train on equal batches in all processes."""
    for step in range(steps):
        with autograd.record():
            loss = (net(data() * (step + 1)) ** 2).sum() * (SIZE / of_all)
        loss.backward()
        trainer.step(12 * SIZE, **options)


def alone(optimizer="sgd", params=None, **options):
    """Train in one process with the gradients of all."""

    def run():
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), optimizer, dict(params or PARAMS))
        fit(net, trainer, of_all=1, **options)
        return values(net)

    return plainly(run)


PARAMS = {"learning_rate": 0.1, "momentum": 0.9}


def trained(store, update, optimizer="sgd", params=None):
    net = make_net()
    trainer = gluon.Trainer(
        net.collect_params(), optimizer, dict(params or PARAMS), store, update_on_kvstore=update
    )
    fit(net, trainer)
    return net, trainer


@pytest.mark.parametrize("update", [True, False, None])
@pytest.mark.parametrize(
    ("optimizer", "params"), [("sgd", PARAMS), ("adam", {"learning_rate": 0.05})]
)
def test_tiles_are_keys_of_their_own(store, workers, log, update, optimizer, params):
    net, trainer = trained(store, update, optimizer, params)
    assert_same(values(net), alone(optimizer, params), rounded=True)
    shapes = {value.shape for value in store.values.values()}
    assert not shapes & {p.shape for p in net.collect_params().values() if len(p.shape) > 1}
    assert trainer._update_on_kvstore is (update is not False)
    assert len(set(store.pushed)) == len(store.pushed) / 3


@pytest.mark.parametrize(("value", "limit"), [("", 600), ("7.5", 7.5), ("0", 0)])
def test_the_time_limit_is_the_variables(store, fake, monkeypatch, value, limit):
    monkeypatch.setenv("TOFU_TIMEOUT", value)
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    trained(store, True)
    assert cluster.connected().watchdog._limit_s == limit
    tofu.gluon.disable()


def test_nothing_is_gathered(store, two):
    with fakes.using(tofu.gluon.session.session.active().state.backend):
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {}, store)
        with autograd.record():
            loss = (net(data()) ** 2).sum()
        loss.backward()
        gathered = []
        state = tofu.gluon.session.session.active().state
        original = state.backend.gather
        state.backend = fakes.dataclasses.replace(
            state.backend,
            gather=lambda *args, **more: gathered.append(1) or original(*args, **more),
        )
        for _ in range(2):
            trainer.step(1)
            with autograd.record():
                loss = (net(data()) ** 2).sum()
            outputs = len(gathered)
            loss.backward()
        assert len(gathered) == outputs  # those of the net


@pytest.mark.filterwarnings("ignore:tofu. LAMB")
@pytest.mark.parametrize("update", [True, False])
def test_optimizers_that_need_whole_tensors(store, two, update):
    params = {"learning_rate": 0.05}
    net, _ = trained(store, update, "lamb", params)
    assert_same(values(net), alone("lamb", params), rounded=True)
    whole = {value.shape for value in store.values.values()}
    assert ({(12, 10), (6, 12)} <= whole) is update


def test_whole_gradients_on_servers_are_warned_of(store, two):
    with pytest.warns(messages.TofuWarning, match=r"LAMB.*sends whole gradients.*update_on_kv"):
        trained(store, True, "lamb", {"learning_rate": 0.05})


def test_gradients_stay_what_they_were(store, two):
    net, _ = trained(store, True)
    parameter = net[0].weight
    found = parameter.list_grad()  # keeps them
    assert np.isfinite(np.concatenate([each.asnumpy().ravel() for each in found])).all()


def test_gradients_are_summed_in_place(store, two):
    net = make_net()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {}, store, update_on_kvstore=False)
    with autograd.record():
        loss = (net(data()) ** 2).sum()
    loss.backward()
    before = net[0].weight.grad().asnumpy()
    held = net[0].weight.grad()
    trainer.allreduce_grads()
    np.testing.assert_allclose(held.asnumpy(), SIZE * before, 1e-6)
    trainer.update(1)


@pytest.mark.parametrize("update", [True, False])
def test_what_the_script_writes_into_gradients_counts(store, two, update):
    def run(kvstore, of_all):
        options = {"kvstore": kvstore, "update_on_kvstore": update} if kvstore else {}
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, **options)
        net(data())
        held = net[0].weight.data()
        for _ in range(2):  # not only in the first step
            with autograd.record():
                loss = (net(data()) ** 2).sum() * (SIZE / of_all)
            loss.backward()
            for parameter in net.collect_params().values():
                parameter.grad()[:] *= 0.5
            trainer.step(12 * SIZE)
        return held.asnumpy(), values(net)

    assert_same(run(store, SIZE), plainly(run, None, 1), rounded=True)


class Other(Store):
    """A process other than 0, which takes the values of process 0: twice its own."""

    rank = 1

    def broadcast(self, keys, values, outs, priority=0):
        super().broadcast(keys, [value * 2 for value in values], outs, priority)


@pytest.mark.filterwarnings("ignore:tofu. LAMB")
@pytest.mark.parametrize("optimizer", ["sgd", "lamb"])  # tiles, and whole tensors
def test_all_processes_take_the_values_of_the_first(store, two, optimizer):
    net = make_net()
    with autograd.record():
        net(data()).sum().backward()
    held = net[0].weight.data()
    before = values(net)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {}, Other())
    trainer._init_kvstore()
    trainer._init_params()
    assert is_tiled(net[0].weight)
    assert_same(values(net), {name: 2 * value for name, value in before.items()})
    assert_same(held, 2 * before[net[0].weight.name])


def test_a_batch_of_another_size_is_warned_of_as_by_mxnet(store, two):
    net, trainer = trained(store, True)
    with autograd.record():
        loss = (net(data()) ** 2).sum()
    loss.backward()
    with pytest.raises(UserWarning, match="Possible change in the `batch_size`"):
        trainer.step(7)


@pytest.mark.parametrize("update", [True, False])
def test_stale_gradients(store, two, update):
    net, trainer = trained(store, update)
    before, pushed = values(net), len(store.pushed)
    with pytest.raises(UserWarning, match="has not been updated by backward since last `step`"):
        trainer.step(12 * SIZE)
    trainer.step(12 * SIZE, ignore_stale_grad=True)
    assert len(store.pushed) == pushed
    assert_same(values(net), before)
    fit(net, trainer, 1)
    assert len(store.pushed) > pushed


def test_parameters_that_are_used_later_join_later(store, two):
    first, second = make_net("first_"), make_net("second_")
    second.collect_params().initialize(mx.init.Xavier(), force_reinit=True)
    params = {**first.collect_params(), **second.collect_params()}
    trainer = gluon.Trainer(params, "sgd", dict(PARAMS), store)
    fit(first, trainer, 2, ignore_stale_grad=True)
    keys = len(store.values)
    fit(second, trainer, 2, ignore_stale_grad=True)
    # Tensors were whole in the first step, and keep one key each.
    assert len(store.values) == keys
    assert is_tiled(second[0].weight)
    sent = {len(p._tofu.variables) for p in params.values()}
    assert sent == {2}


def test_deferred_parameters_wait_for_the_first_batch(store, two, tmp_path):
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(4, in_units=10), nn.Dense(6))
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", dict(PARAMS), store)
    threads = threading.active_count()
    with pytest.raises(DeferredInitializationError):  # MXNet's own
        trainer.save_states(str(tmp_path / "states"))
    assert threading.active_count() == threads
    fit(net, trainer, 2)
    assert not trainer._params_to_init and len(set(store.pushed)) == 8


def test_states_are_loaded_before_parameters_are_tiled(store, two, tmp_path):
    path, weights = str(tmp_path / "states"), str(tmp_path / "net")

    def run(kvstore, of_all):
        options = {"kvstore": kvstore, "update_on_kvstore": False} if kvstore else {}
        net = make_net()
        net.load_parameters(weights)
        trainer = gluon.Trainer(net.collect_params(), "sgd", dict(PARAMS), **options)
        trainer.load_states(path)
        fit(net, trainer, of_all=of_all)
        return values(net)

    def save():
        net = make_net()
        trainer = gluon.Trainer(net.collect_params(), "sgd", dict(PARAMS))
        fit(net, trainer, of_all=1)
        net.save_parameters(weights)
        trainer.save_states(path)

    plainly(save)
    assert_same(run(store, SIZE), plainly(run, None, 1), rounded=True)
    assert all(len(value.shape) < 2 or value.shape[0] * value.shape[1] < 72
               for value in store.values.values())  # fmt: skip


@pytest.mark.parametrize("method", ["save_states", "load_states"])
def test_states_on_servers_cannot_be_saved(store, two, method, tmp_path):
    _, trainer = trained(store, True)
    with pytest.raises(ConfigError, match=rf"{method}: the optimizer runs on the parameter serv"):
        getattr(trainer, method)(str(tmp_path / "states"))


def test_one_process_writes(store, two, tmp_path):
    for rank in (1, 0):
        cluster._connection = None
        store = Store()
        store.rank = rank
        net, trainer = trained(store, False)
        net.save_parameters(str(tmp_path / "net"))
        net.collect_params().save(str(tmp_path / "dictionary"))
        trainer.save_states(str(tmp_path / "states"))
        net.export(str(tmp_path / "exported"))
        mx.nd.save(str(tmp_path / f"own-{rank}"), mx.nd.ones(2))  # is no checkpoint
        found = sorted(path.name for path in tmp_path.iterdir())
        if rank:
            assert found == ["own-1"]
            cluster.connected().watchdog.stop()
    assert found == ["dictionary", "exported-0000.params", "exported-symbol.json", "net",
                     "own-0", "own-1", "states"]  # fmt: skip


def test_several_trainers_share_the_connection(store, two):
    first, second = make_net("first_"), make_net("second_")
    trainers = [
        gluon.Trainer(net.collect_params(), "sgd", dict(PARAMS), store, update_on_kvstore=False)
        for net in (first, second)
    ]
    for net, trainer in zip((first, second), trainers):
        fit(net, trainer)
    expected = {name.partition("_")[2]: value for name, value in alone().items()}
    for net in (first, second):
        found = {name.partition("_")[2]: value for name, value in values(net).items()}
        assert_same(found, expected, rounded=True)


def test_a_second_trainer_updates_by_itself(store, two):
    trained(store, False)
    net = make_net("second_")
    for kvstore in (store, "dist_sync"):
        trainer = gluon.Trainer(net.collect_params(), "sgd", dict(PARAMS), store)
        trainer._kvstore_params["kvstore"] = kvstore
        fit(net, trainer)
        assert trainer._kvstore is store and trainer._update_on_kvstore is False


def test_several_trainers_cannot_all_update_on_servers(store, two):
    trained(store, True)
    net = make_net("second_")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {}, store)
    with pytest.raises(ConfigError, match=r"servers have one optimizer.*update_on_kvstore"):
        fit(net, trainer)
    other = gluon.Trainer(net.collect_params(), "sgd", {}, Store())
    with pytest.raises(ConfigError, match="a second distributed kvstore in this process"):
        fit(net, other)


class Elsewhere(Store):
    """A store whose other processes describe other values, as `change` says."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def told(self, rank, value):
        message = value.asnumpy().astype(np.uint8).tobytes()
        if rank != self.rank and len(message) > cluster._LENGTH:
            message = self.changed(message)
        elif rank != self.rank:  # the length of the description
            message = len(self.changed(self.message)).to_bytes(cluster._LENGTH, "big")
        return mx.nd.array(list(message))

    def changed(self, message):
        described = unpacked(message)
        self.change(described)
        return packed(described)


def connected_to(monkeypatch, change):
    """A store that knows this process's description beforehand."""
    found = Elsewhere(change)
    original = Cluster.gather

    def gather(self, message):
        found.message = message
        return original(self, message)

    monkeypatch.setattr(Cluster, "gather", gather)
    return found


@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("parts", [1, 3, 5])
def test_processes_may_have_other_tiles(store, workers, monkeypatch, parts, update):
    """The others have `parts` workers, which cut the last dimension."""

    def change(described):
        for number, boxes in enumerate(described.tiles):
            whole = [(0, int(end)) for end in np.max(boxes, axis=0)[:, 1]]
            cut = [piece(whole[-1], parts, each) for each in range(parts)]
            described.tiles[number] = [Box((*whole[:-1], each)) for each in cut]

    found = connected_to(monkeypatch, change)
    net, _ = trained(found, update)
    keys = len(found.pushed) / 3
    own = sum(len(set(p._tofu.layout.boxes)) for p in net.collect_params().values())
    assert keys == own if parts == 1 else keys >= max(own, 4 * parts)
    assert_same(values(net), alone(), rounded=True)


def test_a_process_with_other_parameters_is_told(store, two, monkeypatch):
    def change(described):
        described.facts["parameter 2"] = "[5] float32 write"

    with pytest.raises(ConfigError, match=r"parameter 2: \[5\] float32 write in worker process 1, "
                       r"\[6\] float32 write in process 0; expected the same model"):  # fmt: skip
        trained(connected_to(monkeypatch, change), True)


def test_a_process_with_more_parameters_is_told(store, two, monkeypatch):
    def change(described):
        described.facts["number of parameters"] = 5

    with pytest.raises(ConfigError, match="number of parameters: 5 in worker process 1, 4 in proc"):
        trained(connected_to(monkeypatch, change), False)


def test_turning_tofu_off_leaves_a_plain_trainer(store, two):
    _, trainer = trained(store, False)
    tofu.gluon.disable()
    assert distributed.of(trainer) is None
    assert trainer._params_to_init == trainer._params
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")


def test_copies_of_a_trainer_are_not_connected(store, two):
    _, trainer = trained(store, True)
    assert distributed.of(copy.deepcopy(trainer._tofu_connection)) is None


# --- Refusals ---------------------------------------------------------------------------------


def horovod():
    module = types.ModuleType("horovod.mxnet")
    source = "from mxnet import gluon\nclass DistributedTrainer(gluon.Trainer):\n    pass"
    exec(source, vars(module))
    return module.DistributedTrainer


@pytest.mark.parametrize(
    ("kvstore", "text"),
    [
        ("dist_async", r"kvstore='dist_async'\): updates of one process at a time.*'dist_sync'"),
        ("Dist_Device_Async", "one process at a time"),
        ("horovod", r"kvstore='horovod'\): reduces whole gradients"),
        ("byteps", "reduces whole gradients"),
        ("dist_sync", "DMLC_ROLE, DMLC_PS_ROOT_URI, .* not set; start .* tofu run --processes N"),
        ("dist_device_sync", "DMLC_PS_ROOT_PORT"),
    ],
)
def test_kvstores_that_are_refused(two, monkeypatch, kvstore, text):
    for name in cluster._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    net = make_net()

    def train():
        fit(net, gluon.Trainer(net.collect_params(), "sgd", kvstore=kvstore))

    with pytest.raises(ConfigError, match=text):
        train()


def test_a_script_for_several_processes_can_be_planned_alone(two, monkeypatch):
    """tofu plan runs the script alone, up to its first training graph."""
    for name in cluster._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    net = make_net()
    gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    with autograd.record():
        net(data()).sum().backward()
    assert is_tiled(net[0].weight)


def test_trainers_that_are_refused(two):
    with pytest.raises(ConfigError, match=r"horovod.mxnet.DistributedTrainer: reduces whole"):
        horovod()(make_net().collect_params(), "sgd", kvstore=None)


def test_the_p3_store_is_refused(two, monkeypatch):
    monkeypatch.setenv("DMLC_PS_VAN_TYPE", "p3")
    with pytest.raises(ConfigError, match="DMLC_PS_VAN_TYPE=p3"):
        gluon.Trainer(make_net().collect_params(), "sgd", kvstore="dist_sync")


def test_compression_is_refused(store, two):
    net = make_net()
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {}, store, compression_params={"type": "2bit"}
    )
    with pytest.raises(ConfigError, match="compression_params"):
        fit(net, trainer)


def test_sparse_parameters_are_refused(store, two):
    net = nn.Embedding(8, 4, sparse_grad=True, prefix="sparse_")
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {}, store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with autograd.record():
            loss = net(mx.nd.array([1, 2])).sum()
        loss.backward()
    with pytest.raises(ConfigError, match="parameter sparse_weight is sparse"):
        trainer.step(1)


def test_keys_that_mxnet_cannot_number_are_refused(store):
    found = Cluster(lambda: store, 0)
    assert found.new_keys(2) == [65536, 65537]
    assert found.new_keys(1) == [65538]
    with pytest.raises(ConfigError, match="use fewer workers in each process"):
        found.new_keys(200_000)

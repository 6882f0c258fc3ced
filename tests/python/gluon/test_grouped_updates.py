"""SGD on tiles in groups of similar sizes: MXNet's bits, with fewer calls."""

import mxnet as mx
import numpy as np
import pytest

from tofu.gluon.updates import grouped_updates
from tofu.gluon.updates.grouped_updates import Tile, calls_for, group_tiles, is_grouped

from .models import assert_same, plainly, train

SHAPES = [(3,), (40, 50), (7,), (2, 2), (300, 300), (3,), (64,), (1,), (40, 51)]


def tiles(dtypes, seed):
    random = np.random.RandomState(seed)
    return [mx.nd.array(random.uniform(-1, 1, s), dtype=d) for s, d in zip(SHAPES, dtypes)]


def updated(update, dtypes, **options):
    """Weights and states after an update of only some tiles, and three of all."""
    rates = {"lr_scheduler": lambda count: 0.1 / count}
    optimizer = mx.optimizer.SGD(wd=1e-3, **rates, **options)
    optimizer.set_lr_mult({0: 0.5, 4: 2.0})
    optimizer.set_wd_mult({1: 3.0})
    updater = mx.optimizer.get_updater(optimizer)
    weights = tiles(dtypes, 0)
    for index, weight in enumerate(weights):
        updater.states[index] = optimizer.create_state_multi_precision(index, weight)
        updater.states_synced[index] = True
    for step in range(4):
        gradients = tiles(dtypes, step + 1)
        jobs = list(zip(range(len(SHAPES)), gradients, weights))
        late = [i for i in range(len(SHAPES)) if dtypes[i] != dtypes[0] or i == 8]
        chosen = late if step == 0 else range(len(SHAPES))
        update(updater, [jobs[i] for i in chosen], [dtypes[i] for i in chosen])
    arrays = [*weights, *(a for i in range(len(SHAPES)) for a in flat(updater.states[i]))]
    return [array.asnumpy() for array in arrays], optimizer.num_update


def flat(state):
    nested = state if isinstance(state, tuple) else (state,)
    return [array for array in nested if array is not None]


def by_mxnet(updater, jobs, dtypes):
    updater(*zip(*jobs))


def in_groups(updater, jobs, dtypes):
    tiles = [Tile(index, dtype, job.shape, False) for (index, _, job), dtype in zip(jobs, dtypes)]
    for numbers, update in calls_for(updater.optimizer, [0], tiles):
        update(updater, [jobs[number] for number in numbers])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize(
    ("dtypes", "mixed"),
    [
        (["float32"] * 9, False),
        (["float64"] * 9, False),
        (["float16"] * 9, True),
        (["float32", "float16", "float64"] * 3, True),
        (["float32", "float16"] * 4 + ["float32"], False),
    ],
    ids=["float32", "float64", "half with masters", "all three", "half without masters"],
)
@pytest.mark.filterwarnings("ignore:Accumulating with float16")
def test_the_bits_are_those_of_mxnets_groups(dtypes, mixed, momentum, clip):
    options = {"momentum": momentum, "clip_gradient": clip, "multi_precision": mixed}
    found, expected = (updated(how, dtypes, **options) for how in (in_groups, by_mxnet))
    assert found[1] == expected[1]
    assert len(found[0]) == len(expected[0])
    for one, other in zip(found[0], expected[0]):
        assert one.tobytes() == other.tobytes()


def test_small_tiles_share_a_call_and_large_ones_have_their_own():
    shapes = [(1 << 15,), (4,), (1 << 17,), (1 << 15, 1), (1 << 15,), (4,), (1 << 17,)]
    assert group_tiles(["float32"] * 7, shapes) == [[1, 5], [0, 3], [4], [2], [6]]


def test_a_call_has_one_data_type_and_a_bounded_number_of_tiles():
    assert group_tiles(["float32", "float16"] * 2, [(4,)] * 4) == [[1, 3], [0, 2]]
    assert [len(group) for group in group_tiles(["float32"] * 130, [(2,)] * 130)] == [60, 60, 10]


def test_a_trainer_calls_once_for_each_worker(two, monkeypatch):
    calls = []

    def counted(operator):
        return lambda *arrays, **options: calls.append(options) or operator(*arrays, **options)

    operators = {key: counted(each) for key, each in grouped_updates._OPERATORS.items()}
    monkeypatch.setattr(grouped_updates, "_OPERATORS", operators)
    options = {"learning_rate": 0.05, "momentum": 0.9, "clip_gradient": 0.4}
    found = train("sgd", options, steps=3)
    assert len(calls) == 2 * 3
    assert_same(found[:2], plainly(train, "sgd", options, steps=3)[:2])


class OwnSGD(mx.optimizer.SGD):
    pass


def test_a_scripts_own_groups_are_kept(monkeypatch):
    assert is_grouped(mx.optimizer.SGD())
    assert not is_grouped(OwnSGD())
    assert not is_grouped(mx.optimizer.Adam())
    one_by_one = mx.optimizer.SGD()
    one_by_one.aggregate_num = 0
    assert not is_grouped(one_by_one)
    monkeypatch.setenv("MXNET_OPTIMIZER_AGGREGATION_SIZE", "4")
    assert not is_grouped(mx.optimizer.SGD())

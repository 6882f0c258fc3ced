"""Arguments and results of blocks become patterns of arrays, and back."""

import collections

import mxnet as mx
import numpy as np
import pytest

from tofu.gluon.blocks import nesting

Pair = collections.namedtuple("Pair", "left right")
ONE, TWO = mx.nd.ones((1,)), mx.nd.ones((2,))


@pytest.mark.parametrize(
    "value",
    [
        ONE,
        [ONE, (TWO, None)],
        {"b": ONE, "a": [TWO, 3]},
        collections.OrderedDict([("b", ONE), ("a", TWO)]),
        Pair(ONE, {"x": TWO}),
        (),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back_with_its_types(value):
    def same(found, expected):
        assert type(found) is type(expected)
        if isinstance(expected, dict):
            assert list(found) == list(expected)
            found, expected = list(found.values()), list(expected.values())
        if isinstance(expected, (list, tuple)):
            assert len(found) == len(expected)
            for one, other in zip(found, expected):
                same(one, other)
        elif isinstance(expected, mx.nd.NDArray):
            np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())
        else:
            assert found == expected

    leaves, pattern = nesting.flatten(value)
    same(nesting.rebuild(pattern, leaves), value)

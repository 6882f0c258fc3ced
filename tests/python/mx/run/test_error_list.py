"""MXNet's list of errors is long enough before several workers can fail at once."""

import mxnet as mx
import pytest

import tofu
from tofu.mx.run import error_list


def failing():
    return mx.nd.linalg.potrf(mx.nd.full((2, 2), -1))


@pytest.fixture
def fresh():
    error_list.reserve.cache_clear()
    yield
    error_list.reserve()


def test_leaves_no_error_behind(fresh):
    failed = error_list.reserve()
    mx.nd.waitall()
    assert len(failed) == 128
    assert mx.nd.ones(3).sum().asscalar() == 3
    for array in failed:
        array.wait_to_read()  # an error that was left would be raised here
    with pytest.raises(mx.MXNetError, match="potrf"):
        failing().asnumpy()


def test_is_filled_again_without_an_error():
    failing()
    with pytest.raises(mx.MXNetError, match="potrf"):
        mx.nd.waitall()
    before = len(error_list._kept)
    error_list.refill()
    mx.nd.waitall()
    assert [len(arrays) for arrays in error_list._kept[before:]] == [128]


def test_an_error_of_the_script_is_not_lost(fresh):
    failing()
    with pytest.raises(mx.MXNetError, match="potrf"):
        error_list.reserve()


def test_is_done_when_tofu_is_turned_on(fresh):
    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        assert error_list.reserve.cache_info().misses == 1
        tofu.enable(workers=3, device="cpu", log="quiet")
        assert error_list.reserve.cache_info().misses == 1
    finally:
        tofu.disable()

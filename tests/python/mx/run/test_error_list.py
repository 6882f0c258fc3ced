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
        array.wait_to_read()  # would raise an error that is left
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


class _Failing(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        raise ValueError("fails on purpose")


@mx.operator.register("tofu_test_failing")
class _FailingProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Failing()


def test_operators_in_python_that_fail_at_once_have_an_error_each():
    error_list.take_turns()
    for _ in range(10):
        arrays = [mx.nd.ones((2,), ctx=mx.cpu(worker)) for worker in range(8)]
        outputs = [mx.nd.Custom(array, op_type="tofu_test_failing") for array in arrays]
        for output in outputs:
            with pytest.raises(mx.MXNetError):
                output.wait_to_read()
    error_list.refill()


def test_classes_take_turns_whenever_they_are_defined():
    error_list.take_turns()

    class Later(_Failing):
        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            pass

    assert Later.forward is _Failing.forward
    for method in (_Failing.forward, Later.backward):
        assert method._tofu_takes_turns and not hasattr(method.__wrapped__, "_tofu_takes_turns")


def test_is_done_when_tofu_is_turned_on(fresh):
    tofu.enable(workers=2, device="cpu", log="quiet")
    try:
        assert error_list.reserve.cache_info().misses == 1
        tofu.enable(workers=3, device="cpu", log="quiet")
        assert error_list.reserve.cache_info().misses == 1
    finally:
        tofu.disable()

"""A recorded function writes into the gradients that MXNet asks it for."""

import pytest
from mxnet import nd

from tofu.gluon.session.autograd_hooks import ADD, INPLACE, NULL, WRITE, write_gradient


@pytest.mark.parametrize(
    ("request_", "written", "zeros"),
    [(NULL, 5.0, 5.0), (WRITE, 2.0, 0.0), (INPLACE, 2.0, 0.0), (ADD, 7.0, 5.0)],
    ids=["null", "write", "in place", "add"],
)
def test_a_gradient_is_written_as_its_request_says(request_, written, zeros):
    target = nd.full((3,), 5.0)
    write_gradient(target, nd.full((3,), 2.0), request_)
    assert target.asnumpy().tolist() == [written] * 3
    target = nd.full((3,), 5.0)
    write_gradient(target, None, request_)
    assert target.asnumpy().tolist() == [zeros] * 3

import pytest

pytest.importorskip("mxnet")

import tofu.gluon
from tofu.gluon import rooms

from . import fakes


@pytest.fixture
def log():
    return fakes.Log()


@pytest.fixture(params=(2, 3, 4))
def workers(request, log):
    """Tofu on over this many CPU workers, with fake rooms below it."""
    with rooms.using(fakes.rooms(log)):
        tofu.gluon.enable(workers=request.param, device="cpu", log="quiet")
        yield request.param
        tofu.gluon.disable()


@pytest.fixture
def two(log):
    """Tofu on over two CPU workers, with fake rooms below it."""
    with rooms.using(fakes.rooms(log)):
        tofu.gluon.enable(workers=2, device="cpu", log="quiet")
        yield log
        tofu.gluon.disable()

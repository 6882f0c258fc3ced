import pytest

pytest.importorskip("mxnet")

import tofu.gluon
from tofu.gluon import backend

from . import fakes


@pytest.fixture(params=["fake", "real"])
def log(request):
    """What the other layers are asked to do; once fake ones, once tofu's own."""
    log = fakes.Log()
    found = fakes.backend() if request.param == "fake" else backend.own()
    with fakes.using(fakes.logged(found, log)):
        yield log


@pytest.fixture
def fake():
    """Fakes in place of the other layers."""
    with fakes.using(fakes.backend()):
        yield


@pytest.fixture(params=(2, 3, 4))
def workers(request, log):
    """Tofu on over this many CPU workers."""
    tofu.gluon.enable(workers=request.param, device="cpu", log="quiet")
    yield request.param
    tofu.gluon.disable()


@pytest.fixture
def two(log):
    """Tofu on over two CPU workers."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    yield log
    tofu.gluon.disable()


@pytest.fixture
def on(fake):
    """Tofu on over two workers and a fake backend."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    yield
    tofu.gluon.disable()

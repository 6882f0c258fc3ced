import pytest

pytest.importorskip("mxnet")

import tofu.gluon
from tofu.gluon.session import backend

from . import fakes, zero_runs


def pytest_generate_tests(metafunc):
    if "divided" in metafunc.fixturenames:
        zero_runs.some_of_each(metafunc)


@pytest.fixture
def divided(request):
    """Turn tofu on with plans that divide gradients or states in other ways than weights."""
    with zero_runs.dividing(*request.param):
        yield


@pytest.fixture(params=["fake", "real"])
def log(request):
    """The calls to the other layers; once with fakes, once with tofu's own."""
    log = fakes.Log()
    found = fakes.backend() if request.param == "fake" else backend.own()
    with fakes.using(fakes.logged(found, log)):
        yield log


@pytest.fixture
def fake():
    """Replace the other layers with fakes."""
    with fakes.using(fakes.backend()):
        yield


@pytest.fixture(params=(2, 3, 4))
def workers(request, log):
    """Turn tofu on, with this many CPU workers."""
    tofu.gluon.enable(workers=request.param, device="cpu", log="quiet")
    yield request.param
    tofu.gluon.disable()


@pytest.fixture
def two(log):
    """Turn tofu on, with two CPU workers."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    yield log
    tofu.gluon.disable()


@pytest.fixture
def on(fake):
    """Turn tofu on, over two workers and a fake backend."""
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    yield
    tofu.gluon.disable()

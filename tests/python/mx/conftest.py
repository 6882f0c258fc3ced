"""The extension library: the installed one, or the file that TOFU_MXNET_LIBRARY names."""

import os
from pathlib import Path

import mxnet as mx
import pytest

from tofu.mx import extension


@pytest.fixture(scope="session", autouse=True)
def library():
    path = os.environ.get("TOFU_MXNET_LIBRARY")
    extension.load(Path(path) if path else None)


@pytest.fixture(autouse=True)
def seed():
    mx.random.seed(7)

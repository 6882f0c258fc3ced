"""Problems of models, files and symbols, as runs pose them."""

import pytest

pytest.importorskip("mxnet")

from tofu.config import Config
from tofu.mx.model.sources import from_model


@pytest.mark.parametrize(("fetch", "may_stay_whole"), [("plain", False), ("multifetch", True)])
def test_batch_norms_may_stay_whole_unless_mxnet_copies(fetch, may_stay_whole):
    config = Config(fetch=fetch, device="cpu")
    problem = from_model("mlp", batch_size=8, optimizer="sgd", workers=2, config=config)
    assert (problem.refine is not None) is may_stay_whole

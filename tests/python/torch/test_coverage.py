"""Nearly all calls of small models of the package transformers are described, and planned."""

from __future__ import annotations

import pytest

from tofu.torch import plan

from .hugging import NAMES, made

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", NAMES)
def test_nearly_all_calls_are_described(name: str) -> None:
    found = plan(*made(name, transformers), mesh=(2, 2), name=name)
    unknown = [str(o.target) for o in found.traced.operators if str(o.target) in found.undescribed]
    assert len(unknown) <= 0.02 * len(found.traced.operators), unknown

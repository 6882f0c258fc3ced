"""Random sizes for an operator's calls."""

from __future__ import annotations

import pytest

pytest.importorskip("mxnet")

from tofu.errors import TdlError
from tofu.verify.calls.operator_calls import cases_by_operator
from tofu.verify.check import draw


def test_a_call_that_its_description_refuses_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    (case, *_) = cases_by_operator()["relu"]
    assert draw._is_call(case, case)

    def refuses(*_: object) -> None:
        raise TdlError("relu: expected other sizes")

    monkeypatch.setattr(draw, "row_for", refuses)
    assert not draw._is_call(case, case)

"""The moments between which a trace profiles steps."""

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from tofu.trace import profiled_run


def test_the_last_step_is_over_when_its_operators_are(monkeypatch, tmp_path):
    calls = []
    recorder = profiled_run._Recorder(0, 2, None, tmp_path / "profile.json")
    monkeypatch.setattr(recorder, "_begin_if_due", lambda: calls.append("begin"))
    monkeypatch.setattr(recorder, "_stop", lambda: calls.append("stop"))
    monkeypatch.setattr(mx.nd, "waitall", lambda: calls.append("wait"))
    monkeypatch.setattr(profiled_run, "_now", lambda: calls.append("now") or float(len(calls)))
    step = recorder.update(lambda trainer: None)
    step(None)
    with pytest.raises(profiled_run._Ended):
        step(None)
    assert calls == ["now", "begin", "wait", "now", "stop"]
    assert recorder.steps == [(0.0, 1.0), (1.0, 4.0)]

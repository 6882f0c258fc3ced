"""Processes that check operators are ended if a call takes too long."""

import multiprocessing
from types import SimpleNamespace

from tofu.verify.check import subprocesses


class Silent(subprocesses._Worker):
    """A process that never answers."""

    def __init__(self, seed, quick):
        self.pipe, self.other = multiprocessing.Pipe()
        self.process = SimpleNamespace(kill=lambda: None, join=lambda: None)
        self.given = 0


def test_a_silent_process_is_given_the_whole_time_limit(monkeypatch):
    now = [1000.0]

    def wait(_, timeout):
        now[0] += 40
        return []

    monkeypatch.setattr(subprocesses, "_Worker", Silent)
    monkeypatch.setattr(subprocesses, "wait", wait)
    monkeypatch.setattr(subprocesses, "time", SimpleNamespace(monotonic=lambda: now[0]))
    (verdict,) = subprocesses.check_all(["dot"], 0, processes=1)
    assert now == [1080]
    (finding,) = verdict.skipped
    assert "a call took more than 60 s" in finding.detail

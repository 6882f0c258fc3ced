"""The watchdog of a process: it gives up waiting for others that are gone or take too long."""

import time

import pytest

from tofu.gluon.processes import heartbeats


class Clock:
    """Time that passes when a test says so, and waits for a watchdog's look at it."""

    def __init__(self):
        self.now, self.looks = 0.0, 0

    def monotonic(self):
        return self.now

    def look(self):
        """Replaces Watchdog.dead, which every look calls first."""
        self.looks += 1
        return []

    def passes(self, seconds):
        self.now += seconds
        seen, until = self.looks, time.monotonic() + 60
        while self.looks < seen + 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert self.looks >= seen + 2


@pytest.fixture
def told(monkeypatch):
    """The message of a watchdog that gives up."""
    found = []
    monkeypatch.setattr(heartbeats, "give_up", found.append)
    monkeypatch.setattr(heartbeats, "_POLL_S", 0.01)
    return found


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(heartbeats, "time", clock)
    return clock


@pytest.fixture
def watchdog(told, clock):
    """A watchdog that lets nothing take longer than 10 seconds."""
    found = heartbeats.Watchdog("process 1 of 2", 10)
    found.dead = clock.look
    yield found
    found.stop()


def test_the_watchdog_ends_a_wait(watchdog, told, clock):
    with watchdog.waiting("a test"):
        clock.passes(9)
        assert told == []
        clock.passes(2)
    assert told[0].startswith("process 1 of 2, waiting for a test: nothing for 10 s. Another")
    assert "TOFU_TIMEOUT" in told[0]


def test_the_watchdog_lets_be_what_does_not_wait_long(watchdog, told, clock):
    clock.passes(20)
    for _ in range(3):
        with watchdog.waiting("a test"):
            clock.passes(9)
    with watchdog.waiting("the end", limited=False):
        clock.passes(20)
    assert told == []


def test_the_watchdog_may_be_without_limit(told, clock):
    unlimited = heartbeats.Watchdog("process 1 of 2", 0)
    unlimited.dead = clock.look
    with unlimited.waiting("a test"):
        clock.passes(10_000)
    unlimited.stop()
    assert told == []


def test_the_watchdog_hears_of_the_dead_without_waiting(watchdog, told, monkeypatch):
    monkeypatch.setenv("PS_HEARTBEAT_TIMEOUT", "30")
    watchdog.dead = lambda: ["the scheduler"]
    until = time.monotonic() + 60
    while not told and time.monotonic() < until:
        time.sleep(0.01)
    assert told[0].startswith("process 1 of 2: no heartbeat from the scheduler for 30 s, which")

"""Backward calls: one at a time, each waiting for its own callbacks."""

import threading
import time

import pytest

from tofu.gluon.backward_calls import BackwardCalls

WAIT_S = 60  # for what takes milliseconds, where nothing hangs


def run_all(*functions):
    """Call functions on threads of their own; raise the first error of any."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("num_variables", [0, 1])
def test_one_call_at_a_time(num_variables):
    """A second call begins when the first one is through, its `after` included."""
    calls, events = BackwardCalls(), []
    args = [None] * 9
    args[3] = num_variables

    def backward(*_args):
        events.append("backward")
        time.sleep(0.01)  # time for another thread to get in between
        return 0

    def call():
        def before():
            events.append("before")

        def after():
            events.append("after")

        calls.run(backward, args, before, after)

    run_all(*[call] * 8)
    assert events == ["before", "backward", "after"] * 8

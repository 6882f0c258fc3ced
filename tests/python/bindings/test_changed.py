"""Attributes that have other values in a with statement are put back whenever Ctrl-C comes."""

import _thread
import signal
import threading
import types

import pytest

from tofu._core import Changed


class Pressed:
    """Adding a signal's number presses Ctrl-C; Python tells its next function as it begins."""

    __add__ = _thread.interrupt_main


def test_values_are_others_inside_and_nest():
    target = types.SimpleNamespace(quiet=False, told=1)
    with Changed(target, quiet=True):
        with Changed(target, quiet=None, told=2):
            assert (target.quiet, target.told) == (None, 2)
        assert (target.quiet, target.told) == (True, 1)
    assert (target.quiet, target.told) == (False, 1)


def test_an_interrupt_at_the_end_leaves_nothing_changed():
    target = types.SimpleNamespace(quiet=False)

    def press():
        with Changed(target, quiet=True):
            Pressed() + signal.SIGINT
        len("")  # Python tells it after this call at the latest

    with pytest.raises(KeyboardInterrupt) as held:  # an interactive session holds its frames, too
        press()
    assert held.tb
    assert target.quiet is False


def test_an_unknown_attribute_leaves_the_others():
    target = types.SimpleNamespace(quiet=False)
    with pytest.raises(AttributeError, match="told"), Changed(target, quiet=True, told=1):
        pass
    assert target.quiet is False


def test_a_value_of_a_thread_changes_on_it_alone():
    class Local(threading.local):
        quiet = False

    local, seen = Local(), []
    with Changed(local, quiet=True):
        thread = threading.Thread(target=lambda: seen.append(local.quiet))
        thread.start()
        thread.join()
        seen.append(local.quiet)
    assert [*seen, local.quiet] == [False, True, False]

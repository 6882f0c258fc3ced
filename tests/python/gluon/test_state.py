"""A session owns all mutable state: modules have none, and none outlives the session."""

import _thread
import ast
import importlib
import pathlib
import pkgutil
import signal

import pytest

import tofu.gluon
from tofu.gluon.session.async_errors import named
from tofu.gluon.session.session import active

from .models import make_net, train

MODULES = [found.name for found in pkgutil.iter_modules(tofu.gluon.__path__)]
IMMUTABLE = (bool, int, float, str, bytes, tuple, frozenset, type(None))
# MXNet calls the functions from graphs, which outlive a session; a process can connect to
# the parameter servers only once.
OF_THE_PROCESS = {
    "autograd_hooks": {"_functions", "_keys"},
    "cluster": {"_connection"},
    "session": {"_active"},
}


def assigned(tree):
    """The variables of a module whose names are not those of constants."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and target.id.islower() and target.id[:2] != "__":
                yield target.id


@pytest.mark.parametrize("name", MODULES)
def test_no_module_has_variables(name):
    module = importlib.import_module(f"tofu.gluon.{name}")
    tree = ast.parse(pathlib.Path(module.__file__).read_text(encoding="utf-8"))
    changed = {
        each for node in ast.walk(tree) if isinstance(node, ast.Global) for each in node.names
    }
    kept = {each for each in assigned(tree) if not isinstance(getattr(module, each), IMMUTABLE)}
    loggers = {"_log", "_handler"}  # Python's logging is global
    assert changed | kept - loggers <= OF_THE_PROCESS.get(name, set())


def test_a_session_leaves_nothing_behind(log):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    state = active().state
    net = make_net()
    _, _, trainer = train(net=net)
    assert net in state.blocks
    assert state.tiled
    assert trainer in state.trainers
    tofu.gluon.disable()
    assert not state.tiled
    assert not state.blocks
    assert not state.undo
    assert not hasattr(trainer, "_tofu")
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    assert active().state is not state
    tofu.gluon.disable()


class Pressed:
    """Adding a signal's number presses Ctrl-C; Python tells its next function as it begins."""

    __add__ = _thread.interrupt_main


def test_after_an_interrupt_errors_are_explained(two):
    session = active()

    def press():
        with named(session):
            Pressed() + signal.SIGINT
        len("")  # Python tells it after this call at the latest

    with pytest.raises(KeyboardInterrupt) as held:  # an interactive session holds its frames, too
        press()
    assert held.tb
    assert not session.state.errors.is_named

"""Random scripts with people's habits show partitioned what they show plainly."""

import numpy as np
import pytest

from tofu.gluon.training.views import View

from . import random_scripts
from .random_scripts import BLOCKS, HABITS, Script, compare, difference

SCRIPTS, SAMPLE, CHUNK = 2000, 6, 50  # seeds: of --full, of each run, of one test


def differences(seeds):
    found = {seed: compare(seed) for seed in seeds}
    return [f"{Script(seed).text()}: {text}" for seed, text in found.items() if text]


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_scripts(seed):
    assert not differences([seed])


@pytest.mark.slow
@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize("first", range(0, SCRIPTS, CHUNK))
def test_more_scripts(first):
    assert not differences(range(first, first + CHUNK))


def test_the_scripts_have_every_habit():
    scripts = [Script(seed) for seed in range(100)]
    assert {kind for script in scripts for kind in script.kinds} == set(BLOCKS)
    assert {habit for script in scripts for habit in script.habits} == set(HABITS)
    assert {mode for script in scripts for mode in script.modes} == {
        "never", "whole", "static", "inside",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([("loss", np.ones(2))], ""),
        ([("loss", np.ones(2) + 1e-6)], "loss: differs by 1e-06 of 2"),
        ([("loss", np.ones(3))], "loss: shape (3,), expected (2,)"),
        ([("stale", "UserWarning")], "sees stale, expected loss"),
        ([("loss", np.ones(2)), ("more", 1)], "2 values, expected 1"),
    ],
)
def test_differences(found, text):
    script = next(each for each in map(Script, range(10)) if each.dtype == "float64")
    assert difference(script, found, [("loss", np.ones(2))]) == text


def test_finds_a_lost_gradient(monkeypatch):
    seed = next(
        seed
        for seed in range(100)
        if {"penalty"} <= Script(seed).habits and Script(seed).dtype == "float64"
    )
    monkeypatch.setattr(View, "take_gradient", lambda _: None)
    assert "differs" in compare(seed)


def test_finds_an_error(monkeypatch):
    monkeypatch.setattr(View, "take_gradient", lambda _: {}["lost"])
    seed = next(seed for seed in range(100) if "penalty" in Script(seed).habits)
    assert "raises KeyError at" in compare(seed)


def test_the_module_says_how_to_use_it():
    assert "python -m equality.random_scripts 0-99" in random_scripts.__doc__

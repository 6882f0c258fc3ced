"""The progress that a long search shows on standard error, and its times."""

import io
import re
import time
import types

import pytest

pytest.importorskip("mxnet")

from tofu import _core, models
from tofu.analysis.strategy_table import strategy_table
from tofu.planner.search import plan_graph
from tofu.plans import Problem, SearchOptions, progress
from tofu.plans.options import TIME_LIMIT_S
from tofu.plans.plan import gap_text
from tofu.plans.render.text import render_text


@pytest.fixture(scope="module")
def mlp():
    graph = models.build("mlp", 8, reduced=True).training_graph()
    return Problem("mlp", strategy_table(graph)[0], 4)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress, "_FIRST_S", 0.01)
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(progress, "_BETWEEN_S", 0.01)
    monkeypatch.setattr(progress, "_BETWEEN_LOG_S", 0.01)
    monkeypatch.setenv("COLUMNS", "200")
    found = Terminal()
    # Replaces the module's sys, as pytest replaces sys.stderr before every test.
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=found))
    return found


def wait_for(text, stream):
    until = time.monotonic() + 60
    while text not in stream.getvalue():
        assert time.monotonic() < until, stream.getvalue()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("known", "line"),
    [
        (("step 1 of 3", None, 0), "search 12 s, 48 s left: no plan yet; step 1 of 3"),
        (
            ("bounding all plans", 3072, 2048),
            "search 12 s, 48 s left: best 3.0 KiB, bound 2.0 KiB, gap 50%; bounding all plans",
        ),
    ],
)
def test_text(known, line):
    assert progress.text(*known, 12.3, 60.0) == line


@pytest.mark.parametrize(
    ("objective", "best"), [("bytes", "2.9 KiB"), ("time", "3.0 us"), ("distance", "3,000")]
)
def test_costs_have_the_unit_of_the_objective(objective, best):
    line = progress.text("a", 3000, 0, 1, 60, objective=objective)
    assert f"left: best {best}, gap unknown" in line


def test_text_after_the_limit():
    assert "search 61 s, 0 s left" in progress.text("a", 1, 1, 61, 60)


@pytest.mark.parametrize(
    ("best", "bound", "text"),
    [(5, 5, "0%"), (1011, 1000, "1.1%"), (50_000, 1000, "4,900%"), (5, 0, "unknown")],
)
def test_gap(best, bound, text):
    assert gap_text(best, bound) == text


def test_a_terminal_shows_one_line_that_is_removed(terminal):
    with progress.following(60) as heard:
        heard("first", 3072, 2048)
        wait_for("; first", terminal)
        heard("second", 2048, 2048)
        wait_for("gap 0%; second", terminal)
    assert "\n" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    length = len(terminal.getvalue())
    progress.clear()
    assert len(terminal.getvalue()) == length, "nothing is left to remove"


def test_a_line_fits_the_terminal(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    with progress.following(60) as heard:
        heard("x" * 80, 3072, 2048)
        wait_for("tofu: search", terminal)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert max(map(len, lines)) == 39


def test_a_quick_search_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "_FIRST_S", 60)
    with progress.following(60) as heard:
        heard("first", 3072, 2048)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("level", ["info", "quiet", "debug"])
def test_a_log_gets_lines_only_if_asked(terminal, monkeypatch, level):
    monkeypatch.setenv("TOFU_LOG", level)
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with progress.following(60) as heard:
        assert (heard is not None) == (level == "debug")
        if heard is not None:
            heard("first", 3072, 2048)
            wait_for("; first\n", terminal)
            heard("second", 3072, 3072)
            wait_for("; second\n", terminal)
    assert terminal.getvalue().count("\n") == (2 if level == "debug" else 0)
    assert "\r" not in terminal.getvalue()


def test_a_quiet_terminal_shows_nothing(terminal, monkeypatch):
    monkeypatch.setenv("TOFU_LOG", "quiet")
    with progress.following(60) as heard:
        assert heard is None


# --- stages ---------------------------------------------------------------------------------------


def test_a_terminal_shows_what_takes_long_and_for_how_long(terminal, monkeypatch):
    now = 50.0
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: now))
    with progress.stage("predicting the memory"):
        wait_for("\r\x1b[Ktofu: predicting the memory, 0 s", terminal)
        now = 54.2
        wait_for("\r\x1b[Ktofu: predicting the memory, 4 s", terminal)
    assert terminal.getvalue().endswith("4 s\r\x1b[K")
    assert "\n" not in terminal.getvalue()


def test_a_stage_inside_another_one_is_told_with_it(terminal):
    with progress.stage("plan 3 of 20"):
        wait_for("tofu: plan 3 of 20, 0 s", terminal)
        with progress.stage("predicting the memory"):
            wait_for("tofu: plan 3 of 20, predicting the memory, ", terminal)
            terminal.truncate(0)
            wait_for("memory, ", terminal)
            time.sleep(0.1)
            lines = terminal.getvalue().split("\r\x1b[K")
            assert {"predicting the memory" in line for line in lines[1:]} == {True}
        with progress.following(60) as heard:
            wait_for("tofu: plan 3 of 20, 0 s", terminal)  # until the search has results
            heard("step 1 of 3", None, 0)
            wait_for("tofu: plan 3 of 20, search 0 s, 60 s left: no plan yet", terminal)
        terminal.truncate(0)
        wait_for("tofu: plan 3 of 20, ", terminal)


@pytest.mark.parametrize(
    ("isatty", "level", "patience_s"),
    [(False, "info", 0), (False, "debug", 0), (True, "quiet", 0), (True, "info", 60)],
)
def test_logs_and_quick_stages_show_nothing(terminal, monkeypatch, isatty, level, patience_s):
    monkeypatch.setenv("TOFU_LOG", level)
    monkeypatch.setattr(terminal, "isatty", lambda: isatty)
    monkeypatch.setattr(progress, "_PATIENCE_S", patience_s)
    threads = []
    monkeypatch.setattr(progress.threading.Thread, "start", lambda thread: threads.append(thread))
    monkeypatch.setattr(progress.threading.Thread, "join", lambda thread: None)
    with progress.stage("predicting the memory"):
        pass
    # Only a thread writes, and one may start if it waits for longer than the stage takes.
    waits_s = [thread._target.__self__.first_s for thread in threads]
    assert waits_s == ([60] if patience_s else [])
    assert terminal.getvalue() == ""


def test_the_line_of_a_crashed_process_is_removed(terminal, monkeypatch):
    progress.clear(of_another=True)
    assert terminal.getvalue() == "\r\x1b[K"
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    progress.clear(of_another=True)
    assert terminal.getvalue() == "\r\x1b[K"


def test_the_patience_is_two_seconds():
    assert progress._PATIENCE_S == 2


# --- reports of a search --------------------------------------------------------------------------


def test_a_search_reports_plans_and_bounds(mlp):
    told = []
    plan = _core.plan(mlp.table, workers=4, on_progress=lambda *known: told.append(known))
    stages = [stage for stage, _, _ in told]
    assert stages[:3] == ["step 1 of 2", "step 2 of 2", "bounding all plans"]
    assert [best for _, best, _ in told[:2]] == [None, None]
    bests = [best for _, best, _ in told[2:]]
    assert bests == sorted(bests, reverse=True)
    assert bests[-1] >= plan.total_bytes
    assert all(bound <= plan.total_bytes for _, _, bound in told)


def test_an_error_of_the_listener_ends_the_search(mlp):
    def listener(*known):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        _core.plan(mlp.table, workers=4, on_progress=listener)


def test_the_time_limit_is_that_of_the_passes():
    default = re.search(r"time_limit_s: [^=]*= ([\d.]+)", _core.plan.__doc__)
    assert float(default.group(1)) == TIME_LIMIT_S


@pytest.mark.parametrize(
    ("mode", "limit_s", "stopped", "text"),
    [
        ("tofu", None, "proven", "s\n"),
        ("recursion", None, "nothing left to try", "the search had nothing left to try"),
        ("tofu", 1e-9, "time limit", "the time limit stopped the search"),
    ],
)
def test_the_end_says_what_stopped_it(mlp, monkeypatch, mode, limit_s, stopped, text):
    plan = plan_graph(mlp, SearchOptions(mode=mode, time_limit_s=limit_s))
    assert plan.stopped == stopped
    assert text in render_text(plan)

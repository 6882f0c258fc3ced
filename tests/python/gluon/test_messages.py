"""The messages of runs: at level debug, about whole tensors, and about many workers."""

from __future__ import annotations

import sys
import threading
import time
import types
import warnings
from fractions import Fraction

import pytest

import tofu.gluon  # noqa: F401  (messages belong to it)
from tofu.gluon.session import block_report, messages
from tofu.plans.report_level import set_level


@pytest.fixture
def session():
    depth = types.SimpleNamespace(level=0, partitioned=[], untraced=[], setup_seconds=0.0)
    state = types.SimpleNamespace(told=set(), depth=depth, first_step=[])
    context = types.SimpleNamespace(device_type="cpu", device_id=0)
    wish = types.SimpleNamespace(dump_dir=None)
    made = types.SimpleNamespace(state=state, wish=wish, workers=1, contexts=(context,))
    yield made
    set_level("info")


def compiled(indivisible, serial_bytes):
    graph = types.SimpleNamespace(hash="4d57e742f154af8d")
    searched = types.SimpleNamespace(
        indivisible_bytes=lambda: indivisible, num_operators=3, search_seconds=0.5, parts=[2, 2],
        shares=(), tile_multiple=1,
        memory_bytes=1536,
        status="steps-optimal", table=types.SimpleNamespace(graph=graph),
    )  # fmt: skip
    return types.SimpleNamespace(
        searched=searched, serial_bytes=serial_bytes, bytes_per_worker=(512, 2048),
        fetched_bytes=1024, shared_bytes=256, fetch="multifetch",
    )  # fmt: skip


def report(name, done, session, *, parameters=9, serial_bytes, plan_file=None):
    """Report a block of two operators whose first program is compiled."""
    block = block_report.Partitioned.of(
        name, done, parameters=parameters, forward_operators=2, serial_bytes=serial_bytes,
        plan_file=plan_file,
    )  # fmt: skip
    block_report.partitioned(block, done, session, first=True)


def told(function, *args):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function(*args)
    return [str(each.message) for each in seen]


def test_debug_tells_more_than_info(session, capsys):
    set_level("info")
    report("net", compiled({}, 4096), session, parameters=10, serial_bytes=4096)
    info = capsys.readouterr().err
    set_level("debug")
    report("net", compiled({}, 4096), session, parameters=10, serial_bytes=4096)
    debug = capsys.readouterr().err
    assert debug.endswith(info)
    assert info.endswith(
        "about 1.5 KiB on a worker (4.0 KiB serially), search 0.50 s, set up in 0.00 s\n"
    )
    assert debug.splitlines()[0] == (
        "tofu: net: plan of graph 4d57e742f154af8d: 2 x 2, steps-optimal; tensors of 4.0 KiB as "
        "a whole, 2.0 KiB on the fullest worker; fetches: multifetch, 256 bytes saved by sharing"
    )


@pytest.mark.parametrize(
    ("indivisible", "serial_bytes", "warned"),
    [
        ({"bias": 400}, 10_000, False),  # 4% of the graph, but a few hundred bytes
        ({"weight": 2000}, 10_000, True),
        ({"weight": 2000}, 10_000_000, False),  # less than 1%
        ({"bias": 400}, 500, True),  # most of the graph
        ({"bias": 30, "weight": 40}, 100, True),
    ],
)
def test_whole_tensors_are_warned_of_where_they_matter(indivisible, serial_bytes, warned):
    found = told(messages.replicated, "net", compiled(indivisible, serial_bytes))
    assert len(found) == warned
    if warned:
        assert f"net: no dimension of {max(indivisible, key=indivisible.get)} (" in found[0]


def test_many_workers_are_warned_of_once(session):
    session.workers = 128
    assert told(messages.many_workers, session) == []
    session.workers = 256
    (text,) = told(messages.many_workers, session)
    assert text.startswith("tofu: 256 workers: the first step may take minutes")
    assert told(messages.many_workers, session) == []


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ((None, None), "search 1.00 s"),
        (("a.plan", "a.plan"), "plan a.plan"),
        (("a.plan", None), "plan a.plan, search 0.50 s"),
    ],
)
def test_the_line_tells_which_plan_was_used(session, capsys, files, text):
    set_level("info")
    session.state.depth.level = 1
    for file in files:
        report("net", compiled({}, 1), session, serial_bytes=4096, plan_file=file)
    block_report.tell_call("net", "", "", session)
    (line,) = capsys.readouterr().err.splitlines()
    size, whole = f"{1.5 * len(files):.1f} KiB", f"{4.0 * len(files):.1f} KiB"
    assert line.endswith(
        f" communicated per step, about {size} on a worker ({whole} serially), {text}, "
        "set up in 0.00 s"
    )


@pytest.mark.parametrize(
    ("blocks", "share", "script", "told"),
    [
        (1, Fraction(1), "train.py", None),
        (2, Fraction(1), "train.py", "2 blocks with all of the parameters, {}; see the plans: {}"),
        (3, Fraction(3, 4), "ipykernel_launcher", "3 blocks with 75.0% of the parameters, {}"),
    ],
)
def test_several_blocks_are_summed_up_once(
    session, capsys, monkeypatch, blocks, share, script, told
):
    monkeypatch.setattr("sys.argv", [script, "--name", "a b"])
    monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(__spec__=None))
    set_level("info")
    for number in range(blocks):
        session.state.depth.setup_seconds = 0.25
        report(f"net{number}", compiled({}, 1), session, serial_bytes=2048)
    capsys.readouterr()
    block_report.first_step(share, session)
    block_report.first_step(share, session)
    lines = capsys.readouterr().err.splitlines()
    sums = (
        f"{blocks}.0 KiB communicated per step, about {1.5 * blocks:.1f} KiB on a worker "
        f"({2 * blocks}.0 KiB serially), set up in {0.25 * blocks:.2f} s"
    )
    command = "tofu plan --workers 1 train.py --name 'a b'"
    assert lines == ([] if told is None else ["tofu: first step: " + told.format(sums, command)])


def test_a_block_that_runs_in_part_is_one_warning(session, capsys):
    set_level("info")
    session.strict, session.plans = False, None
    session.wish.limit_bytes = None
    session.state.depth.level = 1
    for name in ("first", "second"):
        report(name, compiled({}, 1), session, serial_bytes=2048)
        block_report.untraced(f"{name}'s", "it prints", session)
    share = "4 of its 6 operators, 90.0% of its 20 parameters"
    assert told(block_report.tell_call, "net", "make it a HybridBlock", share, session) == [
        f"tofu: net (2 blocks inside it, {share}) over 1 worker "
        f"{session.contexts[0]}: 2.0 KiB communicated per "
        "step, about 3.0 KiB on a worker (4.0 KiB serially), search 1.00 s, set up in 0.00 s; "
        "first's itself runs eagerly: it prints; second's itself runs eagerly: it prints; "
        "to have the rest partitioned, make it a HybridBlock"
    ]
    assert not capsys.readouterr().err
    block_report.first_step(Fraction(9, 10), session)
    assert not capsys.readouterr().err  # told already: one line, not two
    assert told(block_report.tell_call, "net", "", "", session) == []


def test_a_block_outside_others_that_cannot_be_traced_is_one_warning(session):
    session.strict, session.plans = False, None
    assert told(block_report.untraced, "net", "it prints", session) == [
        "tofu: net runs eagerly, only the blocks inside it can be partitioned: it prints"
    ]


def test_the_set_up_time_is_that_of_all_phases(session, capsys):
    set_level("info")
    session.state.depth.level = 1
    for doing, seconds in (("partitioning", 0.25), ("binding", 0.5)):
        with messages.phase("net", doing, session):
            time.sleep(seconds)
    for name in ("net", "another"):
        report(name, compiled({}, 1), session, serial_bytes=4096)
        block_report.tell_call(name, "", "", session)
    first, second = capsys.readouterr().err.splitlines()
    assert 0.75 <= float(first.split()[-2]) < 60
    assert second.endswith("set up in 0.00 s")


def test_what_takes_long_says_what_it_is_doing(monkeypatch, capsys, session):
    set_level("info")
    timers = []

    class Timer(threading.Timer):
        def start(self):
            timers.append(self)

        def expire(self):
            if not self.finished.is_set():
                self.function(*self.args)

    monkeypatch.setattr(messages.threading, "Timer", Timer)
    with messages.phase("net", "binding", session):
        assert timers == [], "a log"
    monkeypatch.setattr(messages.sys.stderr, "isatty", lambda: True, raising=False)
    with messages.phase("net", "binding", session):
        timers[0].expire()
    assert timers[0].interval == 2
    assert capsys.readouterr().err == "tofu: net: binding ...\n"
    with pytest.raises(ValueError, match="no"), messages.phase("net", "binding", session):
        raise ValueError("no")
    timers[1].expire()  # too late
    assert capsys.readouterr().err == ""

"""What runs tell, by its text: at level debug, of whole tensors, and of many workers."""

from __future__ import annotations

import time
import types
import warnings

import pytest

import tofu.gluon  # noqa: F401  (messages belong to it)
from tofu.gluon.session import messages


@pytest.fixture
def session():
    depth = types.SimpleNamespace(level=0, partitioned=[], setup_seconds=0.0)
    state = types.SimpleNamespace(told=set(), depth=depth)
    context = types.SimpleNamespace(device_type="cpu", device_id=0)
    wish = types.SimpleNamespace(dump_dir=None)
    made = types.SimpleNamespace(state=state, wish=wish, workers=1, contexts=(context,))
    yield made
    messages.set_level("info")


def compiled(indivisible, serial_bytes):
    graph = types.SimpleNamespace(hash="4d57e742f154af8d")
    searched = types.SimpleNamespace(
        indivisible_bytes=lambda: indivisible, num_operators=3, search_seconds=0.5, parts=[2, 2],
        memory_bytes=1536,
        status="steps-optimal", table=types.SimpleNamespace(graph=graph),
    )  # fmt: skip
    return types.SimpleNamespace(
        searched=searched, serial_bytes=serial_bytes, bytes_per_worker=(512, 2048),
        fetched_bytes=1024, shared_bytes=256, fetch="multifetch",
    )  # fmt: skip


def told(function, *args):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        function(*args)
    return [str(each.message) for each in seen]


def test_debug_tells_more_than_info(session, capsys):
    messages.set_level("info")
    messages.partitioned("net", compiled({}, 4096), 10, session, first=True)
    info = capsys.readouterr().err
    messages.set_level("debug")
    messages.partitioned("net", compiled({}, 4096), 10, session, first=True)
    debug = capsys.readouterr().err
    assert debug.endswith(info)
    assert info.endswith("about 1.5 KiB on a worker, search 0.50 s, set up in 0.00 s\n")
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
    messages.set_level("info")
    session.state.depth.level = 1
    for file in files:
        messages.partitioned("net", compiled({}, 1), 9, session, first=True, plan_file=file)
    messages.tell_partitioned("net", session)
    (line,) = capsys.readouterr().err.splitlines()
    size = f"{1.5 * len(files):.1f} KiB"
    assert line.endswith(
        f" communicated per step, about {size} on a worker, {text}, set up in 0.00 s"
    )


def test_the_set_up_time_is_that_of_all_phases(session, capsys):
    messages.set_level("info")
    session.state.depth.level = 1
    for doing, seconds in (("partitioning", 0.25), ("binding", 0.5)):
        with messages.phase("net", doing, session):
            time.sleep(seconds)
    for name in ("net", "another"):
        messages.partitioned(name, compiled({}, 1), 9, session, first=True)
        messages.tell_partitioned(name, session)
    first, second = capsys.readouterr().err.splitlines()
    assert 0.75 <= float(first.split()[-2]) < 60
    assert second.endswith("set up in 0.00 s")


def test_what_takes_long_says_what_it_is_doing(monkeypatch, capsys, session):
    messages.set_level("info")
    monkeypatch.setattr(messages, "_PATIENCE_S", 0.01)
    with messages.phase("net", "binding", session):
        time.sleep(0.3)
    assert capsys.readouterr().err == "", "a log"
    monkeypatch.setattr(messages.sys.stderr, "isatty", lambda: True, raising=False)
    with messages.phase("net", "binding", session):
        time.sleep(0.3)
    assert capsys.readouterr().err == "tofu: net: binding ...\n"
    monkeypatch.setattr(messages, "_PATIENCE_S", 0.3)
    with pytest.raises(ValueError, match="no"), messages.phase("net", "binding", session):
        raise ValueError("no")
    time.sleep(0.5)
    assert capsys.readouterr().err == ""

"""The soak's parts, with small counts."""

from __future__ import annotations

import pytest

pytest.importorskip("mxnet")

import tofu


@pytest.fixture
def soak(import_script):
    module = import_script("soak")
    tofu.enable(workers=module.WORKERS, device="cpu", log="quiet")
    yield module
    tofu.disable()


@pytest.mark.whole(but=3)
@pytest.mark.parametrize(
    ("part", "counts", "lines"),
    [
        ("switched", [6], 1),
        ("kvstores", [2], 13),
        ("threads", [2], 1),
        ("steps", [10], 5),
        ("batches", [3], 3),
        ("contexts", [2, 5], 2),
    ],
)
def test_each_part_is_right_and_prints_its_figures(soak, capsys, part, counts, lines):
    assert soak.PARTS[part](counts)
    assert capsys.readouterr().out.count("\n") == lines


def test_what_grows_or_differs_is_seen(soak, monkeypatch, capsys):
    used = iter(range(0, 40 * 2**24, 2**24))
    monkeypatch.setattr(soak, "bytes_in_use", lambda: next(used))
    assert not soak.steps([10])
    assert not soak.batches([3])
    used = iter([0, 0, 0, 2**24, 2**25])
    assert not soak.steps([10])
    losses = iter(range(1, 99))
    monkeypatch.setattr(soak.Training, "step", lambda *_: next(losses))
    assert not soak.switched([4])
    capsys.readouterr()


@pytest.mark.parametrize("jump", range(1, 3))
def test_what_is_allocated_once_is_not_growth(soak, monkeypatch, jump):
    used = iter([2**24 * (turn >= jump) for turn in range(3)])
    monkeypatch.setattr(soak, "bytes_in_use", lambda: next(used))
    assert soak.batches([1])


def test_a_full_disk_is_one_that_fills_up(soak, tmp_path, monkeypatch):
    """The disk here never fills up, which must not count as a success."""
    monkeypatch.setattr(soak, "_fill", lambda path: path.write_bytes(b""))
    assert not soak.full(tmp_path)


def test_torn_checkpoints_change_nothing(soak, tmp_path):
    assert soak.torn(tmp_path)


def test_a_torn_checkpoint_that_loads_is_seen(soak, tmp_path, monkeypatch):
    monkeypatch.setattr(soak.Training, "step", lambda *_: 1.0)
    monkeypatch.setattr(soak, "_is_refused", lambda load, path: path.name != "states")
    assert not soak.torn(tmp_path)

"""Texts in files of the user's cache folder."""

import multiprocessing
import os

import pytest

from tofu import file_cache
from tofu.errors import ConfigError

KEY = ("graph", "options")


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TOFU_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tofu" / file_cache.FOLDER


def test_a_text_is_found_under_its_whole_key_alone(folder):
    file_cache.keep("plan", KEY, "text\nof two lines")
    with file_cache.record_finds() as kinds:
        assert file_cache.find("plan", KEY) == "text\nof two lines"
    assert kinds == {"plan"}
    others = [("graph",), ("graph", "other"), ("graphoptions",), ("graph", "options", "")]
    with file_cache.record_finds() as kinds:
        assert [file_cache.find("plan", other) for other in others] == [None] * len(others)
        assert file_cache.find("table", KEY) is None
    assert not kinds


@pytest.mark.parametrize("damage", [lambda text: text[:-1], lambda text: text + "x", lambda _: ""])
def test_a_damaged_file_is_not_used(folder, damage):
    file_cache.keep("plan", KEY, "text")
    (path,) = folder.iterdir()
    path.write_text(damage(path.read_text()))
    assert file_cache.find("plan", KEY) is None
    file_cache.keep("plan", KEY, "text")
    assert file_cache.find("plan", KEY) == "text"


def test_it_can_be_turned_off(monkeypatch, folder):
    monkeypatch.setenv("TOFU_CACHE", "0")
    file_cache.keep("plan", KEY, "text")
    assert not folder.exists()
    monkeypatch.setenv("TOFU_CACHE", "maybe")
    with pytest.raises(ConfigError, match="TOFU_CACHE='maybe': expected 1"):
        file_cache.find("plan", KEY)


def test_a_folder_that_others_can_write_to_is_not_used(folder):
    file_cache.keep("plan", KEY, "text")
    folder.chmod(0o777)
    assert file_cache.find("plan", KEY) is None
    file_cache.keep("plan", ("other",), "text")
    assert len(list(folder.iterdir())) == 1


def test_what_was_not_used_for_longest_goes_first(monkeypatch, folder):
    monkeypatch.setattr(file_cache, "MOST_BYTES", 2000)
    for number in range(4):
        file_cache.keep("plan", (str(number),), "x" * 400)
        (path,) = (path for path in folder.iterdir() if path.stat().st_mtime > 10**6)
        os.utime(path, (number, number))
    assert file_cache.find("plan", ("0",)) is not None  # now the newest
    file_cache.keep("plan", ("4",), "x" * 400)
    found = [file_cache.find("plan", (str(number),)) is not None for number in range(5)]
    assert found == [True, False, False, True, True]


def keep_many(text):
    for _ in range(50):
        file_cache.keep("plan", KEY, text)


def test_processes_at_once_leave_a_whole_file(folder):
    texts = [letter * 10_000 for letter in "ab"]
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=keep_many, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(file_cache.find("plan", KEY))
    for writer in writers:
        writer.join()
    assert seen <= {None, *texts}
    assert file_cache.find("plan", KEY) in texts
    assert len(list(folder.iterdir())) == 1

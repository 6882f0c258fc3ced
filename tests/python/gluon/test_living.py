"""A set that keeps nothing alive."""

import gc

import pytest

from tofu.gluon.session import living
from tofu.gluon.session.living import Living


class Thing:
    """Something that can be referred to weakly."""


def test_what_only_the_set_knows_is_gone():
    kept, found = Thing(), Living()
    dropped = Thing()
    for each in (kept, dropped, kept):
        found.add(each)
    assert len(found) == 2
    del dropped, each
    gc.collect()
    assert list(found) == [kept] and kept in found
    found.discard(kept)
    found.discard(kept)
    assert len(found) == 0 and kept not in found


def test_an_object_that_takes_the_place_of_another_stays(monkeypatch: pytest.MonkeyPatch):
    # Python may give a new object the number of one that is about to be forgotten.
    monkeypatch.setattr(living, "id", lambda value: 7, raising=False)
    first, second, found = Thing(), Thing(), Living()
    found.add(first)
    found.add(second)
    del first
    gc.collect()
    assert second in found and list(found) == [second]
    found.discard(Thing())
    assert second in found

"""The keys that changes touch, once each, with their texts."""

from __future__ import annotations

import pytest

from kuvasz.lake.copies import changed_keys
from kuvasz.lake.copies.changed_keys import ChangedKeys
from kuvasz.modes.shape import Shape
from tests.support.changes import SAME, Sender, delete, insert, update
from tests.support.shapes import pairs, shape


def taken(of: Shape, *messages: bytes) -> ChangedKeys:
    found = ChangedKeys(lambda _: of)
    for message in messages:
        found.add(Sender().one(message))
    return found


@pytest.mark.parametrize("most", [1, 1000])
def test_each_key_is_there_once_however_it_was_touched(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(changed_keys, "_ROUND", most)
    found = taken(shape(), insert(1), update(2, 3, SAME), update(5, 1, SAME, old=4), delete(7), delete(1), insert(2))
    assert found.most >= 5
    assert len(found.keys) == 5
    assert pairs(found.keys) == sorted(pairs(found.keys))
    batches = list(found.rows(2))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert sorted(row for batch in batches for row in batch) == [("1",), ("2",), ("4",), ("5",), ("7",)]


def test_without_changes_there_are_none() -> None:
    found = ChangedKeys(lambda _: shape())
    assert (len(found.keys), list(found.rows(3)), found.most) == (0, [], 0)

"""What the stream makes of keys that differ: rows by key, rows as a whole, and what nobody can tell."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kuvasz.fold.difference import Difference, Listing, difference
from kuvasz.fold.keys import Keys
from kuvasz.lake.format.binding import bind
from kuvasz.lake.format.schema import LakeSchema, wanted
from kuvasz.model import TableType
from kuvasz.modes.shape import Shape
from kuvasz.verify.moved import KeyHistory, changes
from tests.support.changes import SAME, Sender, delete, feed, insert, relation, target, update
from tests.support.shapes import CHANGELOG, CLONE, HISTORY, KEYLESS, shape
from tests.support.wires import joined, message

BARE = shape(KEYLESS, TableType.CLONE)


def listed(of: Shape, *messages: bytes) -> Listing:
    """The rows that messages insert."""
    data, lengths = joined(list(messages))
    found = changes(of, np.frombuffer(data, np.uint8), lengths)
    times = np.ones(len(found.keys), np.int64) if found.delta is None else found.delta
    keys, prints = (
        Keys(hi=np.repeat(one.hi, times), lo=np.repeat(one.lo, times)) for one in (found.keys, found.prints)
    )
    none = np.zeros(len(keys), np.uint32)
    return Listing(keys=keys, prints=prints, files=none, places=none)


def after(found: Difference, of: Shape, *steps: bytes | None) -> tuple[KeyHistory, list[tuple[int, int]]]:
    """Source and lake rows of each key that differs after changes; None stands for a TRUNCATE."""
    sender = Sender()
    moved = KeyHistory(found, lambda _: of, None)
    for step in steps:
        moved.add(sender.truncation() if step is None else sender.one(step))
    moved.evaluate()
    certain = found.corrected(*moved.known())
    return moved, list(zip(certain.source_rows.tolist(), certain.lake_rows.tolist(), strict=True))


def soft() -> Shape:
    """The shape of a clone whose deleted rows stay."""
    wants, made = dataclasses.replace(target(table_type=TableType.CLONE), is_soft=True), relation()
    return bind(wants, LakeSchema(schema_id=0, fields=wanted(wants, made)), made.key, bytes(16), feed(), made)


@pytest.mark.parametrize("of", [CLONE, HISTORY, CHANGELOG, soft()], ids=["clone", "history", "changelog", "soft"])
def test_a_row_is_what_it_was_last(of: Shape) -> None:
    """Whatever a table keeps of the past: of the source's row that is not asked."""
    lake = listed(of, insert(1, 2, "new"), insert(3, 1, "gone"))
    found = difference(listed(of, insert(1, 1, "old"), insert(2, 1, "too")), lake)
    moved, left = after(found, of, update(1, 7, "x"), update(1, 2, "new"), delete(2), insert(9))
    assert left == [(0, 1)]
    assert moved.touched.sum() == 2
    _, left = after(found, of, update(1, 2, "other"))
    assert left == [(1, 1), (1, 0), (0, 1)]
    moved, _ = after(found, of, update(1, 2, SAME))
    assert moved.unknown.sum() == 1
    _, left = after(found, of, None, insert(1, 2, "new"))
    assert left == [(0, 1)]


def bare(tag: str, new: list[bytes | None] | None, old: list[bytes | None] | None = None) -> bytes:
    return message(tag, new, old, "O")


def test_rows_without_a_key_are_counted() -> None:
    one, other = [b"1", b"1", b"a"], [b"2", None, b""]
    lake = listed(BARE, bare("I", one), bare("I", one), bare("I", one))
    found = difference(listed(BARE, bare("I", one), bare("I", other)), lake)
    assert sorted(zip(found.source_rows.tolist(), found.lake_rows.tolist(), strict=True)) == [(1, 0), (1, 3)]
    moved, left = after(found, BARE, bare("I", one), bare("U", one, other))
    assert left == []
    assert (moved.counted(2, is_ahead=False), moved.counted(3, is_ahead=True)) == (3, 2)
    moved, left = after(found, BARE, None, bare("I", one))
    assert left == [(1, 3)]
    assert (moved.counted(2, is_ahead=False), moved.counted(3, is_ahead=True)) == (1, None)
    assert moved.touched.all()

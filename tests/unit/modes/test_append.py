from __future__ import annotations

import pickle

import pytest

from kuvasz.errors import DecodeError
from kuvasz.modes import clone, dispatch
from tests.support.changes import SAME, delete, insert, update
from tests.support.shapes import APPEND, KEYLESS, apply, keys, pairs, rows, shape
from tests.support.wires import copy_line, message


def test_every_insert_and_update_is_a_row_and_the_last_of_a_key_is_known() -> None:
    applied = apply(insert(1, 1), update(1, 2), insert(2, 2), delete(2), update(9, 3, old=1), delete(7))
    assert [row[1:3] for row in rows(applied.rows)] == [(1, 1), (1, 2), (2, 2), (9, 3)]
    written = dict(zip(pairs(applied.keys), applied.written.tolist(), strict=True))
    assert written == dict(zip(keys(1, 2, 9, 7), [-1, -1, 3, -1], strict=True))
    assert applied.aside is None


def test_a_chunk_waits_whole_and_in_order_for_what_was_not_sent() -> None:
    applied = apply(insert(1, 1, "a"), update(2, 2, SAME), update(1, 3, SAME), update(2, 4, SAME))
    assert applied.rows.num_rows == 0
    aside = applied.aside
    assert aside is not None
    assert rows(aside.rows) == [
        ("eu", 1, 1, "a"), ("eu", 2, 2, None), ("eu", 1, 3, "a"), ("eu", 2, 4, None),
    ]  # fmt: skip
    assert aside.waits is not None
    assert aside.waits.tolist() == [1, 3]
    assert pairs(aside.sources) == keys(2, 2)
    earlier = apply(insert(2, 0, "two"), insert(2, 0, "two")).rows
    completed = clone.complete(aside.rows, aside.unchanged, earlier, aside.waits)
    assert [row[3] for row in rows(completed)] == ["a", "two", "a", "two"]


def test_a_large_value_that_the_earlier_version_has_none_of_is_refused() -> None:
    aside = apply(update(1, 1, SAME), update(2, 2, SAME)).aside
    assert aside is not None
    earlier = apply(insert(1, 0, "one"), insert(2, 0, None)).rows
    with pytest.raises(clone.EarlierLost) as raised:
        clone.complete(aside.rows, aside.unchanged, earlier, aside.waits, is_value=aside.is_value)
    error = pickle.loads(pickle.dumps(raised.value))  # it comes from an executor
    assert (error.row, error.field) == (1, "body")


def test_without_a_key_the_old_row_has_what_is_unchanged() -> None:
    old = [b"1", b"1", b"big"]
    changed = message("U", [b"1", b"2", SAME], old, "O")
    applied = apply(changed, message("D", old=old, old_tag="O"), to=shape(KEYLESS))
    assert rows(applied.rows) == [("eu", 1, 2, "big")]
    assert len(applied.keys) == 0
    with pytest.raises(DecodeError, match="leaves out a value and has no old row"):
        apply(message("U", [b"1", b"2", SAME]), to=shape(KEYLESS))


def test_a_copy_without_a_key_has_no_keys() -> None:
    assert len(dispatch.apply_copy(shape(KEYLESS), copy_line([b"1", None, b"x"]), 0).keys) == 0
    copied = dispatch.apply_copy(APPEND, copy_line([b"1", None, b"x"]), 0)
    assert pairs(copied.keys) == keys(1)
